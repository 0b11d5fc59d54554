"""From names and values that a person gave to a question that the index understands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from deepstone.errors import UsageError, nearest
from deepstone.setups.axes import AXES
from deepstone.store.rows import Filters

COLUMNS: Final = ("job", "model", "framework", "device", "phase", "outcome")


def filters_of(given: Mapping[str, object]) -> Filters:
    """Columns of a run and axes by name, as in model=resnet50 layout=nhwc; UsageError for a name that is neither."""
    for name in given:
        if name not in COLUMNS and name not in AXES:
            raise UsageError(f"{name}: no such column or axis; {nearest(name, {*COLUMNS, *AXES})}")
    columns = {name: str(value) for name, value in given.items() if name in COLUMNS}
    axes = {name: str(value) for name, value in given.items() if name not in COLUMNS}
    return replace(Filters(axes=axes), **columns)
