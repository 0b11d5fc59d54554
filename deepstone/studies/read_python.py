"""A study that a function makes: `file.py:function` returns the table of a study file as a dict, or a Study."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from deepstone.errors import UsageError
from deepstone.models.program import call
from deepstone.models.reading import read_file
from deepstone.studies.read_table import read_table
from deepstone.studies.source import Source
from deepstone.studies.study import Study


def read_python(path: Path, function: str, *, shown_as: str, name: str) -> Study:
    """UsageError in one line, with the line of the file where its program fails."""
    if not path.is_file():
        raise UsageError(f"no file {path}; a study is made by a function in a Python file, as in my_study.py:make")
    made = call(path, read_file(path), function)
    if isinstance(made, Study):
        return made
    if not isinstance(made, dict):
        raise UsageError(f"{shown_as}: returned {type(made).__name__}, not a dict as a study file holds, nor a Study")
    return read_table(cast(dict[str, object], made), Source(shown=shown_as, folder=path.parent), name=name)
