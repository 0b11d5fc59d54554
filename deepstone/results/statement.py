"""One plain sentence about the measurements, with its evidence."""

from __future__ import annotations

from typing import Final

from deepstone.absent import Absent
from deepstone.results.parts import Number, OrAbsent, Part
from deepstone.results.quantity import Quantity

NO_RATIO: Final = Absent("the sentence is not about one ratio")


class Statement(Part, frozen=True, kw_only=True):
    """`rank`: higher is more important. `how`: the meaning of its interval. `advice`: what to do, if that comes first."""

    text: str
    runs: list[str]
    findings: list[str]
    ratio: OrAbsent[Quantity]
    how: str
    rank: Number
    advice: str | None = None
