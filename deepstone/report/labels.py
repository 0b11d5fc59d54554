"""Where names beside points can stand without covering each other, a point, or what else is in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from deepstone.report.figure import CurvePoint, Line, LineChart, ScatterPlot
from deepstone.report.scales import Scale, share_along
from deepstone.report.wording import shortened

_GAP: Final = 5.0
_DOT: Final = 4.0
Place: TypeAlias = tuple[float, float]  # pixels from the lower left corner of the plot
_AT_MOST: Final = 60
_ROOM: Final = 30  # letters
_WHISKER_PX: Final = 3.0
_LINE_PIECES: Final = 40
_LINE_PX: Final = 2.0
_REACH: Final = 3  # lines of text above or below


@dataclass(frozen=True, slots=True)
class Box:
    """In pixels, y upwards or downwards as the caller likes."""

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


@dataclass(frozen=True, slots=True)
class Anchor:
    """The corner or edge of a box that a text is pinned to, so that it keeps off its point though it be wider."""

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
    """A box for each of the first points that has a size, in order of importance; None for those without room.

    `reach` is how many heights further above or below a box may stand where there is no room beside the point.
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
    """Right, left, above, below, then the corners, then these further off."""
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


def line_names(plane: ScatterPlot, x: Scale) -> list[LineName]:
    names: list[LineName] = []
    for line in plane.lines:
        level = line.points[0][1] == line.points[-1][1]
        slanted = sum(name.lines_up > 0 for name in names)
        right = level or share_along(x, line.points[-1][0], log=plane.x.log) > 0.5
        names.append(LineName(line=line, side="right" if right else "left", lines_up=0 if level else slanted + 1))
    return names


@dataclass(frozen=True, slots=True)
class PointName:
    """`pin` is where its text is held; `led` says that a line should lead to it."""

    point: CurvePoint
    place: Place
    pin: Anchor
    led: bool

    @property
    def label(self) -> str:
        return _label(self.point)

    @property
    def text(self) -> str:
        """With the mark of a doubt."""
        return _text(self.point)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """Of the plot and of letters in it, in pixels."""

    width: float
    height: float
    letter: float
    line: float


def point_names(curves: LineChart, x: Scale, y: Scale, sizes: Sizes) -> Iterator[PointName]:
    """Of all points that have one and find room for it, from left to right."""

    def placed(at_x: float, at_y: float) -> Place:
        along = share_along(x, at_x, log=curves.x.log), share_along(y, max(at_y, y.low), log=curves.y.log)
        return along[0] * sizes.width, along[1] * sizes.height

    points = [point for curve in curves.curves for point in curve.points if point.label]
    points.sort(key=lambda point: (point.x, -point.y.middle, point.label))
    places = [placed(point.x, point.y.middle) for point in points]
    room = [(len(_text(point)) * sizes.letter, sizes.line) for point in points][:_AT_MOST]
    bounds = Box(0, 0, sizes.width, sizes.height)
    whiskers = [_whisker(point, placed) for point in points]
    joined = [box for curve in curves.curves for box in _along(_joined(curve.points), placed)]
    spots = label_spots(places, room, bounds=bounds, taken=[*whiskers, *joined], reach=_REACH)
    taken = [spot for spot in spots if spot is not None]
    for point, place, size, spot in zip(points, places, room, spots, strict=False):
        found = spot
        # Where lines, then whiskers cannot be kept off, the name stands on them rather than nowhere.
        for in_the_way in (whiskers, ()):
            if found is None:
                others = [*in_the_way, *taken]
                (found,) = label_spots([place, *places], [size], bounds=bounds, taken=others, reach=_REACH)
                taken += [] if found is None else [found]
        if found is not None:
            yield PointName(point, place, anchor(found, place[0]), _is_far(found, place))


def _label(point: CurvePoint) -> str:
    return shortened(point.label, _ROOM)


def _text(point: CurvePoint) -> str:
    return f"{_label(point)} †" if point.doubtful else _label(point)


def _is_far(box: Box, place: Place) -> bool:
    away_x = max(box.left - place[0], place[0] - box.right, 0.0)
    away_y = max(box.low - place[1], place[1] - box.high, 0.0)
    return max(away_x, away_y) > 1.5 * (box.high - box.low) / 2


def _whisker(point: CurvePoint, placed: Callable[[float, float], Place]) -> Box:
    low = point.y.middle if point.y.low is None else point.y.low
    high = point.y.middle if point.y.high is None else point.y.high
    (x, bottom), (_, top) = placed(point.x, low), placed(point.x, high)
    return Box(x - _WHISKER_PX, bottom, x + _WHISKER_PX, top)


def _joined(points: tuple[CurvePoint, ...]) -> list[CurvePoint]:
    return [point for point in points if not point.apart]


def _along(points: list[CurvePoint], placed: Callable[[float, float], Place]) -> Iterator[Box]:
    """Small boxes along the lines between points, but for their ends, which belong to the points."""
    for one, other in pairwise(points):
        (left, low), (right, high) = placed(one.x, one.y.middle), placed(other.x, other.y.middle)
        for piece in range(2, _LINE_PIECES - 1):
            share = piece / _LINE_PIECES
            x, y = left + share * (right - left), low + share * (high - low)
            yield Box(x - _LINE_PX, y - _LINE_PX, x + _LINE_PX, y + _LINE_PX)
