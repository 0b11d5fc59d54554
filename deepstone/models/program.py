"""Runs a user's Python file and calls the function that they named.

The file may import its siblings and print; no bytecode is written. Errors name the line of the file.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import FunctionType, ModuleType
from typing import cast

from deepstone.errors import GraphError, UsageError, nearest
from deepstone.models.reading import one_line, sha256_of


def call(path: Path, content: bytes, function: str) -> object:
    """Return the result of the function. Then unload its siblings: the next file has its own."""
    module = _module(path, content)
    with _visiting(module, path.parent):
        return _called(module, path, content, function)


def call_to_stay(path: Path, content: bytes, function: str) -> tuple[object, ModuleType]:
    """Do the same in a process that continues to use the result: the file and its siblings stay importable."""
    module = _module(path, content)
    _enter(module, path.parent)
    return _called(module, path, content, function), module


def functions_in(content: bytes) -> list[str]:
    """The names of a file's functions without arguments, in its order, found without running it."""
    try:
        body = ast.parse(content).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the latter two: nested too deeply
        return []
    names: list[str] = []
    for node in body:
        if isinstance(node, ast.FunctionDef) and not _required(node.args):
            names.append(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda) and not _required(node.value.args):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [name for name in names if not name.startswith("_")]


def _required(parameters: ast.arguments) -> bool:
    positional = len(parameters.posonlyargs) + len(parameters.args) - len(parameters.defaults)
    return positional > 0 or None in parameters.kw_defaults


def _module(path: Path, content: bytes) -> ModuleType:
    module = ModuleType(f"deepstone_model_{sha256_of(content)[:16]}")
    module.__file__ = str(path)
    return module


def _called(module: ModuleType, path: Path, content: bytes, function: str) -> object:
    with redirect_stdout(sys.stderr):
        with explaining(path, function):
            exec(compile(content, str(path), "exec", dont_inherit=True), vars(module))  # noqa: S102  what was hashed
        make = _find(module, path, function)
        with explaining(path, function):
            return make()


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
        raise UsageError(f"{path}: {name} must need no arguments: {one_line(error)}") from error
    except ValueError:
        pass  # written in C, without a signature: the call will show
    return cast(Callable[[], object], found)


def _is_own_function(value: object, module: ModuleType) -> bool:
    return isinstance(value, FunctionType) and value.__module__ == module.__name__


@contextmanager
def explaining(path: Path, function: str) -> Generator[None]:
    """Turn exceptions of the user's program into one line that names the line of their file."""
    try:
        yield
    except (Exception, SystemExit) as error:
        line = _line_in(path, error)
        where = f"{path}, line {line}" if line else f"{path}:{function}"
        kind = GraphError if isinstance(error, GraphError) else UsageError
        raise kind(f"{where}: {type(error).__name__}: {one_line(error)}{_remedy(error)}") from error


def _remedy(error: BaseException) -> str:
    """Name the Python in which a missing package must be installed: it may not be ours."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    return f"; install what it comes from for {sys.executable}, which runs the file"


def _line_in(path: Path, error: BaseException) -> int | None:
    """Return the innermost line of this file in the traceback."""
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(path) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _enter(module: ModuleType, folder: Path) -> None:
    """Let a file import its siblings, without writing bytecode."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(folder))
    sys.modules[module.__name__] = module  # dataclasses and pickle look there
    importlib.invalidate_caches()


@contextmanager
def _visiting(module: ModuleType, folder: Path) -> Generator[None]:
    before = set(sys.modules)
    wrote_none = sys.dont_write_bytecode
    _enter(module, folder)
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
