"""Places labels beside points so that they cover neither each other nor points nor other obstacles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from deepstone.report.panels import Line, LineChart, Point, ScatterPlot, Series
from deepstone.report.scales import Scale
from deepstone.report.wording import shortened

Place: TypeAlias = tuple[float, float]  # pixels from the lower left corner of the plot
Scales: TypeAlias = tuple[Scale, Scale]  # across and up

_GAP: Final = 5.0
_DOT: Final = 4.0
_AT_MOST: Final = 60
_ROOM: Final = 30  # letters
_WHISKER_PX: Final = 3.0
_LINE_PIECES: Final = 40
_LINE_PX: Final = 2.0
_REACH: Final = 3  # lines of text above or below


class Box(Struct, frozen=True):
    """A box in pixels; y points upwards or downwards, as the caller defines."""

    left: float
    low: float
    right: float
    high: float

    def touches(self, other: Box) -> bool:
        return self.left < other.right and other.left < self.right and self.low < other.high and other.low < self.high

    def within(self, other: Box) -> bool:
        return (
            self.left >= other.left and self.right <= other.right and self.low >= other.low and self.high <= other.high
        )


class Anchor(Struct, frozen=True):
    """The corner or edge at which a text is anchored, so that wider text does not reach its point."""

    side: Literal["left", "center", "right"]
    x: float
    low: float


def anchor(box: Box, point_x: float) -> Anchor:
    if box.left >= point_x:
        return Anchor("left", box.left, box.low)
    if box.right <= point_x:
        return Anchor("right", box.right, box.low)
    return Anchor("center", (box.left + box.right) / 2, box.low)


def label_spots(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    *,
    bounds: Box,
    taken: Sequence[Box] = (),
    reach: int = 0,
) -> list[Box | None]:
    """Return a box for each of the first points that has a size, in order of importance; None if there is no room.

    `reach` is how many heights above or below the point a box may lie if there is no room beside it.
    """
    in_the_way = [*taken, *(Box(x - _DOT, y - _DOT, x + _DOT, y + _DOT) for x, y in points)]
    spots: list[Box | None] = []
    for point, size in zip(points, sizes, strict=False):
        fitting = (box for box in _candidates(point, size, reach) if box.within(bounds))
        spot = next((box for box in fitting if not any(box.touches(other) for other in in_the_way)), None)
        spots.append(spot)
        in_the_way += [spot] if spot else []
    return spots


def _candidates(point: tuple[float, float], size: tuple[float, float], reach: int) -> list[Box]:
    """Yield positions: right, left, above, below, the corners, then the same further away."""
    (x, y), (width, height) = point, size
    corners = [
        (x + _GAP, y - height / 2),
        (x - _GAP - width, y - height / 2),
        (x - width / 2, y + _GAP),
        (x - width / 2, y - _GAP - height),
        (x + _GAP, y + _GAP),
        (x + _GAP, y - _GAP - height),
        (x - _GAP - width, y + _GAP),
        (x - _GAP - width, y - _GAP - height),
    ]
    for away in (line * height for line in range(1, reach + 1)):
        corners += [
            (left, y + _GAP + away if up else y - _GAP - height - away)
            for up in (True, False)
            for left in (x + _GAP, x - width / 2, x - _GAP - width)
        ]
    return [Box(left, low, left + width, low + height) for left, low in corners]


class Sizes(Struct, frozen=True, kw_only=True):
    """The sizes of the plot and of its letters, in pixels."""

    width: float
    height: float
    letter: float
    line: float

    def placed(self, scales: Scales, x: float, y: float) -> Place:
        """Return the position in pixels; values below the vertical axis are placed at its lower end."""
        across, up = scales
        return across.share_along(x) * self.width, up.share_along(max(y, up.low)) * self.height


class LineName(Struct, frozen=True, kw_only=True):
    """The name of a line, `lines_up` lines of text above its place."""

    line: Line
    side: Literal["left", "right"]
    lines_up: int

    @property
    def end(self) -> tuple[float, float]:
        return self.line.points[-1]

    def box(self, scales: Scales, sizes: Sizes) -> Box:
        x, y = sizes.placed(scales, *self.end)
        width, low = len(self.line.label) * sizes.letter, y + self.lines_up * sizes.line
        left = x - width if self.side == "right" else x
        return Box(left, low, left + width, low + sizes.line)


def line_names(plane: ScatterPlot, x: Scale) -> list[LineName]:
    names: list[LineName] = []
    for line in plane.lines:
        level = line.points[0][1] == line.points[-1][1]
        slanted = sum(name.lines_up > 0 for name in names)
        right = level or x.share_along(line.points[-1][0]) > 0.5
        names.append(LineName(line=line, side="right" if right else "left", lines_up=0 if level else slanted + 1))
    return names


class PointName(Struct, frozen=True):
    """The name of a point. `pin` is the anchor of its text; `led` asks for a line from the point to it."""

    point: Point
    series: Series
    place: Place
    pin: Anchor
    led: bool

    @property
    def label(self) -> str:
        return shortened(self.point.label, _ROOM)

    @property
    def text(self) -> str:
        """Return the name, with the sign for a doubt."""
        return _text(self.point)

    @property
    def shift(self) -> Place:
        """Return the offset from the point to the anchor of its text."""
        return self.pin.x - self.place[0], self.pin.low - self.place[1]


def scatter_names(plane: ScatterPlot, scales: Scales, sizes: Sizes) -> list[PointName]:
    """Return names for as many points as there is room for, the most important first."""
    pairs = [(point, group.series) for group in plane.groups for point in group.points]
    pairs.sort(key=lambda pair: (-pair[0].weight, pair[0].label))
    places = [sizes.placed(scales, point.x, point.y.middle) for point, _ in pairs]
    taken = [name.box(scales, sizes) for name in line_names(plane, scales[0])]
    spots = label_spots(places, _room(pairs, sizes), bounds=Box(0, 0, sizes.width, sizes.height), taken=taken)
    found = zip(pairs, places, spots, strict=False)
    return [PointName(*pair, place, anchor(spot, place[0]), False) for pair, place, spot in found if spot]


def point_names(curves: LineChart, scales: Scales, sizes: Sizes) -> Iterator[PointName]:
    """Return the names of all points that have one and find room, from left to right."""
    pairs = [(point, curve.series) for curve in curves.curves for point in curve.points if point.label]
    pairs.sort(key=lambda pair: (pair[0].x, -pair[0].y.middle, pair[0].label))
    places = [sizes.placed(scales, point.x, point.y.middle) for point, _ in pairs]
    room = _room(pairs, sizes)
    bounds = Box(0, 0, sizes.width, sizes.height)
    whiskers = [_whisker(point, scales, sizes) for point, _ in pairs]
    joined = [box for curve in curves.curves for box in _along(curve.points, scales, sizes)]
    spots = label_spots(places, room, bounds=bounds, taken=[*whiskers, *joined], reach=_REACH)
    taken = [spot for spot in spots if spot is not None]
    for pair, place, size, spot in zip(pairs, places, room, spots, strict=False):
        found = spot
        # If lines, then whiskers, cannot be avoided, the name covers them: better than no name.
        for in_the_way in (whiskers, ()):
            if found is None:
                others = [*in_the_way, *taken]
                (found,) = label_spots([place, *places], [size], bounds=bounds, taken=others, reach=_REACH)
                taken += [] if found is None else [found]
        if found is not None:
            yield PointName(*pair, place, anchor(found, place[0]), _is_far(found, place))


def _room(pairs: Sequence[tuple[Point, Series]], sizes: Sizes) -> list[tuple[float, float]]:
    return [(len(_text(point)) * sizes.letter, sizes.line) for point, _ in pairs[:_AT_MOST]]


def _text(point: Point) -> str:
    label = shortened(point.label, _ROOM)
    return f"{label} †" if point.doubtful else label


def _is_far(box: Box, place: Place) -> bool:
    away_x = max(box.left - place[0], place[0] - box.right, 0.0)
    away_y = max(box.low - place[1], place[1] - box.high, 0.0)
    return max(away_x, away_y) > 1.5 * (box.high - box.low) / 2


def _whisker(point: Point, scales: Scales, sizes: Sizes) -> Box:
    low = point.y.middle if point.y.low is None else point.y.low
    high = point.y.middle if point.y.high is None else point.y.high
    (x, bottom), (_, top) = sizes.placed(scales, point.x, low), sizes.placed(scales, point.x, high)
    return Box(x - _WHISKER_PX, bottom, x + _WHISKER_PX, top)


def _along(points: Iterable[Point], scales: Scales, sizes: Sizes) -> Iterator[Box]:
    """Return small boxes along the lines between points, except at their ends, which belong to the points."""
    joined = [sizes.placed(scales, point.x, point.y.middle) for point in points if not point.apart]
    for (left, low), (right, high) in pairwise(joined):
        for piece in range(2, _LINE_PIECES - 1):
            share = piece / _LINE_PIECES
            x, y = left + share * (right - left), low + share * (high - low)
            yield Box(x - _LINE_PX, y - _LINE_PX, x + _LINE_PX, y + _LINE_PX)
