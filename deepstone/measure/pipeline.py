"""How long the stages of a pipeline wait, and why: from the times of all their passes in one step.

    measured    stage 0   F0 F1 ·········· B0 ·· B1      waiting = what of the step no pass takes
                stage 1   ··· F0 ·· F1 B0 ·· B1 ·····
    replayed    the same passes, each as long as it was, as soon as what it needs is there: no communication
    ideal       all passes of a kind equally long: of m + p - 1 turns, p - 1 are waited

A step that takes longer than its replay spends the difference on communication. A replay that waits longer than the
ideal has stages that do not cost the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

FORWARD: Literal["forward"] = "forward"
BACKWARD: Literal["backward"] = "backward"
Direction = Literal["forward", "backward"]


class Pass(Struct, frozen=True, kw_only=True):
    """Forward or backward of one microbatch through one stage."""

    direction: Direction
    stage: int
    microbatch: int
    seconds: float

    @property
    def needs(self) -> tuple[Direction, int, int]:
        """The pass of another stage that comes right before it."""
        step = -1 if self.direction == FORWARD else 1
        return self.direction, self.stage + step, self.microbatch


class Waiting(Struct, frozen=True, kw_only=True):
    """Of one step: how long it would take without communication, and which share of that each process waits."""

    step_s: float
    shares: list[float]

    @property
    def share(self) -> float:
        return sum(self.shares) / len(self.shares)


def ideal_share(*, processes: int, microbatches: int, stages_per_process: int = 1) -> float:
    """With stages that cost the same, and no communication."""
    turns = stages_per_process * microbatches
    return (processes - 1) / (turns + processes - 1)


def replay(processes: Sequence[Sequence[Pass]], after_s: Sequence[float]) -> Waiting:
    """`processes`: the passes of each process of one pipeline in the order in which it ran them. `after_s`: what each
    computes after the last of them: the update."""
    ends: dict[tuple[Direction, int, int], float] = {}
    last_stage = max(each.stage for passes in processes for each in passes)
    free_s = [0.0] * len(processes)
    following = [0] * len(processes)
    while any(at < len(passes) for at, passes in zip(following, processes, strict=True)):
        moved = False
        for number, passes in enumerate(processes):
            while following[number] < len(passes):
                each = passes[following[number]]
                is_free = each.needs[1] < 0 or each.needs[1] > last_stage
                if not is_free and each.needs not in ends:
                    break
                begin_s = max(free_s[number], 0.0 if is_free else ends[each.needs])
                free_s[number] = begin_s + each.seconds
                ends[each.direction, each.stage, each.microbatch] = free_s[number]
                following[number] += 1
                moved = True
        if not moved:
            raise ValueError("the passes of a pipeline wait for each other in a circle")
    step_s = max(free + after for free, after in zip(free_s, after_s, strict=True))
    busy_s = [sum(each.seconds for each in passes) + after for passes, after in zip(processes, after_s, strict=True)]
    return Waiting(step_s=step_s, shares=[1 - busy / step_s for busy in busy_s])
