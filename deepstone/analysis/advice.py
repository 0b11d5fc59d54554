"""What a reader should do about a difference, and which difference comes first.

The strongest is the largest ratio that is proven: of a setup that trains faster than the default of the same network,
by the near end of its interval, all of which lies beyond the margin. Where none is faster, it is the worst that one can
choose; and where no difference was shown at all, that is what there is to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from deepstone.analysis.cases import Case
from deepstone.analysis.contrast import Contrast
from deepstone.analysis.one_factor import Star, setting
from deepstone.measure.ratios import A_FASTER, NO_DIFFERENCE
from deepstone.results.quantity import Quantity
from deepstone.results.statement import Statement

KEEP: Final = "Keep the default."
_FIRST: Final = 200.0  # in rank: before all others
_LOSSY: Final = frozenset({"precision"})  # axes that change what is computed


def advise(star: Star, case: Case, axes: Sequence[str], contrast: Contrast) -> str | None:
    """What to do about a case that differs from its base in these axes; None where it is not the training that the
    others are held against, or no difference was shown."""
    if not star.in_main_phase or contrast.verdict == NO_DIFFERENCE:
        return None
    words = setting(case, axes)
    if contrast.verdict != A_FASTER:
        return f"Do not use {words} here."
    if _LOSSY & set(axes):
        return f"Use {words}, if your training tolerates that precision."
    return f"Use {words}."


def strongest_first(said: Iterable[Statement]) -> list[Statement]:
    """By rank, the strongest finding before all others; it alone keeps what to do about it."""
    found = list(said)
    strongest = max((each for each in found if each.advice), key=_strength, default=None)
    ranked = [
        replace(each, rank=_FIRST) if each is strongest else replace(each, advice=None) if each.advice else each
        for each in found
    ]
    return sorted(ranked, key=lambda each: -each.rank)


def _strength(statement: Statement) -> tuple[bool, float]:
    """Faster before slower before undecided, then how far from 1 it is proven to be."""
    ratio = statement.ratio
    if not isinstance(ratio, Quantity):
        return False, 0.0
    if ratio.low > 1:
        return True, ratio.low
    return False, 1 / ratio.high if ratio.high > 0 else 0.0
