"""Turns a figure of a paper into a chart: the points that its builder collects, and the paper's own numbers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import field

from deepstone.papers.evidence import Evidence
from deepstone.papers.paper import Figure, OnModel, OnModels, PublishedSeries
from deepstone.results.chart import (
    Chart,
    ChartAxis,
    ChartForm,
    ChartGap,
    ChartPoint,
    ChartScale,
    ChartSeries,
    new_chart,
)
from deepstone.results.quantity import Quantity


class ChartDraft(msgspec.Struct, kw_only=True):
    """A chart under construction: series of points with intervals, gaps with reasons."""

    form: ChartForm
    x: ChartAxis
    y: ChartAxis
    subtitle: str = ""
    series: dict[str, list[ChartPoint]] = field(default_factory=dict[str, list[ChartPoint]])
    gaps: list[ChartGap] = field(default_factory=list[ChartGap])
    commands: list[str] = field(default_factory=list[str])

    def point(
        self, series: str, x: str | int, y: Quantity | float, *, runs: Sequence[str] = (), doubts: Sequence[str] = ()
    ) -> None:
        self.series.setdefault(series, []).append(ChartPoint(x=x, y=y, runs=list(runs), doubts=list(doubts)))

    def gap(self, series: str, x: str | int, why: str) -> None:
        self.gaps.append(ChartGap(series=series, x=x, why=why))

    def chart(self, figure: Figure) -> Chart:
        """Return the chart with the paper's own numbers as further series."""
        measured = [ChartSeries(name=name, published=False, points=points) for name, points in self.series.items()]
        return new_chart(
            name=figure.name,
            title=figure.title,
            subtitle=self.subtitle,
            form=self.form,
            x=self.x,
            y=self.y,
            series=[*measured, *map(_published_series, figure.published)],
            gaps=[*self.gaps, *(gap for each in figure.published for gap in each.gaps)],
            caption=list(figure.caption),
            commands=list(dict.fromkeys(self.commands)),
        )


class FigureBuilder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Builds a figure in the form of the paper. Its fields are the parameters in the figure's entry."""

    @property
    def networks(self) -> Sequence[str]:
        """Return the networks whose runs the figure may show."""
        return ()

    def chart(self, evidence: Evidence) -> ChartDraft:
        raise NotImplementedError


class OneNetwork(OnModel, FigureBuilder, frozen=True, kw_only=True):
    pass


class SomeNetworks(OnModels, FigureBuilder, frozen=True, kw_only=True):
    pass


def _published_series(given: PublishedSeries) -> ChartSeries:
    points = [ChartPoint(x=x, y=y, runs=[], doubts=[]) for x, y in zip(given.x, given.y, strict=True)]
    return ChartSeries(name=f"{given.name} (published)", published=True, points=points)


def time_scale(places: int) -> ChartScale:
    """Return a linear scale as in the papers; several places need a logarithmic one."""
    return "log" if places > 1 else "linear"


def named(what: str, place: str, several: bool) -> str:
    """Name a series; with several machines, the name includes the machine."""
    return f"{what}, {place}" if several else what
