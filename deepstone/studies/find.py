"""Finds the study that a command line names: one that ships with Deepstone, a TOML file, or a function in a Python
file. AXIS=VALUE words after it replace the study's own values.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from deepstone.errors import UsageError, nearest, shown
from deepstone.models.program import call
from deepstone.models.reading import absolute, one_line, read_file
from deepstone.models.zoo import ZOO
from deepstone.results.identity import canonical_sha256
from deepstone.results.plain import is_object
from deepstone.setups.axes import AXES
from deepstone.studies.read import OF_PEAKS, Source, no_use_in, read_table
from deepstone.studies.study import Study, Sweep
from deepstone.studies.toml_lines import places
from deepstone.studies.values import Listed, parse_value

LIMIT_BYTES: Final = 2**20
BUILTIN: Final = Path(__file__).parent / "builtin"
_FORMS: Final = "a study is a name from `deepstone study --list`, path/to/study.toml or path/to/file.py:function"
_NAME_DIGITS: Final = 8


def builtin_names() -> list[str]:
    return sorted(path.stem for path in BUILTIN.glob("*.toml"))


def find_study(reference: str) -> Study:
    """Raises UsageError if there is none, or if it is invalid."""
    path, _, function = reference.rpartition(":")
    if path.endswith(".py"):
        name = _named(f"{Path(path).stem}-{function}")
        return _read_python(absolute(path), function, shown_as=reference, name=name)
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
    """Read a study in TOML; the file gives its name."""
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
    """Return the study's name in the store, for any file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).lstrip("._-")[:60] or "study"


def _nearest(reference: str) -> str:
    known = builtin_names()
    return nearest(reference, known) if known else _FORMS


def read_toml(data: bytes, *, shown_as: str, name: str, folder: Path | None = None) -> Study:
    """`shown_as` is the file's name in messages. Raises UsageError for any mistake in it."""
    if len(data) > LIMIT_BYTES:
        raise UsageError(f"{shown_as}: is larger than {LIMIT_BYTES // 2**20} MiB; no study is")
    try:
        text = data.decode("utf-8")
        table = tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"{shown_as}: is nested too deeply") from None
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UsageError(f"{shown_as}, line {line}: is not UTF-8 text") from None
    except ValueError as error:  # the message of tomllib names the line
        raise UsageError(f"{shown_as}: is not TOML: {shown(' '.join(str(error).split()))}") from None
    return read_table(table, Source(shown=shown_as, folder=folder, lines=places(text)), name=name)


def _read_python(path: Path, function: str, *, shown_as: str, name: str) -> Study:
    """Raises UsageError with the line of the file at which its program fails."""
    if not path.is_file():
        raise UsageError(f"no file {path}; a study is made by a function in a Python file, as in my_study.py:make")
    returned = call(path, read_file(path), function)
    if isinstance(returned, Study):
        return returned
    if not is_object(returned):
        raise UsageError(
            f"{shown_as}: returned {type(returned).__name__}, not a dict as a study file holds, nor a Study"
        )
    return read_table(returned, Source(shown=shown_as, folder=path.parent), name=name)


def with_words(study: Study, words: Sequence[str]) -> Study:
    """Return the study with these values in all its sweeps, under a new name. Raises UsageError for an invalid word."""
    if not words:
        return study
    models: tuple[str, ...] = ()
    axes: dict[str, Listed] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"{word!r} is not AXIS=VALUE, as in batch=32; `deepstone axes` lists the axes")
        if name in axes or (name == "model" and models):
            raise UsageError(f"{name}: given twice; write {name}=A,B for several values")
        parts = [part.strip() for part in text.split(",")]
        if len(set(parts)) != len(parts):
            raise UsageError(f"{shown(word)}: a value is listed twice")
        if name == "model":
            models = tuple(_model(part) for part in parts)
        elif name in AXES:
            axes[name] = Listed(values=tuple(parse_value(name, part) for part in parts))
        else:
            raise UsageError(f"{shown(name)}: no such axis; {nearest(name, (*AXES, 'model'))}")
    sweeps = tuple(_with(sweep, models, axes) for sweep in study.sweeps)
    name = f"{study.name}-{canonical_sha256(sorted(words))[:_NAME_DIGITS]}"
    return replace(study, name=name, sweeps=sweeps)


def _model(reference: str) -> str:
    """Check a name against the zoo; files are checked when they are loaded."""
    if reference not in ZOO and not any(character in reference for character in "/:."):
        raise UsageError(f"no model {reference!r} in the zoo; {nearest(reference, ZOO.names())}")
    return reference


def _with(sweep: Sweep, models: tuple[str, ...], axes: dict[str, Listed]) -> Sweep:
    if sweep.measure == "peaks":  # a property of the machine: the axes of a network do not apply
        return replace(sweep, axes={**sweep.axes, **{axis: axes[axis] for axis in OF_PEAKS if axis in axes}})
    reason = next(filter(None, (no_use_in(sweep.measure, axis, listed) for axis, listed in axes.items())), "")
    if reason:
        raise UsageError(reason)
    return replace(sweep, models=models or sweep.models, axes={**sweep.axes, **axes})
