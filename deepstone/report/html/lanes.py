"""Lanes along time for the page."""

from __future__ import annotations

import math
from typing import Final

from deepstone.report.html.plot import (
    LABEL_ROOM,
    NARROW_LABEL_ROOM,
    ROWS_MARGIN,
    Box,
    Drawing,
    Mark,
    Plot,
    Ruler,
    Texts,
    Whisker,
    keys,
    labels,
    lines,
    ruler,
)
from deepstone.report.lane_places import (
    FILLED,
    PlacedSpan,
    height_in_tracks,
    lane_middles,
    lanes_scale,
    placed_spans,
)
from deepstone.report.legend import used_series
from deepstone.report.panels import LaneChart
from deepstone.report.wording import wrapped_name

_TRACK_PX: Final = 20
_TWO_LINES_PX: Final = 34


def lanes_plot(chart: LaneChart) -> Plot:
    placed, tracks = placed_spans(chart), height_in_tracks(chart)
    used = used_series(chart)
    names = [lane.label for lane in chart.lanes]
    narrow = _narrow_labels(chart)
    track_px = _TWO_LINES_PX if any(len(label) > 1 for label in narrow) else _TRACK_PX
    return Plot(
        title=chart.title,
        keys=keys(chart, lambda place: (place,)),
        drawing=Drawing(
            groups=tuple(
                tuple(mark for each in placed if each.span.series == at for mark in _marks(chart, each)) for at in used
            ),
            x=ruler(lanes_scale(chart)),
            y=Ruler(low=tracks, high=0.0, at=tuple(lane_middles(chart)), grid=False, line=True),
            margin=ROWS_MARGIN,
            height_px=math.ceil(tracks * track_px) + ROWS_MARGIN.height_px,
            labels=labels(names, LABEL_ROOM),
            narrow_labels=narrow,
        ),
    )


def _narrow_labels(chart: LaneChart) -> tuple[Texts, ...]:
    """On two lines, as `framework=tensorflow, 1.31x` needs; on one where lanes have tracks of their own."""
    names = [lane.label for lane in chart.lanes]
    if any(len(lane.tracks) > 1 for lane in chart.lanes):
        return labels(names, NARROW_LABEL_ROOM)
    return tuple(lines(*wrapped_name(name, NARROW_LABEL_ROOM, 2)) for name in names)


def _marks(chart: LaneChart, placed: PlacedSpan) -> tuple[Mark, ...]:
    whisker = placed.span.whisker
    lying = () if whisker is None else (Whisker(at=placed.middle, low=whisker[0], high=whisker[1]),)
    return (_box(chart, placed), *lying)


def _box(chart: LaneChart, placed: PlacedSpan) -> Box:
    span, series = placed.span, chart.series[placed.span.series]
    return Box(
        x0=span.start,
        x1=span.end,
        y0=placed.middle - FILLED / 2,
        y1=placed.middle + FILLED / 2,
        colour=series.colour,
        style="hatched" if series.published else "filled",
        told=lines(chart.lanes[placed.lane].label, *span.details),
    )
