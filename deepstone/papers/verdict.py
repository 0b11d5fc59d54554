"""Turns a measured quantity into one of six words. The words and their limits are the same for all claims and papers.

    ratio        reversed │ no longer matters │ weaker │ holds          where the whole interval lies
    ─────────────────────┼───────────────────┼────────┼────────▶
                        0.95      1         1.05    enough(published, bound)

An interval that crosses a limit gives "undecided".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from deepstone.measure.ratios import LEAST_DIFFERENCE, is_above, is_below
from deepstone.results.claim import VerdictWord
from deepstone.results.parts import Part
from deepstone.results.quantity import Quantity
from deepstone.units import digits, percent

Word: TypeAlias = VerdictWord

HOLDS: Final = "holds"
REVERSED: Final = "reversed"
WEAKER: Final = "weaker"
NO_LONGER: Final = "no longer matters"
UNDECIDED: Final = "undecided"
NOT_TESTABLE: Final = "not testable here"
WORDS: Final[tuple[Word, ...]] = (HOLDS, REVERSED, WEAKER, NO_LONGER, UNDECIDED, NOT_TESTABLE)

Bound: TypeAlias = Literal["up to", "more than", "about"]  # how a paper states a number

UP_TO: Final = "up to"
MORE_THAN: Final = "more than"
ABOUT: Final = "about"

BAND: Final = (0.95, 1.05)  # a ratio whose interval lies in it no longer matters
REACH: Final = 0.8  # "up to x" holds if the best case reaches this part of x
HALF_THE_GAIN: Final = 0.5  # near 1, 0.8 x would be no gain
NEAR: Final = 0.75  # "about x" holds from this part of its gain


class Published(Part, frozen=True, kw_only=True, rename={"stated": "bound"}):
    """A published statement: in the paper's words, and as a number if there is one. `stated`: how it states the
    number."""

    text: str
    value: float | None = None
    unit: str | None = None
    stated: Bound | None = None

    @property
    def bound(self) -> Bound:
        return self.stated or ABOUT

    @property
    def number(self) -> float:
        """Return the number, for rules that need one."""
        assert self.value is not None, "this rule needs a published value"
        return self.value


class Judgement(Struct, frozen=True, kw_only=True):
    """A verdict, and a description of the limit that decided it."""

    word: Word
    why: str


def enough(published: float, bound: Bound) -> float:
    """Return the ratio that must be reached for a published ratio above 1 to hold.

    "Up to x" describes a best case that another machine may not have: it needs 0.8 x, and at least half of the gain.
    "About x" needs three quarters of the gain, "more than x" needs x.
    """
    if bound == MORE_THAN:
        return published
    if bound == ABOUT:
        return 1 + NEAR * (published - 1)
    return max(REACH * published, 1 + HALF_THE_GAIN * (published - 1))


def of_ratio(ratio: Quantity, published: float, bound: Bound) -> Judgement:
    """Judge a gain that a paper states as a ratio above 1; with "up to", `ratio` is that of the best case."""
    limit = enough(published, bound)
    needed = f"{bound} {digits(published)}x asks for {digits(limit)} at least"
    if ratio.low >= limit:
        beyond = bound != MORE_THAN and ratio.low > published
        return Judgement(word=HOLDS, why=needed + ("; more than published" if beyond else ""))
    if _in_band(ratio):
        return Judgement(word=NO_LONGER, why=_BAND_WORDS)
    if ratio.high < 1:
        return Judgement(word=REVERSED, why="the whole interval lies below 1")
    if ratio.low > 1 and ratio.high < limit:
        return Judgement(word=WEAKER, why=needed)
    return Judgement(word=UNDECIDED, why=_undecided(ratio, limit, needed))


def of_small_lead(ratio: Quantity, published: float, bound: Bound, *, far: float) -> Judgement:
    """Judge two that a paper calls comparable, the first slightly ahead: a lead, but no larger one than published.

    A lead beyond the factor `far` shows that they are not comparable, the opposite of the claim.
    """
    most = published * (1 + LEAST_DIFFERENCE)
    if ratio.low > far:
        return Judgement(
            word=REVERSED, why=f"ahead by more than a factor of {digits(far)}, where the paper found them comparable"
        )
    judged = of_ratio(ratio, published, bound)
    if judged.word != HOLDS or ratio.high <= most:
        return judged
    if ratio.low > most and ratio.high <= far:
        return Judgement(word=WEAKER, why=f"ahead by more than {digits(published)}x, less than {digits(far)}x")
    return Judgement(word=UNDECIDED, why=f"ahead; whether by more than {digits(published)}x, the interval leaves open")


def of_rank(ratio: Quantity) -> Judgement:
    """Judge an order without a number: `ratio` is above 1 if the first is better than the second."""
    if _in_band(ratio):
        return Judgement(word=NO_LONGER, why=_BAND_WORDS)
    if is_above(ratio):
        return Judgement(word=HOLDS, why="the order is as published, beyond 2 %")
    if is_below(ratio):
        return Judgement(word=REVERSED, why="the order is the other way round, beyond 2 %")
    return Judgement(word=UNDECIDED, why=ratio.no_interval or "the interval holds 1")


def of_equality(ratio: Quantity, *, far: float) -> Judgement:
    """Judge two that a paper calls about equal: within 5 %. Beyond `far` the opposite is shown."""
    if _in_band(ratio):
        return Judgement(word=HOLDS, why="equal within 5 %")
    if ratio.low > far or ratio.high < 1 / far:
        return Judgement(word=REVERSED, why=f"they differ by more than a factor of {digits(far)}")
    beyond_band = ratio.low > BAND[1] or ratio.high < BAND[0]
    if beyond_band and ratio.high <= far and ratio.low >= 1 / far:
        return Judgement(word=WEAKER, why=f"they differ by more than 5 %, and by less than a factor of {digits(far)}")
    return Judgement(word=UNDECIDED, why=ratio.no_interval or "the interval lies across the limits of 5 %")


def of_share(share: Quantity, published: float, *, majority: float = 0.5) -> Judgement:
    """Judge a part of a whole, "up to x". Below `majority`, the claim that it is most of the whole is reversed."""
    limit = REACH * published
    needed = f"{percent(published)} asks for {percent(limit)} at least"
    if share.low >= limit:
        return Judgement(word=HOLDS, why=needed)
    if share.high < majority:
        return Judgement(word=REVERSED, why=f"less than {percent(majority)}")
    if share.low > majority and share.high < limit:
        return Judgement(word=WEAKER, why=needed)
    return Judgement(word=UNDECIDED, why=f"{share.no_interval or 'the interval lies across a limit'}; {needed}")


def of_shortfall(share: Quantity, published: float, *, majority: float = 0.5) -> Judgement:
    """Judge a reached share, "about x", by the missing part, which should be neither smaller nor larger.

    If less is missing: weaker, and "no longer matters" from 95 % on. If more is missing: weaker too, and reversed below
    `majority`.
    """
    missing = 1 - published
    least, most = 1 - missing / NEAR, 1 - NEAR * missing  # of the share
    needed = f"about {percent(published)} asks for {percent(least)} to {percent(most)}"
    if least <= share.low and share.high <= most:
        return Judgement(word=HOLDS, why=needed)
    if share.low >= BAND[0]:
        return Judgement(word=NO_LONGER, why=f"less than {percent(1 - BAND[0])} is missing")
    if share.high < majority:
        return Judgement(word=REVERSED, why=f"less than {percent(majority)}")
    if share.low > most and share.high < BAND[0]:
        return Judgement(word=WEAKER, why=f"less is missing than published; {needed}")
    if share.low > majority and share.high < least:
        return Judgement(word=WEAKER, why=f"more is missing than published; {needed}")
    return Judgement(word=UNDECIDED, why=f"{share.no_interval or 'the interval lies across a limit'}; {needed}")


def of_count(found: float, published: float, *, tolerance: float = 0.0) -> Judgement:
    """Judge a counted number: equal, or equal to as many digits as the paper gives."""
    if abs(found - published) <= tolerance * abs(published):
        return Judgement(word=HOLDS, why="counted")
    return Judgement(word=REVERSED, why="counted, and another number")


def of_parts(parts: Sequence[Judgement]) -> Word:
    """Return one word for a claim of several parts.

    If all are the same: that word. Otherwise weaker if any part still holds to some degree, else reversed.
    """
    words: list[Word] = [part.word for part in parts if part.word != NOT_TESTABLE]
    if not words:
        return NOT_TESTABLE
    if len(set(words)) == 1:
        return words[0]
    if UNDECIDED in words:
        return UNDECIDED
    return WEAKER if {HOLDS, WEAKER} & set(words) else REVERSED


def exactly(value: float) -> Quantity:
    """Return a counted number as a quantity: its interval has no width, and it has no samples."""
    return Quantity.of(median=value, low=value, high=value, n=0)


_BAND_WORDS: Final = "the whole interval lies within 0.95 – 1.05"


def _in_band(ratio: Quantity) -> bool:
    return BAND[0] <= ratio.low and ratio.high <= BAND[1]


def _undecided(ratio: Quantity, limit: float, needed: str) -> str:
    if not ratio.has_interval:
        return f"{ratio.no_interval}; {needed}"
    if ratio.high < limit:
        return f"{needed}, which it does not reach; too wide an interval to say what is left of it"
    if ratio.low > 1:
        return f"faster, but the interval lies across the limit: {needed}"
    return f"too wide an interval; {needed}"
