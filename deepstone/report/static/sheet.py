"""A sheet to draw on, with the common parts of panels. Positions are inches from its upper left corner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypedDict

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle
from msgspec import Struct

from deepstone.report.labels import PointName, Sizes
from deepstone.report.legend import Entry, legend
from deepstone.report.panels import Marker, Panel
from deepstone.report.scales import Scale
from deepstone.report.wording import shortened, wrapped_name

INK: Final = "#1B1F24"
FAINT_INK: Final = "#57606A"
LETTER: Final = 0.6 / 72  # inches per point of size that a letter of DejaVu Sans takes on average
SIZE: Final = 8.0
NAME_SIZE: Final = 7.0
MARKERS: Final[Mapping[Marker, str]] = {"circle": "o", "diamond": "D"}
LINES: Final[Mapping[bool, str]] = {False: "-", True: "--"}  # of what was measured, and of what others published
_GRID: Final = "#D8DCE1"
_TITLE_IN: Final = 0.27
_LEGEND_LINE_IN: Final = 0.2
_SWATCH_IN: Final = 0.14
_LABEL_ROOM: Final = 40  # letters


class FillStyle(TypedDict):
    """Keyword arguments of matplotlib for a fill."""

    facecolor: str
    edgecolor: str
    hatch: str | None
    linewidth: float


class Sheet(Struct, frozen=True, kw_only=True):
    width_in: float
    height_in: float
    canvas: Canvas

    @staticmethod
    def new(width_in: float, height_in: float) -> Sheet:
        canvas = Canvas(figsize=(width_in, height_in), facecolor="white")
        return Sheet(width_in=width_in, height_in=height_in, canvas=canvas)

    def text(
        self, left_in: float, top_in: float, words: str, *, size: float = SIZE, color: str = INK, bold: bool = False
    ) -> None:
        self.canvas.text(
            left_in / self.width_in,
            1 - top_in / self.height_in,
            words,
            fontsize=size,
            va="top",
            ha="left",
            color=color,
            weight="bold" if bold else "normal",
        )

    def axes(self, left_in: float, top_in: float, width_in: float, height_in: float) -> Axes:
        box = (
            left_in / self.width_in,
            1 - (top_in + height_in) / self.height_in,
            width_in / self.width_in,
            height_in / self.height_in,
        )
        return self.canvas.add_axes(box)

    def square(self, left_in: float, top_in: float, side_in: float, style: FillStyle) -> None:
        corner = (left_in / self.width_in, 1 - (top_in + side_in) / self.height_in)
        size = (side_in / self.width_in, side_in / self.height_in)
        self.canvas.add_artist(Rectangle(corner, *size, transform=self.canvas.transFigure, **style))


def head_in(panel: Panel, width_in: float) -> float:
    """Return the height of a panel's title and legend."""
    return _TITLE_IN + len(_legend_lines(panel, width_in)) * _LEGEND_LINE_IN + 0.08


def draw_head(sheet: Sheet, panel: Panel, left_in: float, top_in: float, width_in: float) -> None:
    sheet.text(left_in, top_in, panel.title, size=10, bold=True)
    for number, line in enumerate(_legend_lines(panel, width_in)):
        left, top = left_in, top_in + _TITLE_IN + number * _LEGEND_LINE_IN
        for entry in line:
            _draw_swatch(sheet, left, top, entry)
            sheet.text(left + _SWATCH_IN + 0.07, top + 0.01, entry.name, size=SIZE)
            left += _entry_in(entry)


def _legend_lines(panel: Panel, width_in: float) -> list[list[Entry]]:
    """Return the lines of the legend, with as many entries in each as fit."""
    lines: list[list[Entry]] = [[]]
    used = 0.0
    for entry in legend(panel):
        needed = _entry_in(entry)
        if lines[-1] and used + needed > width_in:
            lines.append([])
            used = 0.0
        lines[-1].append(entry)
        used += needed
    return lines


def _draw_swatch(sheet: Sheet, left_in: float, top_in: float, entry: Entry) -> None:
    if entry.marker != "square":
        axes = sheet.axes(left_in, top_in, _SWATCH_IN, _SWATCH_IN)
        axes.set_axis_off()
        if entry.line:
            axes.plot([-1, 1], [0, 0], LINES[entry.hollow], color=entry.colour, linewidth=1.5)
        filling = "white" if entry.hollow else entry.colour
        axes.plot([0], [0], MARKERS[entry.marker], color=entry.colour, markerfacecolor=filling, markersize=6)
    elif entry.hollow and entry.series is None:
        sheet.square(left_in, top_in, _SWATCH_IN, frame_style(entry.colour))
    else:
        sheet.square(left_in, top_in, _SWATCH_IN, bar_style(entry.colour, hatched=entry.hollow))


def _entry_in(entry: Entry) -> float:
    return _SWATCH_IN + 0.07 + len(entry.name) * SIZE * LETTER + 0.2


def frame_style(colour: str) -> FillStyle:
    return {"facecolor": "none", "edgecolor": colour, "hatch": None, "linewidth": 1.8}


def bar_style(colour: str, *, hatched: bool) -> FillStyle:
    if hatched:
        return {"facecolor": "white", "edgecolor": colour, "hatch": "/////", "linewidth": 1.0}
    return {"facecolor": colour, "edgecolor": "none", "hatch": None, "linewidth": 0.0}


def draw_frame(axes: Axes, x: Scale, y: Scale, *, grid: Literal["both", "y"], room: int = 0) -> None:
    """Draw the axes of points and lines. Labels of horizontal ticks wrap if they have `room` for only so many
    letters."""
    axes.set(xscale="log" if x.log else "linear", xlim=(x.low, x.high))
    axes.set(yscale="log" if y.log else "linear", ylim=(y.low, y.high))
    across = ["\n".join(wrapped_name(text, room)) if room else text for text in x.ticks.values()]
    axes.set_xticks(list(x.ticks), labels=across, fontsize=SIZE)
    axes.set_yticks(list(y.ticks), labels=list(y.ticks.values()), fontsize=SIZE)
    axes.minorticks_off()
    axes.set_xlabel(x.title, fontsize=SIZE, color=FAINT_INK)
    axes.set_ylabel(y.title, fontsize=SIZE, color=FAINT_INK)
    axes.tick_params(axis="both", length=0, colors=FAINT_INK)
    show_frame(axes, grid, ("left", "bottom"))


def row_labels(names: Iterable[str]) -> tuple[list[str], float]:
    """Return the names beside rows, and their width in inches."""
    labels = [shortened(name, _LABEL_ROOM) for name in names]
    return labels, max((len(label) for label in labels), default=0) * SIZE * LETTER + 0.13


def show_frame(axes: Axes, grid: Literal["both", "x", "y"], sides: tuple[str, ...]) -> None:
    axes.grid(axis=grid, color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in sides)
        spine.set_color(FAINT_INK)


def name_sizes(width_in: float, height_in: float) -> Sizes:
    """Return the sizes of names in points, the unit of offsets."""
    return Sizes(width=width_in * 72, height=height_in * 72, letter=NAME_SIZE * LETTER * 72, line=NAME_SIZE * 1.25)


def draw_names(axes: Axes, names: Iterable[PointName], *, coloured: bool) -> None:
    for name in names:
        axes.annotate(
            name.text,
            (name.point.x, name.point.y.middle),
            name.shift,
            textcoords="offset points",
            fontsize=NAME_SIZE,
            color=name.series.colour if coloured else INK,
            ha=name.pin.side,
            va="bottom",
            arrowprops={"arrowstyle": "-", "color": FAINT_INK, "linewidth": 0.5} if name.led else None,
            zorder=6,
        )
