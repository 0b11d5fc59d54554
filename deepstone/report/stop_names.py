"""Where the names of stops stand, for both drawers: off points, whiskers and each other, and off lines if that can be.

A name that finds no room beside its stop stands a little further off, and a thin line leads to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

from deepstone.report.figure import Curves, Stop
from deepstone.report.label_spots import Anchor, Box, anchor, label_spots
from deepstone.report.scales import Scale, share_along
from deepstone.report.wording import shortened

Place: TypeAlias = tuple[float, float]  # pixels from the lower left corner of the plot

_AT_MOST: Final = 60
_ROOM: Final = 30  # letters
_WHISKER_PX: Final = 3.0
_LINE_PIECES: Final = 40
_LINE_PX: Final = 2.0
_REACH: Final = 3  # lines of text above or below


@dataclass(frozen=True, slots=True)
class StopName:
    """`pin` is where its text is held; `led` says that a line should lead to it."""

    stop: Stop
    place: Place
    pin: Anchor
    led: bool

    @property
    def label(self) -> str:
        return _label(self.stop)

    @property
    def text(self) -> str:
        """With the mark of a doubt."""
        return _text(self.stop)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """Of the plot and of letters in it, in pixels."""

    width: float
    height: float
    letter: float
    line: float


def stop_names(curves: Curves, x: Scale, y: Scale, sizes: Sizes) -> Iterator[StopName]:
    """Of all stops that have one and find room for it, from left to right."""

    def placed(at_x: float, at_y: float) -> Place:
        along = share_along(x, at_x, log=curves.x.log), share_along(y, max(at_y, y.low), log=curves.y.log)
        return along[0] * sizes.width, along[1] * sizes.height

    stops = [stop for curve in curves.curves for stop in curve.stops if stop.label]
    stops.sort(key=lambda stop: (stop.x, -stop.y.middle, stop.label))
    places = [placed(stop.x, stop.y.middle) for stop in stops]
    room = [(len(_text(stop)) * sizes.letter, sizes.line) for stop in stops][:_AT_MOST]
    bounds = Box(0, 0, sizes.width, sizes.height)
    whiskers = [_whisker(stop, placed) for stop in stops]
    joined = [box for curve in curves.curves for box in _along(_joined(curve.stops), placed)]
    spots = label_spots(places, room, bounds=bounds, taken=[*whiskers, *joined], reach=_REACH)
    taken = [spot for spot in spots if spot is not None]
    for stop, place, size, spot in zip(stops, places, room, spots, strict=False):
        found = spot
        # Where lines, then whiskers cannot be kept off, the name stands on them rather than nowhere.
        for in_the_way in (whiskers, ()):
            if found is None:
                others = [*in_the_way, *taken]
                (found,) = label_spots([place, *places], [size], bounds=bounds, taken=others, reach=_REACH)
                taken += [] if found is None else [found]
        if found is not None:
            yield StopName(stop, place, anchor(found, place[0]), _is_far(found, place))


def _label(stop: Stop) -> str:
    return shortened(stop.label, _ROOM)


def _text(stop: Stop) -> str:
    return f"{_label(stop)} †" if stop.doubtful else _label(stop)


def _is_far(box: Box, place: Place) -> bool:
    away_x = max(box.left - place[0], place[0] - box.right, 0.0)
    away_y = max(box.low - place[1], place[1] - box.high, 0.0)
    return max(away_x, away_y) > 1.5 * (box.high - box.low) / 2


def _whisker(stop: Stop, placed: Callable[[float, float], Place]) -> Box:
    low = stop.y.middle if stop.y.low is None else stop.y.low
    high = stop.y.middle if stop.y.high is None else stop.y.high
    (x, bottom), (_, top) = placed(stop.x, low), placed(stop.x, high)
    return Box(x - _WHISKER_PX, bottom, x + _WHISKER_PX, top)


def _joined(stops: tuple[Stop, ...]) -> list[Stop]:
    return [stop for stop in stops if not stop.apart]


def _along(stops: list[Stop], placed: Callable[[float, float], Place]) -> Iterator[Box]:
    """Small boxes along the lines between stops, but for their ends, which belong to the stops."""
    for one, other in pairwise(stops):
        (left, low), (right, high) = placed(one.x, one.y.middle), placed(other.x, other.y.middle)
        for piece in range(2, _LINE_PIECES - 1):
            share = piece / _LINE_PIECES
            x, y = left + share * (right - left), low + share * (high - low)
            yield Box(x - _LINE_PX, y - _LINE_PX, x + _LINE_PX, y + _LINE_PX)
