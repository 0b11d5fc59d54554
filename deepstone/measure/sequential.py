"""When a comparison has seen enough fresh groups of processes, and which of its sides differ.

    groups measured        3    4    6    8    12
    looked at              ✓    ✓    ✓    ✓    ✓      it ends at the first look that settles every pair of sides

Who looks five times, and at every pair of sides, finds a false winner more often than who looks once. So each interval
is that of a fifth of the 5 %, and of that each pair of sides gets an equal part (Bonferroni): all intervals of all
looks hold together in 95 % of comparisons, wherever it ends.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from deepstone.measure.ratios import A_FASTER, B_FASTER, LEAST_DIFFERENCE, NO_DIFFERENCE, Ratio, verdict_of
from deepstone.measure.statistics import CONFIDENCE, Launch, Quantity, flat_steps, ratio_of_pairs

LOOKS: Final = (3, 4, 6, 8, 12)
MOST_GROUPS: Final = LOOKS[-1]
SIDES: Final = string.ascii_lowercase  # their names, in the order in which they are given
NARROW: Final = 0.01  # an interval of ± this tells enough, wherever it lies

Group = Sequence[Launch]  # one launch of every side: times per sample


@dataclass(frozen=True, kw_only=True, slots=True)
class SidesRatio:
    """Time per sample of side `a` over that of side `b`, which are numbers of sides from 0."""

    a: int
    b: int
    time_ratio: Quantity

    @property
    def winner(self) -> int | None:
        return {A_FASTER: self.a, B_FASTER: self.b, NO_DIFFERENCE: None}[verdict_of(Ratio.of_times(self.time_ratio))]

    @property
    def verdict(self) -> str:
        return NO_DIFFERENCE if self.winner is None else f"{SIDES[self.winner]} faster"

    @property
    def is_settled(self) -> bool:
        """A winner is shown, no difference that counts is left possible, or more groups would tell little more."""
        ratio, margin = self.time_ratio, 1 + LEAST_DIFFERENCE
        if not ratio.has_interval:
            return False
        within = ratio.low >= 1 / margin and ratio.high <= margin
        return self.winner is not None or within or ratio.high <= ratio.low * (1 + NARROW) ** 2


def ratios_of_sides(groups: Sequence[Group], *, looks: int) -> tuple[SidesRatio, ...]:
    """Of every two sides; `looks` is how often such ratios are judged in one comparison."""
    sides = range(len(groups[0]))
    error = (1 - CONFIDENCE) / (looks * math.comb(len(sides), 2))
    return tuple(
        SidesRatio(a=a, b=b, time_ratio=ratio_of_pairs([(group[a], group[b]) for group in groups], error=error))
        for a, b in combinations(sides, 2)
    )


def ranking(groups: Sequence[Group], ratios: Sequence[SidesRatio]) -> list[list[int]]:
    """The sides from the fastest on. A side begins a new rank where it is shown to be slower than the first of the rank
    before; sides of one rank are not shown to be slower than its first."""
    logs = np.array([[math.log(float(np.median(flat_steps([launch])))) for launch in group] for group in groups])
    slowness = np.median(logs - logs.mean(axis=1, keepdims=True), axis=0)
    winners = {frozenset((ratio.a, ratio.b)): ratio.winner for ratio in ratios}
    ranks: list[list[int]] = []
    for side in sorted(range(logs.shape[1]), key=lambda side: float(slowness[side])):
        if ranks and winners[frozenset((ranks[-1][0], side))] != ranks[-1][0]:
            ranks[-1].append(side)
        else:
            ranks.append([side])
    return ranks
