"""Runs as rows of a table, for data frames, Parquet and CSV. No cell of the CSV is a formula for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from deepstone.errors import MissingError
from deepstone.results.record import Record
from deepstone.results.view import Cell, flat
from deepstone.store.export.jsonl import prepared

_FORMULA_STARTS: Final = "=+-@＝＋－＠"


def columns_of(rows: Iterable[Mapping[str, Cell]]) -> list[str]:
    """Return all columns, in the order of their first occurrence."""
    return list(dict.fromkeys(column for cells in rows for column in cells))


def of_one_type(values: Sequence[Cell | None]) -> list[Cell | None]:
    """Return a column of one type, as typed tables need it: numbers become text if some values are text."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1:
        return list(values)
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    return [None if value is None else _as_text(value) for value in values]


def _as_text(value: Cell) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def export_csv(records: Iterable[Record], *, redact: bool = True) -> Iterator[str]:
    """Yield a header and one line per run; a cell is empty if the record has no value."""
    rows = [flat(record) for record in prepared(records, redact=redact)]
    columns = columns_of(rows)
    yield _line(columns)
    for cells in rows:
        yield _line([cells.get(column, "") for column in columns])


def _line(cells: Iterable[Cell]) -> str:
    text = io.StringIO()
    # The writer quotes only characters of its own line end, so that must include both \r and \n.
    csv.writer(text, lineterminator="\r\n").writerow([_harmless(cell) for cell in cells])
    return text.getvalue().removesuffix("\r\n") + "\n"


def _harmless(cell: Cell) -> Cell:
    """Escape text that a spreadsheet would run as a formula; numbers, also negative ones, stay numbers."""
    if not isinstance(cell, str):
        return cell
    starts_badly = cell[:1] in ("\t", "\r", "\n") or cell.lstrip()[:1] in tuple(_FORMULA_STARTS)
    return f"'{cell}" if starts_badly and cell else cell


def export_parquet(records: Iterable[Record], *, redact: bool = True) -> bytes:
    """Return a Parquet file: one row per run, null if the record has no value. Raises MissingError without pyarrow."""
    parquet = _module("pyarrow.parquet")  # before any record is read
    table = arrow_table([flat(record) for record in prepared(records, redact=redact)])
    file = io.BytesIO()
    parquet.write_table(table, file)
    return file.getvalue()


def arrow_table(rows: Sequence[Mapping[str, Cell]]) -> Any:
    """Return a pyarrow.Table of flat runs, in which `started_at` is a time. Raises MissingError without pyarrow."""
    arrow = _module("pyarrow")
    columns = {name: arrow.array(of_one_type([row.get(name) for row in rows])) for name in columns_of(rows)}
    if "started_at" in columns:
        started = [datetime.fromisoformat(str(row["started_at"])) for row in rows]
        columns["started_at"] = arrow.array(started, type=arrow.timestamp("us", tz="UTC"))
    return arrow.table(columns)


def _module(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingError("pyarrow is missing; from the clone: pip install -e '.[parquet]'") from error
