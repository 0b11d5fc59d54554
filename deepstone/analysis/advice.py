"""What a reader should do about a difference, and which difference comes first.

The strongest is the largest ratio that is proven: of a setup that trains faster than the default of the same network,
by the near end of its interval, all of which lies beyond the margin. Where none is faster, it is the worst that one can
choose; and where no difference was shown at all, that is what there is to say: intervals that leave everything open are
no reason to keep anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from deepstone.analysis.cases import Case
from deepstone.analysis.contrast import Contrast
from deepstone.analysis.facts import value_of
from deepstone.analysis.one_factor import Star, setting
from deepstone.analysis.wording import base_words, times
from deepstone.measure.ratios import A_FASTER, NO_DIFFERENCE
from deepstone.results.claim import Statement
from deepstone.results.quantity import Quantity

KEEP: Final = "Keep the default."
MEASURE_AGAIN: Final = "Nothing is decided: measure again when the machine is quiet."
_FIRST: Final = 200.0  # in rank: before all others

# What a training gives up with a precision, from wide to narrow.
GIVEN_UP: Final[Mapping[str, str]] = {
    "tf32-conv": "convolutions in TF32: 11 bits of precision instead of 24",
    "tf32": "all products in TF32: 11 bits of precision instead of 24",
    "fp16-mixed": "products in fp16: 11 bits of precision and a narrow range, with loss scaling; weights stay in fp32",
    "bf16-mixed": "products in bf16: 8 bits of precision instead of 24; weights stay in fp32",
    "bf16": "weights and products in bf16: 8 bits of precision, so that small updates may be lost",
}


def given_up(before: str, after: str) -> str:
    """What a training loses with another precision; empty where it is not narrower."""
    known = list(GIVEN_UP)
    places = [known.index(precision) + 1 if precision in GIVEN_UP else 0 for precision in (before, after)]
    return GIVEN_UP[after] if places[1] > places[0] else ""


def advise(star: Star, case: Case, axes: Sequence[str], contrast: Contrast) -> str | None:
    """What to do about a case that differs from its base in these axes, with the ratio that says so; None where it is
    not the training that the others are held against, or no difference was shown. Looks of a search are no reason to do
    anything, and what it did not prove to be the same training is nothing to use."""
    words, of_framework = setting(case, axes), "framework" in axes
    held_against = star.main if of_framework else star.base
    if not star.in_main_phase or contrast.verdict == NO_DIFFERENCE:
        return None
    if case.is_of_looks or held_against.is_of_looks or (contrast.verdict == A_FASTER and case.unproven):
        return None
    base = base_words(replace(star, base=star.main) if of_framework else star)
    where = "" if star.is_main or of_framework else f" in {star.framework}"
    ratio = f"{times(contrast.speed_ratio)} {base}{where}"
    if contrast.verdict != A_FASTER:
        return f"Do not use {words} here: {ratio}."
    lost = given_up(*(str(value_of(each.record, "precision")) for each in (held_against, case)))
    return f"Use {words}: {ratio}" + (f", if your training tolerates it ({lost})." if lost else ".")


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
