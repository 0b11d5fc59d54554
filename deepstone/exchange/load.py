"""The front door for models: everything models/load.py knows, and what needs more than this Python to be read."""

from __future__ import annotations

import sys
from pathlib import Path

from deepstone.graph.graph import Graph
from deepstone.models import load as own
from deepstone.models.load import ForeignModelError, LoadedModel
from deepstone.models.reading import absolute, read_file, sha256_of


def load_model(reference: str) -> LoadedModel:
    """The model that `reference` means; UsageError in one line when there is none, MissingError when a library is."""
    if reference.endswith(".onnx"):
        return _load_onnx(absolute(reference))
    path, _, function = reference.rpartition(":")
    if path.endswith(".py"):
        return _load_python(reference, absolute(path), function)
    return own.load_model(reference)


def _load_onnx(path: Path) -> LoadedModel:
    from deepstone.exchange.onnx_file import LIMIT_BYTES
    from deepstone.exchange.onnx_read import read

    content = read_file(path, LIMIT_BYTES)
    return _loaded(read(path, content), path, content)


def _load_python(reference: str, path: Path, function: str) -> LoadedModel:
    """A file that imports torch is looked at in torch's own Python, which need not be ours."""
    from deepstone.exchange.own_module import imports, look_at

    content = read_file(path)
    if not imports(content, own.FRAMEWORK):
        try:
            return own.load_model(reference)
        except ForeignModelError:
            pass  # it is a sibling of the file that imports torch
    return _loaded(look_at(path, content, function, say=_say), path, content)


def _say(line: str) -> None:
    """What a user's file prints goes to standard error, wherever it runs."""
    sys.stderr.write(f"{line}\n")


def _loaded(graph: Graph, path: Path, content: bytes) -> LoadedModel:
    return LoadedModel(graph=graph, name=graph.name, source=str(path), file_sha256=sha256_of(content))
