"""Captions that all figures of a finding share: the measurement, its command and its doubts."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Final, TypeVar

from deepstone.absent import Absent
from deepstone.errors import RefusedInputError
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.panels import BarChart, LineChart, Panel, ScatterPlot
from deepstone.report.scales import farthest
from deepstone.report.table import Column, Table, TableCell, Value, name_columns
from deepstone.report.wording import shortened
from deepstone.results.convolutions import ConvolutionLab
from deepstone.results.doubt import Doubt
from deepstone.results.findings import Finding
from deepstone.results.layers import LayerTable
from deepstone.results.memory import MemoryUse
from deepstone.results.parallel import Parallel
from deepstone.results.record import Record
from deepstone.results.view import headline

_LONGEST_COMMAND: Final = 400
_PARTS_AT_MOST: Final = 12  # more bars side by side are not readable
_AXES_SHOWN: Final = ("framework", "device", "precision", "layout", "compile", "threads")
_SHOWN_AT_MOST: Final = 40

Item = TypeVar("Item")
Found = TypeVar("Found", LayerTable, ConvolutionLab, MemoryUse)


def parts_by(by: str, finding: Finding) -> Mapping[str, Finding]:
    """Return the findings in a finding, by framework or batch; or itself without a name."""
    if finding.parts is None or finding.parts_by != by:
        return {"": finding}
    if not 1 <= len(finding.parts) <= _PARTS_AT_MOST:
        raise RefusedInputError(f"{by}: must hold 1 to {_PARTS_AT_MOST} {by}, not {len(finding.parts)}")
    return finding.parts


def by_framework(finding: Finding) -> Mapping[str, Finding]:
    """Return one finding for each measured framework, or the finding itself without a name."""
    measured = {name: part for name, part in parts_by("frameworks", finding).items() if _is_ok(part)}
    if not measured:
        raise NothingToDrawError(f"nothing was measured: {'; '.join(failures(finding))}")
    return measured


def contents(finding: Finding, kind: type[Found]) -> dict[str, Found]:
    """Return the content of each framework's finding."""
    parts = by_framework(finding)
    found = {name: part.content for name, part in parts.items() if isinstance(part.content, kind)}
    for name in parts:
        if name not in found:
            raise NothingToDrawError(f"{name or 'this result'} holds nothing of this kind")
    return found


def parallel_part(record: Record, missing: str) -> Parallel:
    """Return what the record says of several processes. Raises NothingToDrawError that names what one process lacks."""
    if not isinstance(record.parallel, Parallel):
        raise NothingToDrawError(f"one process has no {missing}; `deepstone run MODEL processes=2` measures two")
    return record.parallel


def first_processes(shown: Sized, every: Sized) -> tuple[str, ...]:
    """Return a line where some processes are left out."""
    return (f"The first {len(shown)} of {len(every)} processes are shown.",) if len(shown) < len(every) else ()


def failures(finding: Finding) -> list[str]:
    """Return outcome and reason of the frameworks that could not be measured."""
    return [
        ": ".join(word for word in (name, part.outcome, part.failure.reason if part.failure else "") if word)
        for name, part in parts_by("frameworks", finding).items()
        if not _is_ok(part)
    ]


def finding_figure(
    finding: Finding,
    name: str,
    title: str,
    *,
    panels: Iterable[Panel],
    caption: Iterable[str],
    table: Table,
    about: str | None = None,
    doubted: Iterable[str] | None = None,
) -> Figure:
    """Make a figure with the standard description of measurement, setup and doubts, where `about` and `doubted` do not
    say more."""
    return Figure(
        name=name,
        model=finding.model or "",
        title=title,
        subtitle=subtitle(finding) if about is None else about,
        panels=tuple(panels),
        caption=tuple(caption),
        table=table,
        commands=commands(finding),
        doubts=doubts(finding) if doubted is None else tuple(dict.fromkeys(doubted)),
    )


def record_figure(
    record: Record, name: str, title: str, *, about: str, panels: Iterable[Panel], caption: Iterable[str], table: Table
) -> Figure:
    """Make a figure of one run. `about` follows its headline."""
    return Figure(
        name=name,
        model=record.workload.model,
        title=title,
        subtitle=f"{headline(record)} · {about}",
        panels=tuple(panels),
        caption=tuple(caption),
        table=table,
        commands=(shlex.join(record.command),),
        doubts=tuple(doubt_words(doubt, record.id) for doubt in record.doubts),
    )


def table_by_framework(columns: Iterable[Column], rows: Mapping[str, Iterable[tuple[TableCell, ...]]]) -> Table:
    """Make a table; it has a column for the framework only if frameworks are named."""
    several = "" not in rows
    return Table(
        columns=(*(name_columns("framework") if several else ()), *columns),
        rows=tuple((name, *row) if several else row for name, own in rows.items() for row in own),
    )


def subtitle(finding: Finding) -> str:
    """Return batch, phase and setup, as far as they are known; for several frameworks or batches, what all share."""
    parts = by_framework(finding)
    described = [_described(part) for each in parts.values() for part in each.leaves()]
    common = [words for words in described[0] if all(words in other for other in described)]
    return " · ".join([*common, *([" against ".join(parts)] if len(parts) > 1 else [])])


def commands(finding: Finding) -> tuple[str, ...]:
    """Return the command of the whole finding, or of each of its parts."""
    found = [finding.command] if finding.command else [part.command for part in finding.leaves() if part.command]
    return tuple(shortened(line, _LONGEST_COMMAND) for line in dict.fromkeys(shlex.join(words) for words in found))


def doubts(finding: Finding) -> tuple[str, ...]:
    parts = {f"batch {batch}": part for batch, part in parts_by("batches", finding).items() if batch}
    named = parts or by_framework(finding)
    return tuple(doubt_words(doubt, name) for name, part in named.items() for doubt in _doubts(part))


def doubt_words(doubt: Doubt, name: str) -> str:
    begin = f"{name}: " if name else ""
    return f"{begin}{doubt.code}: {doubt.detail}"


def missing_whiskers(panels: Sequence[Panel]) -> tuple[str, ...]:
    """Return a line for each reason for missing whiskers: a bar without one must not look certain."""
    reasons = Counter(value.no_interval for panel in panels for value in _values(panel) if value.no_interval)
    return tuple(f"Drawn without a whisker: {reason} ({_numbers(count)})." for reason, count in reasons.items())


def cut_whiskers(panels: Sequence[Panel]) -> tuple[str, ...]:
    """Return a line where an axis ends before an interval does."""
    is_cut = any(isinstance(panel, LineChart) and farthest(panel) is not None for panel in panels)
    return ("Whiskers that reach the end of their axis go on beyond it; the table has their ends.",) if is_cut else ()


def costliest(
    items: Sequence[Item], cost: Callable[[Item], float], at_most: int = _SHOWN_AT_MOST
) -> tuple[list[Item], list[Item]]:
    """Split rows into those that are shown and the others, in their order. A single row is never left over."""
    if len(items) <= at_most + 1:
        return list(items), []
    ranked = sorted(range(len(items)), key=lambda at: (-cost(items[at]), at))
    chosen = set(ranked[:at_most])
    shown = [item for at, item in enumerate(items) if at in chosen]
    return shown, [item for at, item in enumerate(items) if at not in chosen]


def others_in_words(shown: Sequence[object], others: Sequence[object], what: str = "layers") -> list[str]:
    """Describe the other rows for the caption; nothing if all are shown."""
    if not others:
        return []
    total = len(shown) + len(others)
    return [f"Shown one by one are the {len(shown)} costliest of {total:,} {what}."]


def _is_ok(finding: Finding) -> bool:
    return finding.outcome in (None, "ok")


def _doubts(finding: Finding) -> Sequence[Doubt]:
    return finding.content.doubts if isinstance(finding.content, LayerTable | ConvolutionLab) else ()


def _described(finding: Finding) -> list[str]:
    content = finding.content
    work = finding.workload or (content if isinstance(content, ConvolutionLab | MemoryUse) else None)
    return [*([f"batch {work.batch}", work.phase] if work else []), *_setup(finding)]


def _setup(finding: Finding) -> list[str]:
    if finding.setup is None:
        lab = finding.content
        settings = (lab.device, lab.precision, lab.layout) if isinstance(lab, ConvolutionLab) else ()
        return [words for words in settings if not isinstance(words, Absent)]
    effective = finding.setup.effective
    settings = [_in_words(axis, str(effective[axis].value)) for axis in _AXES_SHOWN if axis in effective]
    return [words for words in settings if words]


def _in_words(axis: str, value: str) -> str:
    if axis == "compile":
        return "" if value == "off" else f"compile={value}"
    if axis == "threads":
        return "1 thread" if value == "1" else f"{value} threads"
    return value.replace("@", " ") if axis == "framework" else value


def _values(panel: Panel) -> Iterator[Value]:
    if isinstance(panel, BarChart):
        yield from (segment.value for row in panel.rows for bar in row.bars for segment in bar)
    elif isinstance(panel, LineChart):
        yield from (point.y for curve in panel.curves for point in curve.points)
    elif isinstance(panel, ScatterPlot):
        yield from (point.y for group in panel.groups for point in group.points)


def _numbers(count: int) -> str:
    return "1 number" if count == 1 else f"{count} numbers"
