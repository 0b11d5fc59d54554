"""The study that a word means: one that comes with Deepstone, a file in TOML, or a function in a Python file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from deepstone.errors import UsageError, nearest
from deepstone.models.reading import absolute, one_line
from deepstone.studies.read_toml import LIMIT_BYTES, read_toml
from deepstone.studies.study import Study

BUILTIN: Final = Path(__file__).parent / "builtin"
_FORMS: Final = "a study is a name from `deepstone study --list`, path/to/study.toml or path/to/file.py:function"


def builtin_names() -> list[str]:
    return sorted(path.stem for path in BUILTIN.glob("*.toml"))


def find_study(reference: str) -> Study:
    """UsageError in one line when there is none, or when it is wrong."""
    path, _, function = reference.rpartition(":")
    if path.endswith(".py"):
        from deepstone.studies.read_python import read_python

        name = _named(f"{Path(path).stem}-{function}")
        return read_python(absolute(path), function, shown_as=reference, name=name)
    if reference.endswith(".toml"):
        return _read(Path(reference), shown_as=reference)
    if reference in builtin_names():
        return _read(BUILTIN / f"{reference}.toml", shown_as=f"study {reference}")
    if reference.endswith(".py"):
        raise UsageError(f"{reference!r} does not say which function makes the study; write FILE.py:FUNCTION")
    if any(character in reference for character in "/:."):
        raise UsageError(f"{reference!r} is no study; {_FORMS}")
    raise UsageError(f"no study {reference!r}; {_nearest(reference)}")


def read_study_file(path: Path) -> Study:
    """A study in TOML, named by its file."""
    return _read(path, shown_as=str(path))


def _read(path: Path, *, shown_as: str) -> Study:
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is not a file; {_FORMS}")
        with absolute(str(path)).open("rb") as file:
            data = file.read(LIMIT_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"no file {path}; {_FORMS}") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {one_line(error) if not error.strerror else error.strerror}") from None
    return read_toml(data, shown_as=shown_as, name=_named(path.stem), folder=path.absolute().parent)


def _named(stem: str) -> str:
    """The study's name in the store, whatever its file is called."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).lstrip("._-")[:60] or "study"


def _nearest(reference: str) -> str:
    known = builtin_names()
    return nearest(reference, known) if known else _FORMS
