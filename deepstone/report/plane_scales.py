"""Both axes of a plane, around all its points and lines."""

from __future__ import annotations

from typing import Final

from deepstone.report.figure import Axis, Plane
from deepstone.report.scales import Scale, linear_scale, log_scale

_ROOM_ABOVE_AND_BELOW: Final = 2.0


def plane_scales(plane: Plane) -> tuple[Scale, Scale]:
    """The lines end where the horizontal axis ends, so there it needs no room."""
    points = [point for cloud in plane.clouds for point in cloud.points]
    ends = [end for line in plane.lines for end in line.points]
    xs = [*(point.x for point in points), *(x for x, _ in ends)]
    ys = [*(y for point in points for y in (point.y.low, point.y.middle, point.y.high) if y), *(y for _, y in ends)]
    return _scale(plane.x, xs, room=1.0), _scale(plane.y, ys, room=_ROOM_ABOVE_AND_BELOW)


def _scale(axis: Axis, values: list[float], *, room: float) -> Scale:
    return log_scale(axis.unit, values, room=room) if axis.log else linear_scale(axis.unit, values)
