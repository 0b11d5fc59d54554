"""One plain sentence about what was measured, with everything it rests on."""

from __future__ import annotations

from typing import Final

from deepstone.absent import Absent
from deepstone.results.parts import Number, OrAbsent, Part
from deepstone.results.quantity import Quantity

NO_RATIO: Final = Absent("the sentence is not about one ratio")


class Statement(Part, frozen=True, kw_only=True):
    """`rank`: the higher, the more it matters to a reader. `how`: what its interval means. `advice`: what to do about it,
    where that is the first thing to say."""

    text: str
    runs: list[str]
    findings: list[str]
    ratio: OrAbsent[Quantity]
    how: str
    rank: Number
    advice: str | None = None
