"""The legend of a panel, for both renderers."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from deepstone.report.palette import FRAME, HEAT_KEY, NOTHING, heat
from deepstone.report.panels import BarChart, HeatMap, LaneChart, LineChart, Marker, Panel, ParallelPlot, Series


class Entry(Struct, frozen=True, kw_only=True):
    """An entry: a square for bars and cells, a marker for points; `hollow` is an outline.

    `series` is an index into the panel's series; an entry without one only explains a colour.
    """

    name: str
    colour: str
    marker: Marker | Literal["square"] = "square"
    hollow: bool = False
    line: bool = False
    series: int | None = None


def used_series(panel: Panel) -> list[int]:
    """Return the places, in the panel's list, of the series that its legend names."""
    return [entry.series for entry in legend(panel) if entry.series is not None]


def legend(panel: Panel) -> list[Entry]:
    """Return the legend; for bars, only the series that some bar has."""
    if isinstance(panel, HeatMap):
        return [
            *(Entry(name=name, colour=heat(ratio)) for ratio, name in HEAT_KEY),
            Entry(name="no time", colour=NOTHING),
            Entry(name=panel.marked_means, colour=FRAME, hollow=True),
        ]
    if isinstance(panel, BarChart):
        used = {segment.series for row in panel.rows for bar in row.bars for segment in bar}
        marked = panel.axis.log
        return [_entry(series, at, marked=marked) for at, series in enumerate(panel.series) if at in used]
    if isinstance(panel, LaneChart):
        used = {span.series for lane in panel.lanes for track in lane.tracks for span in track}
        return [_entry(series, at, marked=False) for at, series in enumerate(panel.series) if at in used]
    if isinstance(panel, ParallelPlot):
        used = [at for at, strands in enumerate(panel.strands) if strands]
        return [_entry(panel.series[at], at, marked=True, line=True) for at in used]
    groups, line = (panel.curves, True) if isinstance(panel, LineChart) else (panel.groups, False)
    return [_entry(group.series, at, marked=True, line=line) for at, group in enumerate(groups)]


def _entry(series: Series, at: int, *, marked: bool, line: bool = False) -> Entry:
    return Entry(
        name=series.name,
        colour=series.colour,
        marker=series.marker if marked else "square",
        hollow=series.published,
        line=line,
        series=at,
    )
