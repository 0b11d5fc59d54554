"""What a report shows of several processes, from records: speed over processes, and what of a step is exposed
communication."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.analysis.step_parts import middle_of
from deepstone.measure.statistics import median_of_rounds
from deepstone.report.figure import Figure
from deepstone.report.figures.scaling import STEPS_CAPTION, StepRow, steps_panel
from deepstone.report.palette import hue
from deepstone.report.panels import Axis, LineChart, Panel, Point, PointGroup, Series
from deepstone.report.table import Table, TableCell, Unit, Value, name_columns, number_columns, value_of
from deepstone.results.parallel import Communication
from deepstone.results.quantity import Quantity
from deepstone.results.record import Record
from deepstone.setups.axes import AXES

_BESIDES: Final = ("processes", "nodes", "batch", "threads", "seed")  # in which points of one curve may differ
_MOST_COMMANDS: Final = 12


@dataclass(frozen=True)
class _Point:
    """All good runs of one setup with so many processes: rounds of the same measurement."""

    processes: int
    batch: int
    records: tuple[Record, ...]

    @cached_property
    def speed(self) -> Quantity:
        rates = [_rate(record) for record in self.records]
        if len(rates) > 1:
            return median_of_rounds([rate.median for rate in rates])
        return rates[0]

    @property
    def communication(self) -> tuple[Quantity, Communication] | None:
        """The step and its communication: of the run in the middle of those that measured it."""
        found = [
            (record.summary.step_s, record.parallel.communication)
            for record in self.records
            if record.parallel is not None
            and not isinstance(record.parallel, Absent)
            and not isinstance(record.parallel.communication, Absent)
            and not isinstance(record.summary, Absent)
        ]
        found.sort(key=lambda pair: pair[1].exposed_s.median)
        return found[len(found) // 2] if found else None


class _Family(Struct, frozen=True, kw_only=True):
    """Runs that differ in the number of processes, and in what goes with it."""

    model: str
    setup: str
    points: tuple[_Point, ...]


def scaling_figures(records: Sequence[Record]) -> list[Figure]:
    """One figure for every model that was trained in several processes."""
    families = [family for family in _families(records) if any(point.processes > 1 for point in family.points)]
    by_model: dict[str, list[_Family]] = {}
    for family in families:
        by_model.setdefault(family.model, []).append(family)
    return [_figure(model, own) for model, own in by_model.items()]


def _families(records: Sequence[Record]) -> Iterator[_Family]:
    good = [record for record in records if record.outcome == "ok" and not isinstance(record.summary, Absent)]
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in good:
        if record.workload.phase == "train":
            key = record.workload.model, _setup(record), record.identity.machine_sha
            groups.setdefault(key, []).append(record)
    for (model, setup, _), own in groups.items():
        points: dict[tuple[int, int, str], list[Record]] = {}
        for record in own:
            threads = str(record.setup.requested.get("threads", ""))
            points.setdefault((_world(record), record.workload.batch, threads), []).append(record)
        fastest: dict[tuple[int, int], _Point] = {}
        for (world, batch, _), several in points.items():
            point = _Point(world, batch, tuple(several))
            known = fastest.get((world, batch))
            if known is None or point.speed.median > known.speed.median:
                fastest[world, batch] = point
        yield _Family(model=model, setup=setup, points=tuple(fastest.values()))


def _setup(record: Record) -> str:
    """What is not at its default, besides what changes with the number of processes. What only several processes have
    is left out of one process, so it says nothing there."""
    requested = record.setup.requested
    return " ".join(
        f"{axis}={value}"
        for axis, value in requested.items()
        if axis in AXES and axis not in _BESIDES and value != AXES[axis].default
    )


def _world(record: Record) -> int:
    return 1 if record.parallel is None or isinstance(record.parallel, Absent) else record.parallel.world


def _rate(record: Record) -> Quantity:
    assert not isinstance(record.summary, Absent)
    return record.summary.samples_per_s


def _figure(model: str, families: Sequence[_Family]) -> Figure:
    curves = [curve for family in families for curve in _curves(family, several=len(families) > 1)]
    panels: list[Panel] = []
    if curves:
        panels.append(_speed_panel(curves))
    if steps := _steps(families):
        panels.append(steps_panel(steps))
    records = [record for family in families for point in family.points for record in point.records]
    commands = dict.fromkeys(shlex.join(record.command) for record in records)
    return Figure(
        name="scaling",
        model=model,
        title="several processes",
        subtitle="",
        panels=tuple(panels),
        caption=(
            "Speed: the median over rounds, where there are several, at the fastest number of threads. Processes of "
            "one machine share its cores; the table has the threads of each.",
            *STEPS_CAPTION,
        ),
        table=_table(families),
        commands=tuple(commands)[:_MOST_COMMANDS],
        doubts=_doubts(records),
    )


class _Curve(Struct, frozen=True, kw_only=True):
    name: str
    points: tuple[_Point, ...]


def _curves(family: _Family, *, several: bool) -> Iterator[_Curve]:
    """Strong scaling where runs share the batch of the job, weak where they share that of each process."""
    head = f"{family.setup or 'default'}: " if several else ""
    for name, share in (("batch", _whole), ("batch of each process", _each)):
        found: dict[int, list[_Point]] = {}
        for point in family.points:
            found.setdefault(share(point), []).append(point)
        for size, points in found.items():
            ordered = sorted(points, key=lambda point: point.processes)
            if len({point.processes for point in ordered}) > 1:
                yield _Curve(name=f"{head}{name} {size}", points=tuple(ordered))


def _whole(point: _Point) -> int:
    return point.batch


def _each(point: _Point) -> int:
    return point.batch // point.processes


def _speed_panel(curves: Sequence[_Curve]) -> LineChart:
    groups: list[PointGroup] = []
    for at, curve in enumerate(curves):
        points = [Point(x=point.processes, y=_value(point.speed)) for point in curve.points]
        groups.append(PointGroup(series=Series(name=curve.name, colour=hue(at)), points=tuple(points)))
    return LineChart(
        title="Speed over processes",
        x=Axis(label="processes", unit=Unit.NUMBER, log=True),
        y=Axis(label="speed", unit=Unit.SAMPLES_PER_S, log=True),
        curves=tuple(groups),
    )


def _steps(families: Sequence[_Family]) -> list[StepRow]:
    """What a step is made of at every number of processes, in the run in the middle."""
    found = [(family, point) for family in families for point in family.points]
    rows: list[StepRow] = []
    for family, point in sorted(found, key=lambda pair: (pair[0].setup, pair[1].processes, pair[1].batch)):
        parts = middle_of(point.records)
        if isinstance(parts, Absent):
            continue
        name = f"{family.setup or 'default'}, " if len(families) > 1 else ""
        processes = "1 process" if point.processes == 1 else f"{point.processes} processes"
        rows.append(StepRow(label=f"{name}{processes}, batch {point.batch}", parts=parts))
    return rows


def _value(quantity: Quantity) -> Value:
    value = value_of(quantity)
    assert isinstance(value, Value)
    return value


def _table(families: Sequence[_Family]) -> Table:
    rows: list[tuple[TableCell, ...]] = []
    runs: list[tuple[str, ...]] = []
    for family in families:
        for point in sorted(family.points, key=lambda point: (point.processes, point.batch)):
            known, parts = point.communication, middle_of(point.records)
            exposed = Absent("not measured") if isinstance(parts, Absent) else parts.communication_s
            exposed = Absent("one process") if point.processes == 1 else exposed
            rows.append(
                (
                    family.setup or "default",
                    point.processes,
                    point.batch,
                    point.records[0].setup.value("threads"),
                    _value(point.speed),
                    value_of(exposed if known is None else known[1].exposed_s),
                )
            )
            runs.append(tuple(record.id for record in point.records))
    columns = (
        *name_columns("setup"),
        *number_columns(Unit.NUMBER, "processes", "batch"),
        *name_columns("threads of each"),
        *number_columns(Unit.SAMPLES_PER_S, "speed"),
        *number_columns(Unit.SECONDS, "exposed"),
    )
    return Table(columns=columns, rows=tuple(rows), runs=tuple(runs))


def _doubts(records: Sequence[Record]) -> tuple[str, ...]:
    counts: dict[str, int] = {}
    for record in records:
        for doubt in record.doubts:
            counts[doubt.code] = counts.get(doubt.code, 0) + 1
    return tuple(f"{code}: {count} {'run' if count == 1 else 'runs'}" for code, count in counts.items())
