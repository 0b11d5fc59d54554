"""Decides when a comparison has enough fresh groups of processes, and which of its sides differ.

    groups measured        3    4    6    8    12
    judged                 ✓    ✓    ✓    ✓    ✓      it ends at the first look that settles every pair of sides

Five looks at every pair of sides find a false winner more often than one look. So each look gets a fifth of the 5 %
error, and each pair of sides an equal part of that (Bonferroni): all intervals of all looks hold together in 95 % of
comparisons, wherever it ends. So it may also go on where a winner is shown by an interval that is wider than a factor
of two: a few groups on a disturbed machine say that a side is faster, but not by how much.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from itertools import combinations
from typing import Final

import numpy as np
from msgspec import Struct

from deepstone.measure.ratios import A_FASTER, B_FASTER, LEAST_DIFFERENCE, NO_DIFFERENCE, Ratio, is_wide, verdict_of
from deepstone.measure.statistics import CONFIDENCE, Launch, Quantity, flat_steps, median_along, ratio_of_pairs

LOOKS: Final = (3, 4, 6, 8, 12)
MOST_GROUPS: Final = LOOKS[-1]
SIDES: Final = string.ascii_lowercase  # names of the sides, in their order
NARROW: Final = 0.01  # an interval of ± this is narrow enough, wherever it lies

Group = Sequence[Launch]  # one launch of every side: times per sample


class SidesRatio(Struct, frozen=True, kw_only=True):
    """Time per sample of side `a` over that of side `b`; sides are numbered from 0."""

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
    def is_wide(self) -> bool:
        return is_wide(self.time_ratio)

    @property
    def is_settled(self) -> bool:
        """Whether a winner is shown and its lead is roughly known, a relevant difference is excluded, or the interval
        is narrow enough."""
        ratio, margin = self.time_ratio, 1 + LEAST_DIFFERENCE
        if self.is_wide:
            return False
        within = ratio.low >= 1 / margin and ratio.high <= margin
        return self.winner is not None or within or ratio.high <= ratio.low * (1 + NARROW) ** 2


def ratios_of_sides(groups: Sequence[Group], *, looks: int) -> tuple[SidesRatio, ...]:
    """Return the ratio of every two sides. `looks` is how often one comparison judges such ratios."""
    sides = range(len(groups[0]))
    error = (1 - CONFIDENCE) / (looks * math.comb(len(sides), 2))
    return tuple(
        SidesRatio(a=a, b=b, time_ratio=ratio_of_pairs([(group[a], group[b]) for group in groups], error=error))
        for a, b in combinations(sides, 2)
    )


def ranking(groups: Sequence[Group], ratios: Sequence[SidesRatio]) -> list[list[int]]:
    """Return the sides, fastest first. A side starts a new rank if it is shown to be slower than the first of the
    previous rank; sides of one rank are not shown to be slower than its first."""
    logs = np.array([[math.log(float(median_along(flat_steps([launch])))) for launch in group] for group in groups])
    slowness = median_along(logs - logs.mean(axis=1, keepdims=True), axis=0)
    winners = {frozenset((ratio.a, ratio.b)): ratio.winner for ratio in ratios}
    ranks: list[list[int]] = []
    for side in sorted(range(logs.shape[1]), key=lambda side: float(slowness[side])):
        if ranks and winners[frozenset((ranks[-1][0], side))] != ranks[-1][0]:
            ranks[-1].append(side)
        else:
            ranks.append([side])
    return ranks
