"""Where the names of lines stand: above the end of a level line, and one over another above where slanted ones end."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Literal

from deepstone.report.figure import Axis, Line, Plane
from deepstone.report.scales import Scale


@dataclass(frozen=True, kw_only=True, slots=True)
class LineName:
    """`lines_up` is how many lines of text it stands above its place."""

    line: Line
    side: Literal["left", "right"]
    lines_up: int

    @property
    def x(self) -> float:
        return self.line.points[-1][0]

    @property
    def y(self) -> float:
        return self.line.points[-1][1]


def line_names(plane: Plane, x: Scale) -> list[LineName]:
    names: list[LineName] = []
    for line in plane.lines:
        level = line.points[0][1] == line.points[-1][1]
        slanted = sum(name.lines_up > 0 for name in names)
        right = level or _share(plane.x, x, line.points[-1][0]) > 0.5
        names.append(LineName(line=line, side="right" if right else "left", lines_up=0 if level else slanted + 1))
    return names


def _share(axis: Axis, scale: Scale, value: float) -> float:
    """How far along its axis a value lies, from 0 to 1."""
    if not axis.log:
        return (value - scale.low) / (scale.high - scale.low)
    return log(value / scale.low) / log(scale.high / scale.low)
