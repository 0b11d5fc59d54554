"""A store in a notebook or a script: its runs as records, as a pandas data frame or as an Arrow table."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from deepstone.errors import MissingError
from deepstone.results.view import Cell, flat
from deepstone.store.export.tables import columns_of, of_one_type
from deepstone.store.layout import Damage, default_folder
from deepstone.store.rows import filters_of
from deepstone.store.store import Store

if TYPE_CHECKING:
    from deepstone.results.parts import Json
    from deepstone.results.record import Record


def open_results(path: str | os.PathLike[str] | None = None) -> Results:
    """The store in this folder, else in DEEPSTONE_STORE, else the default one. StoreError where there is none."""
    named = path if path is not None else os.environ.get("DEEPSTONE_STORE")
    folder = default_folder() if named is None else Path(named).expanduser()
    return Results(store=Store.open(folder, create=False))


class Results(Struct, frozen=True, kw_only=True):
    """What a store holds. Filters are columns and axes by name: `runs(model="resnet50", layout="nhwc")`."""

    store: Store

    def runs(self, **filters: object) -> list[dict[str, Json]]:
        """Return whole records as JSON, oldest first, as docs/records.md describes them."""
        return [record.to_json() for record in self.records(**filters)]

    def records(self, **filters: object) -> list[Record]:
        """The same as objects: `record.summary.step_s.median`. A damaged one is left out with a warning."""
        listing = self.store.list(filters_of(filters))
        damaged = list(listing.damaged)
        records = list(self.store.records(listing.rows, damaged=damaged))
        _warn(damaged)
        return records

    def findings(self, kind: str | None = None) -> list[dict[str, Json]]:
        """Return findings: layers, convolutions, memory, peaks; all of them, or those of one kind."""
        return [finding.to_json() for finding in self.store.findings.list(kind)]

    def to_pandas(self, **filters: object) -> Any:
        """A pandas.DataFrame with a row per run. MissingError where pandas is not installed."""
        try:
            pandas: Any = import_module("pandas")
        except ImportError as error:
            raise MissingError("pandas is missing; from the clone: pip install -e '.[notebook]'") from error
        rows = self._tidy(filters)
        frame = pandas.DataFrame({name: of_one_type([row.get(name) for row in rows]) for name in columns_of(rows)})
        if rows:
            frame["started_at"] = pandas.to_datetime(frame["started_at"], utc=True)
        return frame

    def to_arrow(self, **filters: object) -> Any:
        """A pyarrow.Table with the same columns. MissingError where pyarrow is not installed."""
        from deepstone.store.export.tables import arrow_table

        return arrow_table(self._tidy(filters))

    def _tidy(self, filters: dict[str, object]) -> list[dict[str, Cell]]:
        return [tidy(record) for record in self.records(**filters)]


def tidy(record: Record) -> dict[str, Cell]:
    """The columns of an export under shorter names: `layout` was asked for, `samples_per_s` is a median.

    A name that is another column's already is not shortened: `framework` is the one in effect, as in every table.
    """
    cells = flat(record)
    named: dict[str, Cell] = {}
    for name, cell in cells.items():
        short = name.removeprefix("requested_").removesuffix("_median")
        named[name if short in cells or short in named else short] = cell
    return named


def _warn(damaged: Sequence[Damage]) -> None:
    for damage in damaged:
        warnings.warn(f"left out the damaged record {damage.path}: {damage.reason}", stacklevel=3)
