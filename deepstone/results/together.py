"""The steps of a job from those of its ranks.

    rank 0   ───┤────┤──────┤
    rank 1   ──┤──────┤────┤
    the job  ───┤─────┤─────┤     a step ends when the last rank has ended it: waiting for it is part of the step

The longest duration of each step would say too much where ranks take turns in being late. Times of all ranks must be
on one clock. A record keeps the ranks; this gives the job's steps again, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol


class Timed(Protocol):
    """A block of one rank: samples without a pause, each the mean of `steps_per_sample` steps."""

    @property
    def start_s(self) -> float: ...

    @property
    def steps_per_sample(self) -> int: ...

    @property
    def step_s(self) -> Sequence[float]: ...


def ends_of(block: Timed) -> list[float]:
    """When a block began, and when each of its samples ended."""
    ends = [block.start_s]
    for step_s in block.step_s:
        ends.append(ends[-1] + step_s * block.steps_per_sample)
    return ends


def latest_ends(ranks: Sequence[Timed]) -> list[float]:
    """When all ranks had begun, and when the last of them had ended each sample."""
    return [max(at) for at in zip(*map(ends_of, ranks), strict=True)]


def steps_between(ends: Sequence[float], steps_per_sample: int) -> list[float]:
    return [max(0.0, end - before) / steps_per_sample for before, end in pairwise(ends)]


def are_alike(ranks: Sequence[Timed]) -> bool:
    """Whether all ranks took as many samples of as many steps, so that they can be steps of one job."""
    return len({(len(block.step_s), block.steps_per_sample) for block in ranks}) <= 1
