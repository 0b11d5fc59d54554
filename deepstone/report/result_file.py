"""A saved result, from a file that may hold anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from deepstone.errors import RefusedInputError, UsageError
from deepstone.faults import reason
from deepstone.records.read import parse_json
from deepstone.records.schema import MAX_RECORD_BYTES
from deepstone.records.shape import shown
from deepstone.store.files import open_regular


def read_result(path: Path) -> Mapping[str, object]:
    """The JSON object in a file. UsageError with the file's name for one that cannot be read or is something else."""
    try:
        with open_regular(path) as file:
            data = file.read(MAX_RECORD_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {reason(error)}; give a file that --json wrote") from error
    try:
        content = parse_json(data)
    except RefusedInputError as error:
        raise RefusedInputError(f"{path}: {error}; give a file that --json wrote") from error
    if not isinstance(content, dict):
        raise RefusedInputError(f"{path}: holds {shown(content)}, not one result; give a file that --json wrote")
    return cast(dict[str, object], content)
