"""Times the algorithms of one convolution in turns, so that a machine that slows down slows all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from deepstone.measure import doubts
from deepstone.measure.doubts import Doubt
from deepstone.measure.statistics import Quantity, median_of
from deepstone.runner.conversation import BlockTimes, Conversation
from deepstone.runner.launch import SHORTEST_SAMPLE_CPU_S, SHORTEST_SAMPLE_GPU_S

ROUNDS = 6
FEWEST_ROUNDS = 3  # for what is so slow that more would take many times the budget
MOST_SAMPLES = 50  # of one algorithm in one round
_REPLICATES = 400
_LONG_S = 0.02  # what takes longer hardly notices what was in the caches


@dataclass(kw_only=True, slots=True)
class Turns:
    """One algorithm's part: how its samples are taken, and those taken so far."""

    algorithm: str
    steps_per_sample: int
    samples: int
    rounds: int
    lead: int  # untimed runs before those that are timed, since another algorithm's data is in the caches
    blocks: list[BlockTimes] = field(default_factory=list[BlockTimes])

    def quantity(self) -> Quantity:
        return median_of([[block.step_s for block in self.blocks]], replicates=_REPLICATES)

    def doubt(self, *, on_gpu: bool) -> Doubt | None:
        """Whether the host was what was timed; by the block in which it was least so."""
        if not on_gpu:
            return None
        freest = min(self.blocks, key=lambda block: block.enqueue_s / max(block.total_s, 1e-12))
        return doubts.host_bound(enqueue_s=freest.enqueue_s, block_s=freest.total_s)


def first_look(conversation: Conversation, algorithm: str, *, budget_s: float, on_gpu: bool) -> Turns:
    """How long it takes about, and so how it is to be timed."""
    look = conversation.lone_times(algorithm, samples=2)
    step_s = max(min(look.step_s), 1e-9)
    shortest_s = SHORTEST_SAMPLE_GPU_S if on_gpu else SHORTEST_SAMPLE_CPU_S
    steps_per_sample = max(1, math.ceil(shortest_s / step_s))
    samples = int(budget_s / ROUNDS / (steps_per_sample * step_s))
    return Turns(
        algorithm=algorithm,
        steps_per_sample=steps_per_sample,
        samples=max(1, min(MOST_SAMPLES, samples)),
        rounds=ROUNDS if ROUNDS * step_s <= 2 * budget_s else FEWEST_ROUNDS,
        lead=1 if step_s < _LONG_S else 0,
    )


def take_turns(all_turns: Iterable[Turns], block: Callable[[Turns], BlockTimes | None]) -> None:
    """Round after round, in alternating order. `block` times one, or gives nothing once its algorithm has failed."""
    turns = list(all_turns)
    for number in range(ROUNDS):
        for each in turns if number % 2 == 0 else reversed(turns):
            if number < each.rounds:
                taken = block(each)
                if taken is not None:
                    each.blocks.append(taken)
