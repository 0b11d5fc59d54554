"""CSV for spreadsheets: one line per run, in which no cell can be run as a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Final

from deepstone.records.schema import Record
from deepstone.store.export.flat import Cell, columns_of, flat
from deepstone.store.export.prepared import prepared

_FORMULA_STARTS: Final = "=+-@＝＋－＠"


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
