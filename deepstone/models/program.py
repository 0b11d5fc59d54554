"""Runs a user's Python file and calls the function that they named.

The file may import its siblings and print; no bytecode is written. Errors name the line of the file.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
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
    """The names of a file's functions without arguments, in its order, then those of classes; found without running
    it."""
    body = _body(content)
    names = [name for name, can_be_called in _bound(body) if can_be_called and not name.startswith("_")]
    classes = {node.name for node in _reached(body) if isinstance(node, ast.ClassDef)}
    return sorted(names, key=lambda name: name in classes)


def why_not_callable(path: Path, content: bytes, name: str) -> str:
    """Return why a file has nothing of this name that makes a model, as far as that shows without running it; empty if
    it may have: a name may be imported, or be another name of something."""
    try:
        with explaining(path, name):
            compile(content, str(path), "exec", dont_inherit=True)
    except UsageError as error:
        return str(error)
    body = _body(content)
    known = dict(_bound(body))
    if name not in known:
        is_open = any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in _reached(body))
        return "" if is_open else _no_function(path, name, functions_in(content))
    return f"{path}: {name} must need no arguments" if known[name] is False else ""


def _no_function(path: Path, name: str, known: Sequence[str]) -> str:
    return f"{path} has no function {name!r}; {nearest(name, known) if known else 'it defines none'}"


def _body(content: bytes) -> Sequence[ast.stmt]:
    try:
        return ast.parse(content).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the latter two: nested too deeply
        return []


def _reached(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when a file is, also those within `if`, `try`, `with` and loops."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _reached([each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt)])
            for handler in getattr(node, "handlers", ()):
                yield from _reached(handler.body)


def _bound(body: Sequence[ast.stmt]) -> Iterator[tuple[str, bool | None]]:
    """Yield the names that a file binds, the last of each name deciding, with whether a call without arguments is
    possible; None where that does not show."""
    found: dict[str, bool | None] = {}
    for node in _reached(body):
        match node:
            case ast.FunctionDef():
                found[node.name] = not _required(node.args)
            case ast.ClassDef():
                found[node.name] = _is_plain_class(node)
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                callable_ = _is_callable(node.value, found)
                for target in targets:
                    found |= {each.id: callable_ for each in ast.walk(target) if isinstance(each, ast.Name)}
            case ast.Import() | ast.ImportFrom():
                found |= {(alias.asname or alias.name).partition(".")[0]: None for alias in node.names}
            case _:
                pass
    yield from found.items()


def _is_callable(value: ast.expr | None, known: Mapping[str, bool | None]) -> bool | None:
    if isinstance(value, ast.Lambda):
        return not _required(value.args)
    return known.get(value.id) if isinstance(value, ast.Name) else None


def _is_plain_class(node: ast.ClassDef) -> bool:
    """Whether its own constructor, if it has one, needs no arguments but `self`."""
    made = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    return not made or not _required(made[-1].args, given=1)


def _required(parameters: ast.arguments, *, given: int = 0) -> bool:
    positional = len(parameters.posonlyargs) + len(parameters.args) - len(parameters.defaults) - given
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
        raise UsageError(_no_function(path, name, own))
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
    """Also a class that needs no arguments: it makes a model too."""
    if not isinstance(value, FunctionType | type) or value.__module__ != module.__name__:
        return False
    if isinstance(value, FunctionType):
        return True
    try:
        inspect.signature(value).bind()
    except (TypeError, ValueError):
        return False
    return True


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
