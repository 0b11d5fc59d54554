"""How far apart in time the ranks of a job end their steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from deepstone.absent import Absent
from deepstone.measure.statistics import median_of
from deepstone.results.parallel import Skew
from deepstone.results.quantity import Quantity
from deepstone.results.together import Timed, ends_of
from deepstone.units import seconds

Ranks: TypeAlias = Sequence[Timed]  # one block of all ranks, on one clock


def skew_of(launches: Sequence[Sequence[Ranks]], *, error_s: float) -> Skew:
    """`launches`: their blocks without warm-up; a block has at least one sample."""
    ends = [[_ends(ranks) for ranks in blocks] for blocks in launches]
    spread = median_of([[[max(at) - min(at) for at in block] for block in blocks] for blocks in ends])
    behind = [
        median_of([[[at[rank] - min(at) for at in block] for block in blocks] for blocks in ends])
        for rank in range(len(launches[0][0]))
    ]
    return Skew(
        spread_s=_resolved(spread, error_s), behind_s=[_resolved(each, error_s) for each in behind], error_s=error_s
    )


def _ends(ranks: Ranks) -> list[tuple[float, ...]]:
    """For each sample, when each rank ended it."""
    return list(zip(*(ends_of(block)[1:] for block in ranks), strict=True))


def _resolved(found: Quantity, error_s: float) -> Quantity | Absent:
    if error_s and found.median <= error_s:
        return Absent(f"not resolved: below the error of the clocks, {seconds(error_s)}")
    return found
