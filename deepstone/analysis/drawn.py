"""One point of a figure, or the gap where it would be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deepstone.absent import Absent
from deepstone.measure.statistics import Quantity


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """`y` is absent in a gap, with the reason."""

    series: str
    x: str | int
    y: Quantity | Absent
    runs: Sequence[str]
    doubts: Sequence[str]

    def point(self) -> dict[str, Any]:
        return {"x": self.x, "y": self.y.to_json(), "runs": list(self.runs), "doubts": list(self.doubts)}
