"""Positions of spans in lanes, for both renderers: tracks count downwards from 0, with a gap between lanes."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from deepstone.report.panels import LaneChart, TimeSpan
from deepstone.report.scales import Scale, axis_scale

BETWEEN_LANES: Final = 0.5  # of a track
FILLED: Final = 0.82  # share of a track's height for its spans


class PlacedSpan(Struct, frozen=True, kw_only=True):
    """`middle` is its height in tracks; `lane` the number of its lane."""

    span: TimeSpan
    lane: int
    middle: float


def placed_spans(chart: LaneChart) -> list[PlacedSpan]:
    found: list[PlacedSpan] = []
    for lane, top in enumerate(_tops(chart)):
        for number, track in enumerate(chart.lanes[lane].tracks):
            found += [PlacedSpan(span=span, lane=lane, middle=top + number + 0.5) for span in track]
    return found


def lane_middles(chart: LaneChart) -> list[float]:
    return [top + len(lane.tracks) / 2 for top, lane in zip(_tops(chart), chart.lanes, strict=True)]


def height_in_tracks(chart: LaneChart) -> float:
    return sum(len(lane.tracks) + BETWEEN_LANES for lane in chart.lanes)


def lanes_scale(chart: LaneChart) -> Scale:
    spans = [span for lane in chart.lanes for track in lane.tracks for span in track]
    ends = [end for span in spans for end in (span.start, span.end, *(span.whisker or ()))]
    return axis_scale(chart.axis, ends)


def _tops(chart: LaneChart) -> list[float]:
    tops, top = list[float](), BETWEEN_LANES / 2
    for lane in chart.lanes:
        tops.append(top)
        top += len(lane.tracks) + BETWEEN_LANES
    return tops
