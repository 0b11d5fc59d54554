"""Runs as lines of a table, one per run: for data frames, Parquet and, with cells that no spreadsheet runs, CSV."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, cast

import msgspec

from deepstone.results.parts import Part
from deepstone.results.quantity import Quantity
from deepstone.results.record import Record
from deepstone.store.export.jsonl import prepared

Cell: TypeAlias = str | int | float | bool

_MACHINE_PART: Final = 12
_FORMULA_STARTS: Final = "=+-@＝＋－＠"


def flat(record: Record) -> dict[str, Cell]:
    """The columns of a run in the order in which a reader wants them; raw samples stay in the JSON."""
    workload, setup = record.workload, record.setup
    return {
        "id": record.id,
        "started_at": record.started_at,
        "model": workload.model,
        "framework": setup.value("framework"),
        "device": setup.value("device"),
        "batch": workload.batch,
        "phase": workload.phase,
        "input": workload.input,
        "repetition": record.identity.repetition,
        "outcome": record.outcome,
        **_under("failure", record.failure),
        **_under("", record.summary),
        **_under("phase", record.phases),
        **_under("startup", record.startup),
        **_under("memory", record.memory),
        **_under("energy", record.energy),
        **_under("cost", record.cost),
        **_under("share_of_peak", record.share_of_peak),
        **_under("requested", setup.requested),
        **_under("effective", {axis: effect.value for axis, effect in setup.effective.items()}),
        "doubts": " ".join(doubt.code for doubt in record.doubts),
        "warmup_steps": record.samples.warmup_steps,
        "launches": len(record.samples.launches),
        **_where(record),
        "source": workload.source,
        "graph_sha": record.graph_sha,
        "job": record.job,
        "command": shlex.join(record.command),
    }


def _where(record: Record) -> dict[str, Cell]:
    """The machine by the beginning of its hash, which tells machines apart, and by names, which may not."""
    environment = record.environment
    named = {
        "cpu": environment.cpu_model,
        "gpu": environment.told("gpu"),
        "framework_version": environment.told("version"),
        "deepstone": environment.deepstone if isinstance(environment.deepstone, str) else "",
    }
    known = {name: text for name, text in named.items() if text}
    return {"machine": record.identity.machine_sha[:_MACHINE_PART], **known}


def columns_of(rows: Iterable[Mapping[str, Cell]]) -> list[str]:
    """Every column that a row has, each where it was first seen."""
    return list(dict.fromkeys(column for cells in rows for column in cells))


def of_one_type(values: Sequence[Cell | None]) -> list[Cell | None]:
    """A column as typed tables need it: numbers stay numbers where all are, and become text where some are words."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1:
        return list(values)
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    return [None if value is None else _as_text(value) for value in values]


def _as_text(value: Cell) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _under(prefix: str, value: object) -> dict[str, Cell]:
    """The single values below a key, named by the way to them; lists and what is absent have no column."""
    if isinstance(value, Quantity) and not value.has_interval:
        return _under(prefix, {"median": value.median, "n": value.n})
    if isinstance(value, Part):
        names = {field.encode_name: getattr(value, field.name) for field in msgspec.structs.fields(value)}
        return _under(prefix, names)
    if isinstance(value, (str, int, float, bool)):
        return {prefix: value}
    if not isinstance(value, Mapping):
        return {}
    cells: dict[str, Cell] = {}
    for key, item in sorted(cast(Mapping[str, object], value).items()):
        cells |= _under(f"{prefix}_{key}" if prefix else key, item)
    return cells


def export_csv(records: Iterable[Record], *, redact: bool = True) -> Iterator[str]:
    """A header and one line per run; a cell is empty where the record has no value."""
    rows = [flat(record) for record in prepared(records, redact=redact)]
    columns = columns_of(rows)
    yield _line(columns)
    for cells in rows:
        yield _line([cells.get(column, "") for column in columns])


def _line(cells: Iterable[Cell]) -> str:
    text = io.StringIO()
    # The writer quotes only what its own line end could be confused with, so it must know of both \r and \n.
    csv.writer(text, lineterminator="\r\n").writerow([_harmless(cell) for cell in cells])
    return text.getvalue().removesuffix("\r\n") + "\n"


def _harmless(cell: Cell) -> Cell:
    """Text that a spreadsheet would run as a formula is made text; numbers, negative ones too, stay numbers."""
    if not isinstance(cell, str):
        return cell
    starts_badly = cell[:1] in ("\t", "\r", "\n") or cell.lstrip()[:1] in tuple(_FORMULA_STARTS)
    return f"'{cell}" if starts_badly and cell else cell
