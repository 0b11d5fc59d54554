"""Runs as text to give away, redacted by default: JSONL that can be imported again, and CSV for spreadsheets."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias, cast

from deepstone.records import redact as redaction
from deepstone.records.identity import canonical_json
from deepstone.records.schema import Record, is_absent
from deepstone.store.rows import axis_value

Cell: TypeAlias = str | int | float | bool

_FORMULA_STARTS: Final = "=+-@＝＋－＠"


def export_jsonl(records: Iterable[Record], *, redact: bool = True) -> Iterator[str]:
    """One line per run, each a whole record."""
    for record in _prepared(records, redact=redact):
        yield canonical_json(record) + "\n"


def export_csv(records: Iterable[Record], *, redact: bool = True) -> Iterator[str]:
    """A header and one line per run; a cell is empty where the record has no value."""
    flat = [_flat(record) for record in _prepared(records, redact=redact)]
    columns = list(dict.fromkeys(column for cells in flat for column in cells))
    yield _line(columns)
    for cells in flat:
        yield _line([cells.get(column, "") for column in columns])


def _prepared(records: Iterable[Record], *, redact: bool) -> Iterator[Record]:
    if not redact:
        yield from records
        return
    names = redaction.PrivateNames.of_this_machine()
    for record in records:
        yield redaction.redact(record, names)


def _flat(record: Record) -> dict[str, Cell]:
    """The columns of a run in the order in which a reader wants them; raw samples stay in the JSON."""
    workload, setup = record["workload"], record["setup"]
    effective = {axis: effect["value"] for axis, effect in setup["effective"].items()}
    return {
        "id": record["id"],
        "started_at": record["started_at"],
        "model": workload["model"],
        "framework": axis_value(record, "framework"),
        "device": axis_value(record, "device"),
        "batch": workload["batch"],
        "phase": workload["phase"],
        "input": workload["input"],
        "repetition": record["identity"]["repetition"],
        "outcome": record["outcome"],
        **_under("failure", record["failure"]),
        **_under("", record["summary"]),
        **_under("phase", record["phases"]),
        **_under("startup", record["startup"]),
        **_under("memory", record["memory"]),
        **_under("energy", record["energy"]),
        **_under("cost", record["cost"]),
        **_under("share_of_peak", record["share_of_peak"]),
        **_under("requested", setup["requested"]),
        **_under("effective", effective),
        "doubts": " ".join(doubt["code"] for doubt in record["doubts"]),
        "warmup_steps": record["samples"]["warmup_steps"],
        "launches": len(record["samples"]["launches"]),
        "source": workload["source"],
        "graph_sha": record["graph_sha"],
        "job": record["job"],
        "command": shlex.join(record["command"]),
    }


def _under(prefix: str, value: object) -> dict[str, Cell]:
    """The single values below a key, named by the way to them; lists and what is absent have no column."""
    if is_absent(value) or isinstance(value, list):
        return {}
    if not isinstance(value, dict):
        return {prefix: cast(Cell, value)}
    cells: dict[str, Cell] = {}
    for key, item in cast(Mapping[str, Any], value).items():
        cells |= _under(f"{prefix}_{key}" if prefix else key, item)
    return cells


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
