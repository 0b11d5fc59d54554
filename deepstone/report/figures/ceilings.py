"""What a machine does at most: its fastest matrix products, and how fast it copies memory."""

from __future__ import annotations

from typing import Final, cast

from deepstone.absent import Absent
from deepstone.records.shape import as_list, refuse
from deepstone.report.amounts import SHOWN
from deepstone.report.figure import (
    Axis,
    BarRow,
    Bars,
    Figure,
    Mark,
    NothingToDrawError,
    Segment,
    Series,
    Table,
    Unit,
    Value,
)
from deepstone.report.figures import heading
from deepstone.report.figures.numbers import value_cell
from deepstone.report.palette import hue
from deepstone.report.reading import Node

_KINDS: Final = (
    ("flops_per_s", "Fastest matrix product", "rate", Unit.FLOPS_PER_S),
    ("bytes_per_s", "Fastest copy, read and written", "rate", Unit.BYTES_PER_S),
)


def ceilings(result: Node) -> Figure:
    entries = _entries(result)
    measured = [entry for entry in entries if "absent" not in entry.items]
    if not measured:
        raise NothingToDrawError("no framework measured a ceiling; `deepstone doctor --peaks` tries again")
    names = [_name(entry) for entry in measured]
    series = tuple(Series(name=name, colour=hue(at)) for at, name in enumerate(names))
    panels = [_panel(measured, series, *kind) for kind in _KINDS]
    failed = [f"{_name(entry)}: {entry.text('absent', '')}" for entry in entries if "absent" in entry.items]
    return Figure(
        name="ceilings",
        model="",
        title="what this machine can do at most",
        subtitle=" · ".join(names),
        panels=tuple(panel for panel in panels if panel.rows),
        caption=("Measured here, not taken from a data sheet: the best of several sizes.", *failed),
        table=_table(measured),
        commands=heading.commands(Node({"command": result.items.get("command", [])})),
        doubts=tuple(line for entry in measured for line in _doubts(entry)),
    )


def _entries(result: Node) -> list[Node]:
    """One for each framework and device; one that is absent is an entry too, with its reason."""
    place = (result.where, "peaks")
    found: list[Node] = []
    for at, entry in enumerate(as_list(result.items.get("peaks"), place)):
        if not isinstance(entry, dict):
            refuse((place, at), "an object", entry)
        found.append(Node(cast(dict[str, object], entry), (place, at)))
    return found


def _name(entry: Node) -> str:
    return f"{entry.text('framework', 'unknown')} on {entry.text('device', 'unknown')}"


def _rates(entry: Node, key: str) -> dict[str, Value | Absent]:
    if not entry.has(key):
        return {}
    rates = entry.node(key)
    return {name: rates.value(name) for name in rates.items}


def _panel(entries: list[Node], series: tuple[Series, ...], key: str, title: str, label: str, unit: Unit) -> Bars:
    found = [_rates(entry, key) for entry in entries]
    whats = dict.fromkeys(what for rates in found for what in rates)
    return Bars(
        title=title,
        axis=Axis(label=label, unit=unit),
        series=series,
        rows=tuple(_row(what, found, unit) for what in whats),
    )


def _row(what: str, found: list[dict[str, Value | Absent]], unit: Unit) -> BarRow:
    bars: list[tuple[Segment, ...]] = []
    marks: list[Mark] = []
    for at, rates in enumerate(found):
        rate = rates.get(what)
        if isinstance(rate, Value):
            bars.append((Segment(series=at, value=rate),))
            marks.append(Mark(text=SHOWN[unit](rate.middle)))
        elif rate is not None:
            bars.append(())
            marks.append(Mark(text=rate.reason, told=("no number", rate.reason), gap=True))
    return BarRow(label=what, bars=tuple(bars), marks=tuple(marks))


def _table(entries: list[Node]) -> Table:
    rows = [
        (_name(entry), what, value_cell(rate, SHOWN[unit]))
        for entry in entries
        for key, _, _, unit in _KINDS
        for what, rate in _rates(entry, key).items()
    ]
    return Table(headings=("measured with", "what", "at most"), rows=tuple(rows), words=2)


def _doubts(entry: Node) -> list[str]:
    found = entry.nodes("doubts") if entry.has("doubts") else []
    return [f"{_name(entry)}: {doubt.text('code')}: {doubt.text('detail', '')}" for doubt in found]
