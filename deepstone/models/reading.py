"""Reads a user's file: finds it, reads it within a size limit, and hashes its content."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from deepstone.errors import UsageError, close_names

FILE_LIMIT_BYTES = 64 * 2**20
FORMS = (
    "a model is a name from `deepstone models`, path/to/file.py:function, path/to/graph.json, "
    "path/to/net.prototxt or path/to/net.onnx"
)
_SUFFIXES = (".py", ".json", ".prototxt", ".onnx")


def absolute(path: str) -> Path:
    if not path.isprintable():
        raise UsageError(f"{path!r} has characters that cannot be shown; rename the file")
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        raise UsageError(f"cannot follow {path}: {one_line(error)}") from error


def meant(path: Path) -> str:
    """The files beside it whose names are near, as the end of a message; empty if there is none."""
    suffixes = (path.suffix,) if path.suffix in _SUFFIXES else _SUFFIXES
    try:
        beside = [each for each in path.parent.iterdir() if each.suffix in suffixes and each.name.isprintable()]
    except OSError:
        return ""
    close = close_names(path.stem, {each.stem for each in beside})
    found = sorted((each for each in beside if each.stem in close), key=lambda each: close.index(each.stem))
    return f"did you mean {' or '.join(map(str, found[:3]))}?" if found else ""


def read_file(path: Path, limit_bytes: int = FILE_LIMIT_BYTES) -> bytes:
    try:
        if not path.exists():
            raise UsageError(f"no file {path}; {meant(path) or FORMS}")
        if not path.is_file():
            raise UsageError(f"{path} is not a file; {FORMS}")
        with path.open("rb") as file:
            too_large = os.fstat(file.fileno()).st_size > limit_bytes  # checked first: it may not fit in memory
            content = b"" if too_large else file.read(limit_bytes + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if too_large or len(content) > limit_bytes:
        raise UsageError(f"{path} is larger than {limit_bytes // 2**20} MiB; no model's description is")
    return content


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
