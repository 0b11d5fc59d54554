"""Writes a graph to a file, in the format of its name. The file is written completely or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from deepstone.durable import write_whole
from deepstone.errors import UsageError, reason, remedy
from deepstone.graph.graph import Graph
from deepstone.setups.axes import AXES


def export(graph: Graph, target: Path, *, overwrite: bool) -> None:
    """Write the graph. Raises UsageError with one line for an impossible name, path or graph."""
    form = _FORMS.get(target.suffix)
    if form is None:
        raise UsageError(f"{target}: the name must end in {', '.join(_FORMS)}, which says what to write")
    path = target.expanduser().absolute()
    if path.is_dir():
        raise UsageError(f"{target} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"{target}: there is no folder {path.parent}; make it first")
    if path.exists() and not overwrite:
        raise UsageError(f"{target} is there already; --force writes over it")
    content = form(graph)
    try:
        write_whole(content, path)
    except OSError as error:
        advice = remedy(error, "name a file elsewhere")
        raise UsageError(f"cannot write {path}: {reason(error)}; {advice}") from error


def _json(graph: Graph) -> bytes:
    if graph.opaque:
        raise UsageError(f"{graph.name} is a torch module of your own; its graph says nothing without its file")
    described = graph.to_json()
    layers = ",\n".join(f"    {json.dumps(layer)}" for layer in described["layers"])
    schema, name = described["schema"], json.dumps(described["name"])
    return f'{{\n  "schema": {schema},\n  "name": {name},\n  "layers": [\n{layers}\n  ]\n}}\n'.encode()


def _onnx(graph: Graph) -> bytes:
    from deepstone.exchange.onnx_write import write

    return write(graph)


def _prototxt(graph: Graph) -> bytes:
    from deepstone.models.caffe.write import prototxt

    return prototxt(graph, batch=int(AXES["batch"].default)).encode()


_FORMS: Final[Mapping[str, Callable[[Graph], bytes]]] = {".onnx": _onnx, ".json": _json, ".prototxt": _prototxt}
