"""A sheet of paper to draw on: places are inches from its upper left corner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

INK: Final = "#1B1F24"
FAINT_INK: Final = "#57606A"
GRID: Final = "#D8DCE1"
LETTER: Final = 0.6 / 72  # inches per point of size that a letter of DejaVu Sans takes on average
LEGEND_SIZE: Final = 8.0
LEGEND_LINE_IN: Final = 0.2
_SWATCH_IN: Final = 0.14


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """Of a legend. A frame without a filling stands for marked cells; a marker for points, on a line or not."""

    name: str
    colour: str
    frame: bool = False
    marker: str = ""
    hollow: bool = False
    hatched: bool = False
    line: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sheet:
    width_in: float
    height_in: float
    canvas: Canvas

    @staticmethod
    def new(width_in: float, height_in: float) -> Sheet:
        canvas = Canvas(figsize=(width_in, height_in), facecolor="white")
        return Sheet(width_in=width_in, height_in=height_in, canvas=canvas)

    def text(
        self, left_in: float, top_in: float, words: str, *, size: float = 8, color: str = INK, **style: Any
    ) -> None:
        self.canvas.text(
            left_in / self.width_in,
            1 - top_in / self.height_in,
            words,
            fontsize=size,
            va="top",
            ha="left",
            color=color,
            **style,
        )

    def axes(self, left_in: float, top_in: float, width_in: float, height_in: float) -> Axes:
        box = (
            left_in / self.width_in,
            1 - (top_in + height_in) / self.height_in,
            width_in / self.width_in,
            height_in / self.height_in,
        )
        return self.canvas.add_axes(box)

    def patch(self, left_in: float, top_in: float, width_in: float, height_in: float, **style: Any) -> None:
        corner = (left_in / self.width_in, 1 - (top_in + height_in) / self.height_in)
        size = (width_in / self.width_in, height_in / self.height_in)
        self.canvas.add_artist(Rectangle(corner, *size, transform=self.canvas.transFigure, **style))


def legend_lines(entries: Sequence[Entry], width_in: float) -> list[list[Entry]]:
    """As many entries in a line as fit."""
    lines: list[list[Entry]] = [[]]
    used = 0.0
    for entry in entries:
        needed = _entry_in(entry)
        if lines[-1] and used + needed > width_in:
            lines.append([])
            used = 0.0
        lines[-1].append(entry)
        used += needed
    return lines


def draw_legend(sheet: Sheet, left_in: float, top_in: float, lines: Sequence[Sequence[Entry]]) -> None:
    for number, line in enumerate(lines):
        left, top = left_in, top_in + number * LEGEND_LINE_IN
        for entry in line:
            _draw_swatch(sheet, left, top, entry)
            sheet.text(left + _SWATCH_IN + 0.07, top + 0.01, entry.name, size=LEGEND_SIZE)
            left += _entry_in(entry)


def _draw_swatch(sheet: Sheet, left_in: float, top_in: float, entry: Entry) -> None:
    if entry.marker:
        axes = sheet.axes(left_in, top_in, _SWATCH_IN, _SWATCH_IN)
        axes.set_axis_off()
        if entry.line:
            axes.plot([-1, 1], [0, 0], entry.line, color=entry.colour, linewidth=1.5)
        filling = "white" if entry.hollow else entry.colour
        axes.plot([0], [0], entry.marker, color=entry.colour, markerfacecolor=filling, markersize=6)
    elif entry.frame:
        sheet.patch(left_in, top_in, _SWATCH_IN, _SWATCH_IN, facecolor="none", edgecolor=entry.colour, linewidth=1.8)
    elif entry.hatched:
        style = {"facecolor": "white", "edgecolor": entry.colour, "hatch": "/////", "linewidth": 1.0}
        sheet.patch(left_in, top_in, _SWATCH_IN, _SWATCH_IN, **style)
    else:
        sheet.patch(left_in, top_in, _SWATCH_IN, _SWATCH_IN, facecolor=entry.colour, edgecolor="none")


def _entry_in(entry: Entry) -> float:
    return _SWATCH_IN + 0.07 + len(entry.name) * LEGEND_SIZE * LETTER + 0.2
