"""The ceilings of a machine: its fastest matrix products and memory copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from deepstone.absent import Absent
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.figures.captions import commands, doubt_words, missing_whiskers
from deepstone.report.palette import hue
from deepstone.report.panels import Axis, BarChart, BarLabel, BarRow, Segment, Series
from deepstone.report.table import Column, Table, Unit, name_columns, value_of
from deepstone.report.wording import SHOWN
from deepstone.results.ceilings import Ceiling, Ceilings
from deepstone.results.findings import Finding
from deepstone.results.quantity import Quantity

_KINDS: Final = (
    ("Fastest matrix product", Unit.FLOPS_PER_S),
    ("Fastest copy, read and written", Unit.BYTES_PER_S),
)


def ceilings(finding: Finding) -> Figure:
    entries = finding.content.peaks if isinstance(finding.content, Ceilings) else []
    measured = [entry for entry in entries if entry.absent is None]
    if not measured:
        raise NothingToDrawError("no framework measured a ceiling; `deepstone doctor --peaks` tries again")
    names = [_name(entry) for entry in measured]
    series = tuple(Series(name=name, colour=hue(at)) for at, name in enumerate(names))
    panels = [_panel(measured, series, title, unit) for title, unit in _KINDS]
    return Figure(
        name="ceilings",
        model="",
        title="what this machine can do at most",
        subtitle=" · ".join(names),
        panels=tuple(panel for panel in panels if panel.rows),
        caption=(
            "Measured here, not taken from a data sheet: the best of several sizes.",
            *missing_whiskers(panels),
            *(f"{_name(entry)}: {entry.absent}" for entry in entries if entry.absent is not None),
        ),
        table=_table(measured),
        commands=commands(finding),
        doubts=tuple(doubt_words(doubt, _name(entry)) for entry in measured for doubt in entry.doubts or ()),
    )


def _name(entry: Ceiling) -> str:
    return f"{entry.framework} on {entry.device}"


def _rates(entry: Ceiling, unit: Unit) -> Mapping[str, Quantity | Absent]:
    return (entry.flops_per_s if unit is Unit.FLOPS_PER_S else entry.bytes_per_s) or {}


def _panel(entries: Sequence[Ceiling], series: tuple[Series, ...], title: str, unit: Unit) -> BarChart:
    found = [_rates(entry, unit) for entry in entries]
    names = dict.fromkeys(name for rates in found for name in rates)
    return BarChart(
        title=title,
        axis=Axis(label="rate", unit=unit),
        series=series,
        rows=tuple(_row(name, found, unit) for name in names),
    )


def _row(name: str, found: Sequence[Mapping[str, Quantity | Absent]], unit: Unit) -> BarRow:
    bars: list[tuple[Segment, ...]] = []
    labels: list[BarLabel] = []
    for at, rates in enumerate(found):
        if name not in rates:
            continue
        rate = value_of(rates[name])
        if isinstance(rate, Absent):
            bars.append(())
            labels.append(BarLabel(text=rate.reason, details=("no number", rate.reason), gap=True))
        else:
            bars.append((Segment(series=at, value=rate),))
            labels.append(BarLabel(text=SHOWN[unit](rate.middle)))
    return BarRow(label=name, bars=tuple(bars), bar_labels=tuple(labels))


def _table(entries: Sequence[Ceiling]) -> Table:
    """Make the table, with a column for each kind, because each has its unit."""
    rows = [
        (_name(entry), name, *(value_of(rate) if each is unit else None for _, each in _KINDS))
        for entry in entries
        for _, unit in _KINDS
        for name, rate in _rates(entry, unit).items()
    ]
    numbers = [Column(heading=title, unit=unit) for title, unit in _KINDS]
    return Table(columns=(*name_columns("measured with", "what"), *numbers), rows=tuple(rows))
