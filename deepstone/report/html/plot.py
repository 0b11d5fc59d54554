"""The data from which the page's script draws a panel: marks in the units of its axes, and parts that depend on the
width.

A mark is a shape or a text. The script turns it into SVG. It inserts texts only as text, so no name becomes markup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from deepstone.report.labels import PointName
from deepstone.report.legend import Entry, legend
from deepstone.report.panels import Panel, Series
from deepstone.report.scales import Scale
from deepstone.report.wording import shortened

Texts: TypeAlias = tuple[str, ...]  # lines, one below the other
Symbol: TypeAlias = Literal["circle", "diamond", "cross"]
Side: TypeAlias = Literal["left", "center", "right"]

LABEL_ROOM: Final = 34
NARROW_LABEL_ROOM: Final = 21  # `precision=bf16-mixed,` and `framework=tensorflow,` fit
INK: Final = "ink"  # colours by meaning, which follow the scheme of the page
FAINT: Final = "faint"
_TICK_ROOM: Final = 22


class Box(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="is", tag="box"):
    """A bar or a cell. `told` is the tooltip, here and in other marks."""

    x0: float
    x1: float
    y0: float
    y1: float
    colour: str
    style: Literal["filled", "hatched", "framed"] = "filled"
    told: Texts = ()


class Dot(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="is", tag="dot"):
    x: float
    y: float
    colour: str
    symbol: Symbol = "circle"
    hollow: bool = False
    size_px: int = 8
    told: Texts = ()

    @staticmethod
    def of(series: Series, x: float, y: float, told: Texts, *, size_px: int = 8) -> Dot:
        """Return a point of a series."""
        hollow = series.published
        return Dot(x=x, y=y, colour=series.colour, symbol=series.marker, hollow=hollow, size_px=size_px, told=told)


class Whisker(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="is", tag="whisker"):
    """An interval along the horizontal axis, or `upright` along the vertical one. `at` is its place on the other
    axis."""

    at: float
    low: float
    high: float
    colour: str = INK
    upright: bool = False


class Path(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="is", tag="path"):
    """A path from point to point; an `area` is filled and has no outline."""

    points: tuple[tuple[float, float], ...]
    colour: str
    dashed: bool = False
    area: bool = False
    width_px: float = 2.0
    told: Texts = ()


class Words(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="is", tag="words"):
    """Lines of text beside a place, or `above` it. `side` is the end of the text at that place.

    `shift` goes right and up, in pixels. `wide` needs a wide window, and is omitted elsewhere.
    """

    x: float
    y: float
    lines: Texts
    side: Side = "left"
    shift: tuple[float, float] = (0.0, 0.0)
    above: bool = False
    colour: str = FAINT
    face: Literal["plain", "bold", "italic"] = "plain"
    wide: bool = False


Mark: TypeAlias = Box | Dot | Whisker | Path | Words


class Ruler(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An axis with its range and the labels of its ticks. `letters` is the room for text behind bars beyond its end."""

    low: float
    high: float
    log: bool = False
    at: tuple[float, ...] = ()
    texts: tuple[Texts, ...] = ()
    title: str = ""
    letters: int | None = None
    grid: bool = True
    line: bool = False
    on_top: bool = False


class Margin(Struct, frozen=True, kw_only=True):
    """Margins in pixels. The left one grows with the names of rows, if there are any."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def height_px(self) -> int:
        return self.top + self.bottom


ROWS_MARGIN: Final = Margin(top=4, bottom=44, left=0, right=8)  # of rows above an axis


class Drawing(Struct, frozen=True, kw_only=True):
    """What the script draws. `labels` are left of the rows, shorter ones in a narrow window. `reference` is a line
    across."""

    groups: tuple[tuple[Mark, ...], ...]
    x: Ruler
    y: Ruler
    margin: Margin
    height_px: int
    least_px: int = 0
    labels: tuple[Texts, ...] = ()
    narrow_labels: tuple[Texts, ...] = ()
    reference: float | None = None


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """`title` and `keys`, the legend, are in the page itself. Each entry of the legend shows and hides its groups of
    marks; one without groups only explains a colour."""

    title: str
    keys: tuple[tuple[Entry, tuple[int, ...]], ...]
    drawing: Drawing


def encoded(plots: Sequence[Plot]) -> str:
    """Encode the drawings as JSON for the script."""
    return msgspec.json.encode([plot.drawing for plot in plots]).decode("utf-8")


def keys(panel: Panel, groups: Callable[[int], Iterable[int]]) -> tuple[tuple[Entry, tuple[int, ...]], ...]:
    """Return the legend. `groups` are those of an entry, by its index in the legend."""
    entries = enumerate(legend(panel))
    return tuple((entry, () if entry.series is None else tuple(groups(place))) for place, entry in entries)


def lines(*parts: str) -> Texts:
    """Return the lines that are not empty."""
    return tuple(part for part in parts if part)


def labels(names: Sequence[str], room: int) -> tuple[Texts, ...]:
    return tuple((shortened(name, room),) for name in names)


def ruler(scale: Scale, *, letters: int | None = None, grid: bool = True, line: bool = False) -> Ruler:
    return Ruler(
        low=scale.low,
        high=scale.high,
        log=scale.log,
        at=tuple(scale.ticks),
        texts=tuple((shortened(text, _TICK_ROOM),) for text in scale.ticks.values()),
        title=scale.title,
        letters=letters,
        grid=grid,
        line=line,
    )


def rows_ruler(count: int) -> Ruler:
    """Return an axis with rows from the top; their names are the labels of the plot."""
    return Ruler(low=count - 0.5, high=-0.5, at=tuple(float(at) for at in range(count)), grid=False, line=True)


def point_words(name: PointName, colour: str) -> Words:
    return Words(
        x=name.point.x,
        y=name.point.y.middle,
        lines=(name.label,),
        side=name.pin.side,
        shift=name.shift,
        above=True,
        colour=colour,
        wide=True,
    )
