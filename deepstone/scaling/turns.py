"""How often each transfer is timed, so that all together fit into the budget.

Short ones run in every round, many times. Long ones run in fewer rounds; those that would not fit even so are left out,
the largest size first. Every block begins with one transfer that is not timed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from deepstone.runner.measurement import SHORTEST_SAMPLE_CPU_S, SHORTEST_SAMPLE_GPU_S

ROUNDS: Final = 5  # of one launch, if time allows
FEWEST_BLOCKS: Final = 3  # of one transfer over all launches
_SHORTEST_BLOCK_S: Final = 0.005
_LONGEST_BLOCK_S: Final = 0.1
_ASKING_S: Final = 0.003  # what a block costs beside its steps
_STEPS_OF_LONG: Final = 2  # one that is timed, one before it


class Key(Struct, frozen=True, kw_only=True):
    """One transfer of one lane."""

    lane: int
    operation: str
    bytes: int


class Pace(Struct, frozen=True, kw_only=True):
    """How long a transfer takes: mostly, which decides what fits into the budget; and at the least, which decides how
    many make a sample that the clock can time. On a busy machine they differ much."""

    once_s: float
    least_s: float


class Turns(Struct, frozen=True, kw_only=True):
    """Blocks of one transfer in each launch: one in each of so many rounds."""

    rounds: int
    samples: int
    steps_per_sample: int


class Schedule(Struct, frozen=True, kw_only=True):
    turns: Mapping[Key, Turns]
    left_out: tuple[Key, ...]

    @property
    def rounds(self) -> int:
        return max((each.rounds for each in self.turns.values()), default=0)


def fewest_rounds(launches: int) -> int:
    return math.ceil(FEWEST_BLOCKS / launches)


def shortest_s(once_s: float, launches: int) -> float:
    """The least time that a transfer takes over all launches."""
    return launches * fewest_rounds(launches) * (_STEPS_OF_LONG * once_s + _ASKING_S)


def schedule(paces: Mapping[Key, Pace], *, budget_s: float, launches: int, on_gpu: bool = False) -> Schedule:
    once_s = {key: pace.once_s for key, pace in paces.items()}
    rounds, left_out = _rounds(once_s, budget_s / launches, launches)
    if not rounds:
        return Schedule(turns={}, left_out=tuple(left_out))
    block_s = _block_s({key: once_s[key] for key in rounds}, rounds, budget_s / launches)
    shortest = SHORTEST_SAMPLE_GPU_S if on_gpu else SHORTEST_SAMPLE_CPU_S
    turns = {key: _turns(paces[key], number, block_s, shortest) for key, number in rounds.items()}
    return Schedule(turns=turns, left_out=tuple(left_out))


def _rounds(once_s: Mapping[Key, float], launch_s: float, launches: int) -> tuple[dict[Key, int], list[Key]]:
    """Halve the rounds of the costliest until all fit. Left out are the largest sizes of what is costly even so."""
    least = fewest_rounds(launches)
    rounds = dict.fromkeys(once_s, max(ROUNDS, least))
    left_out: list[Key] = []

    def cost_s(key: Key) -> float:
        return rounds[key] * _least_block_s(once_s[key])

    while rounds and sum(map(cost_s, rounds)) > launch_s:
        reducible = [key for key in rounds if rounds[key] > least]
        if reducible:
            key = max(reducible, key=cost_s)
            rounds[key] = max(least, rounds[key] // 2)
        elif len({(key.lane, key.operation) for key in rounds}) == len(rounds):
            break  # one size of each is left: rather beyond the budget than nothing
        else:
            key = max(rounds, key=lambda each: (each.bytes, cost_s(each)))
            left_out.append(key)
            del rounds[key]
    return rounds, left_out


def _least_block_s(once_s: float) -> float:
    return max(_SHORTEST_BLOCK_S, _STEPS_OF_LONG * once_s) + _ASKING_S


def _block_s(once_s: Mapping[Key, float], rounds: Mapping[Key, int], launch_s: float) -> float:
    """What is left of the budget makes the blocks of short transfers longer."""
    spent_s = sum(rounds[key] * _least_block_s(seconds) for key, seconds in once_s.items())
    short = sum(rounds[key] for key, seconds in once_s.items() if _STEPS_OF_LONG * seconds < _SHORTEST_BLOCK_S)
    if not short:
        return _SHORTEST_BLOCK_S
    return min(_LONGEST_BLOCK_S, _SHORTEST_BLOCK_S + max(0.0, launch_s - spent_s) / short)


def _turns(pace: Pace, rounds: int, block_s: float, shortest_sample_s: float) -> Turns:
    steps_per_sample = max(1, math.ceil(shortest_sample_s / pace.least_s))
    samples = max(1, int(block_s / max(pace.once_s * steps_per_sample, 1e-9)))
    return Turns(rounds=rounds, samples=samples, steps_per_sample=steps_per_sample)
