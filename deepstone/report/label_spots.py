"""Where names beside points can stand without covering each other, a point, or what else is in the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

_GAP: Final = 5.0
_DOT: Final = 4.0


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
