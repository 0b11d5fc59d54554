"""Parquet: the table of the CSV with types, for data frames and databases."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from types import ModuleType
from typing import Any

from deepstone.errors import MissingError
from deepstone.results.record import Record
from deepstone.results.view import Cell, flat
from deepstone.store.export.jsonl import prepared
from deepstone.store.export.tables import columns_of, of_one_type


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
