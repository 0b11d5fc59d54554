"""One point of a figure, or the gap where it would be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deepstone.absent import Absent
from deepstone.measure.statistics import Quantity


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """`y` is absent in a gap, with the reason. `label` stands beside the point; `apart`: no line of its series leads
    through it. `panel` is the name of its part of the figure, where that has several."""

    series: str
    x: str | int
    y: Quantity | Absent
    runs: Sequence[str]
    doubts: Sequence[str]
    label: str = ""
    apart: bool = False
    panel: str = ""

    def point(self) -> dict[str, Any]:
        told: dict[str, Any] = {"label": self.label} if self.label else {}
        told |= {"apart": True} if self.apart else {}
        return {"x": self.x, "y": self.y.to_json(), "runs": list(self.runs), "doubts": list(self.doubts), **told}

    def gap(self, why: str) -> dict[str, Any]:
        told = {"panel": self.panel} if self.panel else {}
        return {"series": self.series, "x": self.x, "why": f"{self.label}: {why}" if self.label else why, **told}
