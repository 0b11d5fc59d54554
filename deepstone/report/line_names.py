"""Where the names of lines stand: above the end of a level line, and one over another above where slanted ones end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from deepstone.report.figure import Line, Plane
from deepstone.report.scales import Scale, share_along


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
        right = level or share_along(x, line.points[-1][0], log=plane.x.log) > 0.5
        names.append(LineName(line=line, side="right" if right else "left", lines_up=0 if level else slanted + 1))
    return names
