"""A model from what the user wrote: a name in the zoo, `file.py:function`, or `graph.json`.

A user's file is a program and is run as one: it may import its siblings and print, and nothing is written beside it.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import cast

from deepstone.errors import GraphError, UsageError, nearest
from deepstone.graph.graph import Graph
from deepstone.models.zoo import ZOO

FILE_LIMIT_BYTES = 64 * 2**20
FORMS = "a model is a name from `deepstone models`, path/to/file.py:function or path/to/graph.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedModel:
    """`source` is "zoo" or the file's absolute path; `file_sha256` is that of the file alone, empty for the zoo."""

    graph: Graph
    name: str
    source: str
    file_sha256: str


def load_model(reference: str) -> LoadedModel:
    """The model that `reference` means, or a UsageError of one line that says why there is none."""
    if reference in ZOO:
        return LoadedModel(graph=ZOO[reference].make(), name=reference, source="zoo", file_sha256="")
    path, _, function = reference.rpartition(":")
    if path.endswith(".py"):
        return _load_python(_absolute(path), function)
    if reference.endswith(".json"):
        return _load_json(_absolute(reference))
    if reference.endswith(".py"):
        raise UsageError(f"{reference!r} does not say which function makes the graph; write FILE.py:FUNCTION")
    if any(character in reference for character in "/:."):
        raise UsageError(f"{reference!r} is no model; {FORMS}")
    raise UsageError(f"no model {reference!r} in the zoo; {nearest(reference, ZOO)}")


def _absolute(path: str) -> Path:
    if not path.isprintable():
        raise UsageError(f"{path!r} has characters that cannot be shown; rename the file")
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        raise UsageError(f"cannot follow {path}: {_one_line(error)}") from error


def _read(path: Path) -> bytes:
    try:
        if not path.exists():
            raise UsageError(f"no file {path}; {FORMS}")
        if not path.is_file():
            raise UsageError(f"{path} is not a file; {FORMS}")
        with path.open("rb") as file:
            content = file.read(FILE_LIMIT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > FILE_LIMIT_BYTES:
        raise UsageError(f"{path} is larger than {FILE_LIMIT_BYTES // 2**20} MiB; no model's description is")
    return content


def _load_json(path: Path) -> LoadedModel:
    content = _read(path)
    data = _decoded(path, content)
    try:
        graph = Graph.from_json(data)
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error
    return LoadedModel(graph=graph, name=graph.name, source=str(path), file_sha256=_sha256(content))


def _decoded(path: Path, content: bytes) -> object:
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise GraphError(f"{path} is not JSON: {error.msg} at {where}; write what Graph.to_json gives") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, a number of thousands of digits, nested too deeply
        raise GraphError(f"{path} is not JSON we can read: {_one_line(error)}") from error


def _load_python(path: Path, function: str) -> LoadedModel:
    content = _read(path)
    module = ModuleType(f"deepstone_model_{_sha256(content)[:16]}")
    module.__file__ = str(path)
    with _running(module, path.parent), redirect_stdout(sys.stderr):
        with _explaining(path, function):
            exec(compile(content, str(path), "exec", dont_inherit=True), vars(module))  # noqa: S102  what was hashed
        make = _find(module, path, function)
        with _explaining(path, function):
            graph = make()
    if not isinstance(graph, Graph):
        raise UsageError(
            f"{path}: {function} returned {type(graph).__name__}, not a Graph; make one with "
            "deepstone.graph.builder.Builder and return its build() (a framework's own module is not accepted yet)"
        )
    return LoadedModel(graph=graph, name=graph.name, source=str(path), file_sha256=_sha256(content))


def _find(module: ModuleType, path: Path, name: str) -> Callable[[], object]:
    names = vars(module)
    if name not in names:
        own = [key for key, value in names.items() if _is_own_function(value, module)]
        raise UsageError(f"{path} has no function {name!r}; {nearest(name, own) if own else 'it defines none'}")
    found = names[name]
    if not callable(found):
        raise UsageError(f"{path}: {name} is {type(found).__name__}; name a function that returns a Graph")
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise UsageError(f"{path}: {name} must need no arguments: {_one_line(error)}") from error
    except ValueError:
        pass  # written in C, without a signature: calling it will tell
    return cast(Callable[[], object], found)


def _is_own_function(value: object, module: ModuleType) -> bool:
    return isinstance(value, FunctionType) and value.__module__ == module.__name__


@contextmanager
def _explaining(path: Path, function: str) -> Generator[None]:
    """Turns what the user's program raises into one line that names the line of their file."""
    try:
        yield
    except (Exception, SystemExit) as error:
        line = _line_in(path, error)
        where = f"{path}, line {line}" if line else f"{path}:{function}"
        kind = GraphError if isinstance(error, GraphError) else UsageError
        raise kind(f"{where}: {type(error).__name__}: {_one_line(error)}") from error


def _line_in(path: Path, error: BaseException) -> int | None:
    """The innermost line of this file that the error passed through."""
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(path) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


@contextmanager
def _running(module: ModuleType, folder: Path) -> Generator[None]:
    """Lets a file import its siblings, keeps bytecode off the disk, and forgets them all: the next file has its own."""
    before = set(sys.modules)
    wrote_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(folder))
    sys.modules[module.__name__] = module  # dataclasses and pickle look there
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.dont_write_bytecode = wrote_none
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
        siblings = [name for name in set(sys.modules) - before if _lies_in(folder, name.partition(".")[0])]
        for name in (module.__name__, *siblings):
            sys.modules.pop(name, None)


def _lies_in(folder: Path, top: str) -> bool:
    """Whether a top-level module is a file or package of this folder. Our own package never counts as the user's."""
    spec = getattr(sys.modules.get(top), "__spec__", None)
    if top == "deepstone" or spec is None:
        return False
    homes = [spec.origin or "", *(spec.submodule_search_locations or ())]
    return any(Path(home).parent == folder for home in homes)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
