"""From a measured quantity to one of six words. The words and their limits are the same for every claim of every paper.

    ratio        reversed │ no longer matters │ weaker │ holds          where the whole interval lies
    ─────────────────────┼───────────────────┼────────┼────────▶
                        0.95      1         1.05    enough(published)

An interval that lies across a border decides nothing: undecided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from deepstone.measure.statistics import Quantity
from deepstone.units import digits, percent

Word: TypeAlias = Literal["holds", "reversed", "weaker", "no longer matters", "undecided", "not testable here"]

HOLDS: Final = "holds"
REVERSED: Final = "reversed"
WEAKER: Final = "weaker"
NO_LONGER: Final = "no longer matters"
UNDECIDED: Final = "undecided"
NOT_TESTABLE: Final = "not testable here"
WORDS: Final[tuple[Word, ...]] = (HOLDS, REVERSED, WEAKER, NO_LONGER, UNDECIDED, NOT_TESTABLE)

BAND: Final = (0.95, 1.05)  # a ratio whose interval lies in it no longer matters
REACH: Final = 0.8  # "up to x" holds when the best case reaches this part of x
HALF_THE_GAIN: Final = 0.5  # near 1, 0.8 x would be no gain at all
LEAST_DIFFERENCE: Final = 0.02  # a rank is one beyond this, as in `deepstone compare`


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """A verdict, and in words which limit decided it."""

    word: Word
    why: str


def enough(published: float) -> float:
    """What a ratio must reach for a published one above 1 to hold: 0.8 of it, and at least half of its gain."""
    return max(REACH * published, 1 + HALF_THE_GAIN * (published - 1))


def of_ratio(ratio: Quantity, published: float) -> Judgement:
    """Of a gain that a paper states as a ratio above 1, "x", "about x" or "up to x" (then of the best case)."""
    limit = enough(published)
    asks = f"{digits(published)}x asks for {digits(limit)} at least"
    if ratio.low >= limit:
        return Judgement(word=HOLDS, why=asks + ("; more than published" if ratio.low > published else ""))
    if _in_band(ratio):
        return Judgement(word=NO_LONGER, why=_BAND_WORDS)
    if ratio.high < 1:
        return Judgement(word=REVERSED, why="the whole interval lies below 1")
    if ratio.low > 1 and ratio.high < limit:
        return Judgement(word=WEAKER, why=asks)
    return Judgement(word=UNDECIDED, why=_undecided(ratio, limit, asks))


def of_rank(ratio: Quantity) -> Judgement:
    """Of an order without a number: how many times as good the first is as the second, above 1 if the order holds."""
    if _in_band(ratio):
        return Judgement(word=NO_LONGER, why=_BAND_WORDS)
    if ratio.low > 1 + LEAST_DIFFERENCE:
        return Judgement(word=HOLDS, why="the order is as published, beyond 2 %")
    if ratio.high < 1 / (1 + LEAST_DIFFERENCE):
        return Judgement(word=REVERSED, why="the order is the other way round, beyond 2 %")
    return Judgement(word=UNDECIDED, why="the interval holds 1")


def of_equality(ratio: Quantity, *, far: float) -> Judgement:
    """Of two things that a paper calls about equal: within 5 %. Beyond `far` the opposite is shown."""
    if _in_band(ratio):
        return Judgement(word=HOLDS, why="equal within 5 %")
    if ratio.low > far or ratio.high < 1 / far:
        return Judgement(word=REVERSED, why=f"they differ by more than a factor of {digits(far)}")
    beyond_band = ratio.low > BAND[1] or ratio.high < BAND[0]
    if beyond_band and ratio.high <= far and ratio.low >= 1 / far:
        return Judgement(word=WEAKER, why=f"they differ by more than 5 %, and by less than a factor of {digits(far)}")
    return Judgement(word=UNDECIDED, why="the interval lies across the limits of 5 %")


def of_share(share: Quantity, published: float, *, majority: float = 0.5) -> Judgement:
    """Of a part of a whole, "up to x". Below `majority` the claim that it is most of it is reversed."""
    limit = REACH * published
    asks = f"{percent(published)} asks for {percent(limit)} at least"
    if share.low >= limit:
        return Judgement(word=HOLDS, why=asks)
    if share.high < majority:
        return Judgement(word=REVERSED, why=f"less than {percent(majority)}")
    if share.low > majority and share.high < limit:
        return Judgement(word=WEAKER, why=asks)
    return Judgement(word=UNDECIDED, why=f"the interval lies across a limit; {asks}")


def of_count(found: float, published: float, *, tolerance: float = 0.0) -> Judgement:
    """Of a number that is counted, not measured: equal, or equal to as many digits as the paper gives."""
    if abs(found - published) <= tolerance * abs(published):
        return Judgement(word=HOLDS, why="counted")
    return Judgement(word=REVERSED, why="counted, and another number")


def of_parts(parts: Sequence[Judgement]) -> Word:
    """One word for a claim of several parts: all alike, or weaker where only some of them hold."""
    words: list[Word] = [part.word for part in parts if part.word != NOT_TESTABLE]
    if not words:
        return NOT_TESTABLE
    if len(set(words)) == 1:
        return words[0]
    if UNDECIDED in words:
        return UNDECIDED
    return WEAKER


def exactly(value: float) -> Quantity:
    """A counted number: its interval is itself."""
    return Quantity(median=value, low=value, high=value, n=1)


_BAND_WORDS: Final = "the whole interval lies within 0.95 – 1.05"


def _in_band(ratio: Quantity) -> bool:
    return BAND[0] <= ratio.low and ratio.high <= BAND[1]


def _undecided(ratio: Quantity, limit: float, asks: str) -> str:
    if ratio.high < limit:
        return f"{asks}, which it does not reach; too wide an interval to say what is left of it"
    if ratio.low > 1:
        return f"faster, but the interval lies across the limit: {asks}"
    return f"too wide an interval; {asks}"
