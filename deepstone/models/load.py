"""Loads a model from a reference: a name in the zoo, `file.py:function`, `graph.json` or a Caffe `net.prototxt`.

Commands load models with exchange/load.py, which also reads models that need a library or a framework, and never runs a
Python file in the controller itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepstone.errors import GraphError, UsageError, nearest
from deepstone.graph.graph import Graph
from deepstone.graph.ops import Shape
from deepstone.models.program import call, functions_in
from deepstone.models.reading import FORMS, absolute, meant, one_line, read_file, sha256_of
from deepstone.models.zoo import ZOO, make

FRAMEWORK = "torch"  # a file may return a module of this framework instead of a graph


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedModel:
    """`source` is "zoo" or the file's absolute path; `file_sha256` is the hash of the file, empty for the zoo."""

    graph: Graph
    name: str
    source: str
    file_sha256: str


class ForeignModelError(UsageError):
    """The file needs a framework's Python: it imports the framework, or its function returns a module of it."""


class MissingModuleError(UsageError):
    """The file imports a package that this Python does not have; a framework's Python may have it."""


def load_in_process(reference: str, *, image: Shape | None = None) -> LoadedModel:
    """Return the model of a reference. Raises UsageError. May run a Python file."""
    if reference in ZOO:
        return LoadedModel(graph=make(reference), name=reference, source="zoo", file_sha256="")
    path, _, function = reference.rpartition(":")
    if path.endswith(".py"):
        return _load_python(absolute(path), function)
    if reference.endswith(".json"):
        return _load_json(absolute(reference))
    if reference.endswith(".prototxt"):
        from deepstone.models.caffe.network import load_prototxt

        return load_prototxt(reference, image=image)[0]
    if reference.endswith(".py"):
        raise UsageError(
            f"{reference!r} does not say which function makes the model; write {_with_function(reference)}"
        )
    if any(character in reference for character in "/:."):
        raise UsageError(f"{reference!r} is no model; {meant(absolute(reference)) or FORMS}")
    raise UsageError(f"no model {reference!r} in the zoo; {nearest(reference, ZOO.names())}")


def _with_function(reference: str) -> str:
    path = absolute(reference)
    functions = functions_in(read_file(path)) if path.is_file() else []
    return " or ".join(f"{reference}:{name}" for name in functions[:3]) or "FILE.py:FUNCTION"


def describe(path: Path, function: str) -> dict[str, Any]:
    """Describe the graph that the function returns, for the controller; called in a separate process."""
    loaded = _load_python(path, function)
    return {"graph": loaded.graph.to_json(), "sha256": loaded.file_sha256}


def _load_json(path: Path) -> LoadedModel:
    content = read_file(path)
    data = _decoded(path, content)
    try:
        graph = Graph.from_json(data)
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error
    if graph.opaque:  # reading a file must not run another file
        raise GraphError(f"{path}: layer {graph.opaque[0].name!r}: a module is given as FILE.py:FUNCTION, not in JSON")
    return LoadedModel(graph=graph, name=graph.name, source=str(path), file_sha256=sha256_of(content))


def _decoded(path: Path, content: bytes) -> object:
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise GraphError(f"{path} is not JSON: {error.msg} at {where}; write what Graph.to_json gives") from error
    except (ValueError, RecursionError) as error:  # invalid UTF-8, a number of thousands of digits, deep nesting
        raise GraphError(f"{path} is not JSON we can read: {one_line(error)}") from error


def _load_python(path: Path, function: str) -> LoadedModel:
    content = read_file(path)
    try:
        graph = call(path, content, function)
    except UsageError as error:
        cause = error.__cause__
        if not isinstance(cause, ModuleNotFoundError):
            raise
        if (cause.name or "").partition(".")[0] == FRAMEWORK:
            raise ForeignModelError(str(error)) from cause
        raise MissingModuleError(str(error)) from cause
    if not isinstance(graph, Graph):
        raise _no_graph(path, function, graph)
    return LoadedModel(graph=graph, name=graph.name, source=str(path), file_sha256=sha256_of(content))


def _no_graph(path: Path, function: str, result: object) -> UsageError:
    returned = f"{path}: {function} returned {type(result).__name__}"
    if any(base.__module__.partition(".")[0] == FRAMEWORK for base in type(result).__mro__):
        return ForeignModelError(f"{returned}, a module of {FRAMEWORK}")
    return UsageError(
        f"{returned}, not a Graph; make one with deepstone.graph.builder.Builder and return its build(), "
        f"or return a {FRAMEWORK}.nn.Module"
    )
