"""Speed-up, efficiency and the parts of a step by number of processes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.report import palette
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.figures.captions import cut_whiskers, missing_whiskers
from deepstone.report.panels import Axis, BarChart, BarLabel, BarRow, LineChart, Point, PointGroup, Segment, Series
from deepstone.report.table import Table, Unit, Value, name_columns, number_columns, value_of
from deepstone.report.wording import SHOWN
from deepstone.results.quantity import Quantity
from deepstone.results.scaling import Scaling, ScalingEntry, StepParts

_SERIES: Final = {
    "data": Series(name="data", colour=palette.DATA),
    "forward": Series(name="forward", colour=palette.FORWARD),
    "backward": Series(name="backward", colour=palette.BACKWARD),
    "update": Series(name="update", colour=palette.UPDATE),
    "waiting": Series(name="waiting for others", colour=palette.WAITING),
    "communication": Series(name="exposed communication", colour=palette.REDUCTION),
}
_VISIBLE_SHARE: Final = 5e-4  # of the step; what is shorter is only in the table
_IDEAL: Final = Series(name="ideal", colour=palette.OTHER, published=True)
_KEPT: Final = {
    "strong": "Strong scaling: the batch of the job is the same at every number of processes.",
    "weak": "Weak scaling: the batch of each process is the same at every number of processes.",
}
STEPS_CAPTION: Final = (
    "Phases are those of computing, the mean over processes; waiting is the mean over processes too. Exposed "
    "communication is how much longer a step takes because gradients are exchanged. Differences below 0 are not drawn; "
    "the label has them.",
    "Lines across the ends of parts are 95 % intervals.",
)


class StepRow(Struct, frozen=True, kw_only=True):
    """A step of one number of processes. `runs` are those behind it."""

    label: str
    parts: StepParts
    runs: tuple[str, ...] = ()


def scaling(result: Scaling) -> Figure:
    """Make the figure of speed-up and efficiency."""
    if not result.points:
        raise NothingToDrawError("no number of processes was measured to the end")
    panels = (
        _panel("Speed-up", result.points, [point.speedup for point in result.points], grows=True),
        _panel("Efficiency", result.points, [point.efficiency for point in result.points], grows=False),
    )
    rounds = len(result.base.runs)
    return Figure(
        name="scaling",
        model=result.model,
        title=f"{result.mode} scaling",
        subtitle=f"over one process with {result.base.setup}; {rounds} {'round' if rounds == 1 else 'rounds'}",
        panels=panels,
        caption=(
            _KEPT[result.mode],
            "Speed-up: samples in a second over those of the one process, in the same round. Efficiency: speed-up over "
            "the number of processes.",
            *missing_whiskers(panels),
            *cut_whiskers(panels),
        ),
        table=Table(
            columns=(
                *number_columns(Unit.NUMBER, "processes", "batch"),
                *number_columns(Unit.OTHER_SAMPLES_PER_S, "speed"),
                *number_columns(Unit.NUMBER, "speed-up", "efficiency"),
                *number_columns(Unit.SECONDS, "exposed communication"),
            ),
            rows=tuple(
                (
                    point.processes,
                    point.batch,
                    value_of(point.samples_per_s),
                    value_of(point.speedup),
                    value_of(point.efficiency),
                    value_of(point.exposed_s),
                )
                for point in result.points
            ),
            runs=tuple(tuple(point.runs) for point in result.points),
        ),
        commands=(shlex.join(result.command),),
        doubts=_doubts(result.points),
    )


def _panel(name: str, entries: Sequence[ScalingEntry], values: Sequence[Quantity], *, grows: bool) -> LineChart:
    pairs = zip(entries, map(value_of, values), strict=True)
    points = [Point(x=entry.processes, y=y, doubtful=bool(entry.doubts)) for entry, y in pairs if isinstance(y, Value)]
    ideal = [Point(x=entry.processes, y=Value(middle=entry.processes if grows else 1.0)) for entry in entries]
    return LineChart(
        title=f"{name} by number of processes",
        x=Axis(label="processes", unit=Unit.NUMBER, log=True),
        y=Axis(label=name.lower(), unit=Unit.NUMBER),
        curves=(
            PointGroup(series=_IDEAL, points=tuple(ideal)),
            PointGroup(series=Series(name=name.lower(), colour=palette.BLUE), points=tuple(points)),
        ),
    )


def _doubts(entries: Sequence[ScalingEntry]) -> tuple[str, ...]:
    """Return each doubt once, with the numbers of processes that have it."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        for doubt in entry.doubts:
            found.setdefault(doubt, []).append(str(entry.processes))
    return tuple(f"{doubt} (processes: {', '.join(counts)})" for doubt, counts in found.items())


def step_by_processes(result: Scaling) -> Figure:
    """Make the figure of the parts of a step."""
    rows = [
        StepRow(label=_label(point.processes, point.batch), parts=point.step, runs=tuple(point.runs))
        for point in result.points
        if not isinstance(point.step, Absent)
    ]
    base = result.base
    if not isinstance(base.step, Absent) and all(set(base.runs) != set(point.runs) for point in result.points):
        rows.insert(0, StepRow(label=f"base: 1 process, {base.setup}", parts=base.step, runs=tuple(base.runs)))
    if not rows:
        raise NothingToDrawError("this result does not tell what a step is made of; `deepstone scale` again tells it")
    subtitle = f"{result.mode} scaling; of the round in the middle"
    commands, doubts = (shlex.join(result.command),), _doubts(result.points)
    return stacked_steps(result.model, subtitle, rows, commands=commands, doubts=doubts)


def _label(processes: int, batch: int) -> str:
    return f"{processes} {'process' if processes == 1 else 'processes'}, batch {batch}"


def stacked_steps(
    model: str, subtitle: str, rows: Sequence[StepRow], *, commands: tuple[str, ...], doubts: tuple[str, ...]
) -> Figure:
    """`rows`: from the fewest processes to the most."""
    return Figure(
        name="steps",
        model=model,
        title="a step by number of processes",
        subtitle=subtitle,
        panels=(steps_panel(rows),),
        caption=STEPS_CAPTION,
        table=Table(
            columns=(
                *name_columns("processes"),
                *number_columns(Unit.SECONDS, "step", *(series.name for series in _SERIES.values())),
            ),
            rows=tuple(
                (row.label, value_of(row.parts.step_s), *(value_of(part) for _, part in row.parts.items()))
                for row in rows
            ),
            runs=tuple(row.runs for row in rows),
        ),
        commands=commands,
        doubts=doubts,
    )


def steps_panel(rows: Sequence[StepRow]) -> BarChart:
    return BarChart(
        title="What a step is made of",
        axis=Axis(label="time of a step", unit=Unit.SECONDS),
        series=tuple(_SERIES.values()),
        rows=tuple(_row(row) for row in rows),
    )


def _row(row: StepRow) -> BarRow:
    segments: list[Segment] = []
    below: list[str] = []
    places = {name: place for place, name in enumerate(_SERIES)}
    for name, quantity in row.parts.items():
        value = value_of(quantity)
        if isinstance(value, Absent) or abs(value.middle) < _VISIBLE_SHARE * row.parts.step_s.median:
            continue
        if value.middle > 0:
            segments.append(Segment(series=places[name], value=value))
        else:
            below.append(f"{_SERIES[name].name} {SHOWN[Unit.SECONDS](value.middle)}")
    step = SHOWN[Unit.SECONDS](row.parts.step_s.median)
    return BarRow(
        label=row.label, bars=(tuple(segments),), bar_labels=(BarLabel(text="; ".join([f"step {step}", *below])),)
    )
