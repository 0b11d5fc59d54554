"""One run: the time of its phases, and every timing sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from deepstone.absent import Absent
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.figures.captions import record_figure
from deepstone.report.palette import hue
from deepstone.report.panels import (
    Axis,
    BarChart,
    BarLabel,
    BarRow,
    Line,
    Point,
    PointGroup,
    ScatterPlot,
    Segment,
    Series,
)
from deepstone.report.table import Table, Unit, Value, name_columns, number_columns, value_of
from deepstone.report.wording import SHOWN
from deepstone.results.quantity import Quantity
from deepstone.results.record import Launch, Record, Summary
from deepstone.units import digits

_MOST_POINTS: Final = 600  # of a launch; more would overlap


def run(record: Record) -> Figure:
    """Make the figure of a run. Raises NothingToDrawError if the run measured nothing."""
    summary = record.summary
    if isinstance(summary, Absent):
        why = "" if isinstance(record.failure, Absent) else f": {record.failure.reason}"
        raise NothingToDrawError(f"nothing was measured; {record.outcome}{why}")
    parts = list(_parts(record, summary))
    speed = summary.units_per_s or summary.samples_per_s
    return record_figure(
        record,
        "run",
        "one run, its phases and its timing samples",
        about=f"{digits(speed.median)} {record.workload.things}/s, {speed.interval_in_words(digits)}",
        panels=(_bars(parts), _samples(record, summary)),
        caption=(
            f"The interval is {summary.interval}; measuring ended because: {summary.stopped}.",
            "The lower panel has the samples of each launch in their order, warm-up included; the line is the median.",
        ),
        table=Table(
            columns=(*name_columns("part of a step"), *number_columns(Unit.SECONDS, "time")),
            rows=tuple((name, value_of(taken)) for name, taken in parts),
            runs=tuple((record.id,) for _ in parts),
        ),
    )


def _parts(record: Record, summary: Summary) -> Iterator[tuple[str, Quantity | Absent]]:
    yield "step", summary.step_s
    if not isinstance(record.phases, Absent):
        yield from record.phases.items()


def _bars(parts: list[tuple[str, Quantity | Absent]]) -> BarChart:
    rows: list[BarRow] = []
    for at, (name, taken) in enumerate(parts):
        value = value_of(taken)
        if isinstance(value, Absent):
            label = BarLabel(text=value.reason, details=("no number", value.reason), gap=True)
            rows.append(BarRow(label=name, bars=((),), bar_labels=(label,)))
        else:
            segment = Segment(series=min(at, 1), value=value)
            rows.append(
                BarRow(label=name, bars=((segment,),), bar_labels=(BarLabel(text=SHOWN[Unit.SECONDS](value.middle)),))
            )
    series = tuple(Series(name=name, colour=hue(at)) for at, name in enumerate(("step", "phase of a step")))
    return BarChart(
        title="A step and its phases", axis=Axis(label="time", unit=Unit.SECONDS), series=series, rows=tuple(rows)
    )


def _samples(record: Record, summary: Summary) -> ScatterPlot:
    groups = tuple(
        PointGroup(series=Series(name=f"launch {at + 1}", colour=hue(at)), points=_points(launch))
        for at, launch in enumerate(record.samples.launches)
    )
    last = max((point.x for group in groups for point in group.points), default=1.0)
    middle = summary.step_s.median
    return ScatterPlot(
        title="Timing samples",
        x=Axis(label="sample", unit=Unit.NUMBER),
        y=Axis(label="time of a step", unit=Unit.SECONDS),
        lines=(Line(label="median", points=((0.0, middle), (last, middle))),),
        groups=groups,
    )


def _points(launch: Launch) -> tuple[Point, ...]:
    """Return the points of the first rank. It represents all, because they run at the same time."""
    taken = [step_s for block in launch.blocks for step_s in block.step_s]
    every = max(1, -(-len(taken) // _MOST_POINTS))
    return tuple(Point(x=float(at), y=Value(middle=taken[at])) for at in range(0, len(taken), every))
