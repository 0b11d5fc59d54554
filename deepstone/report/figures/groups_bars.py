"""Bars per kind of layer: what convolutions take together, and what dense layers do."""

from __future__ import annotations

from deepstone.report.figure import Axis, BarRow, Bars, Figure, NothingToDrawError, Segment, Series, Table, Unit, Value
from deepstone.report.figures import heading
from deepstone.report.figures.layer_times import PASSES, total
from deepstone.report.figures.numbers import share, share_cell, time_cell
from deepstone.report.palette import BACKWARD, FORWARD, hue, paler
from deepstone.report.reading import Node
from deepstone.units import seconds


def groups_bars(result: Node) -> Figure:
    parts = heading.by_framework(result)
    groups = {name: {node.text("name"): node for node in part.nodes("groups")} for name, part in parts.items()}
    names = list(dict.fromkeys(group for each in groups.values() for group in each))
    if not names:
        raise NothingToDrawError("this result has no groups of layers; measure some with `deepstone layers`")
    series: list[Series] = []
    for position, framework in enumerate(parts):
        colours = (hue(position), paler(hue(position))) if framework else (FORWARD, BACKWARD)
        series += [
            Series(name=f"{framework} {part}".strip(), colour=colour)
            for part, colour in zip(PASSES, colours, strict=True)
        ]
    rows = [
        BarRow(
            label=name,
            bars=tuple(_bar(each.get(name), 2 * position) for position, each in enumerate(groups.values())),
            note=_note(groups[""][name]) if "" in groups else "",
        )
        for name in names
    ]
    axis = Axis(label="time per step", unit=Unit.SECONDS)
    return Figure(
        name="groups",
        model=result.text("model"),
        title="time by kind of layer",
        subtitle=heading.subtitle(result),
        panels=(Bars(title="Kinds of layers", axis=axis, series=tuple(series), rows=tuple(rows)),),
        caption=("Shares are of the sum of all layers.", *heading.failures(result)),
        table=_table(groups),
        commands=heading.commands(result),
        doubts=heading.doubts(result),
    )


def _bar(group: Node | None, first: int) -> tuple[Segment, ...]:
    if group is None:
        return ()
    times = [group.value(f"{part}_s") for part in PASSES]
    return tuple(Segment(series=first + at, value=time) for at, time in enumerate(times) if isinstance(time, Value))


def _note(group: Node) -> str:
    both_s = total(group.value(f"{part}_s") for part in PASSES)
    part = group.value("share")
    words = [seconds(both_s)] if both_s is not None else []
    words += [share(part.middle)] if isinstance(part, Value) else []
    return " · ".join(words)


def _table(groups: dict[str, dict[str, Node]]) -> Table:
    several = "" not in groups
    head = ("framework", "kind") if several else ("kind",)
    rows: list[tuple[str, ...]] = []
    for framework, each in groups.items():
        for name, group in each.items():
            part = group.value("share")
            rows.append(
                (
                    *((framework,) if several else ()),
                    name,
                    *(time_cell(group.value(f"{part}_s")) for part in PASSES),
                    share_cell(part.middle if isinstance(part, Value) else part),
                )
            )
    return Table(headings=(*head, *PASSES, "share"), rows=tuple(rows), words=len(head))
