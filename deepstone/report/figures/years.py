"""Where points of one year stand, so that they do not cover each other: side by side, the same in every panel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from deepstone.report.chart_data import Chart, ChartPoint, ChartSeries
from deepstone.report.figure import Unit

_BESIDE: Final = 0.2  # years between neighbours
_WIDEST: Final = 0.7  # years that those of one year may take


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacesWithinYears:
    """`offsets` in years, by year, series and label."""

    offsets: Mapping[tuple[str | float, str, str], float]

    @property
    def shared(self) -> bool:
        """Whether any year has several."""
        return any(self.offsets.values())

    def beside_its_year(self, series: ChartSeries, point: ChartPoint) -> float:
        return self.offsets.get((point.x, series.name, point.label), 0.0)


def places_within_years(chart: Chart) -> PlacesWithinYears:
    """No place at all where the axis counts something else than years."""
    if chart.x_unit is not Unit.YEAR:
        return PlacesWithinYears(offsets={})
    by_year: dict[str | float, dict[tuple[str | float, str, str], None]] = {}
    for series in chart.series:
        for point in series.points:
            by_year.setdefault(point.x, {})[point.x, series.name, point.label] = None
    offsets: dict[tuple[str | float, str, str], float] = {}
    for several in by_year.values():
        step = min(_BESIDE, _WIDEST / max(1, len(several) - 1))
        for place, key in enumerate(several):
            offsets[key] = (place - (len(several) - 1) / 2) * step
    return PlacesWithinYears(offsets=offsets)
