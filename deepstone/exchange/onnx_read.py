"""Reads an ONNX file to a layer graph: only the structure, because Deepstone sets its own initial weights.

Each node becomes a layer, or nothing if it only renames or computes a shape. One error lists all nodes without a layer.
Every output gets a loss.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from deepstone.errors import GraphError
from deepstone.exchange import onnx_sizes
from deepstone.exchange.onnx_attributes import Refused
from deepstone.exchange.onnx_file import PRODUCER, OnnxFile, parse, readable
from deepstone.exchange.onnx_nodes import HANDLERS
from deepstone.exchange.onnx_reader import REMEDY, Reader, some
from deepstone.graph.graph import Graph
from deepstone.graph.ops import Shape

_LISTED: Final = 10  # kinds that one line holds
_NODES_LISTED: Final = 3
_RANDOM: Final = ("Bernoulli", "RandomUniform", "RandomUniformLike")
DROPS: Final = "if it drops branches at random, set its drop path (stochastic depth) to 0 and export it again"


def read(path: Path, content: bytes, *, image: Shape | None = None) -> Graph:
    """Read the graph. Raises GraphError with one line that begins with the file's name.

    `image` replaces the size of images in the file.
    """
    file = parse(path, content)
    name = file.name if file.producer == PRODUCER else path.stem
    try:
        _refuse_unknown(file)
        return _graph(file, name, image)
    except (GraphError, Refused) as error:
        own = "; the file is for images of its own size: leave --input out" if _needs_own_size(file, image) else ""
        raise GraphError(f"{path}: {error}{own}") from error


def _graph(file: OnnxFile, name: str, image: Shape | None) -> Graph:
    reader = Reader(file, HANDLERS, image)
    reader.take_nodes()
    return Graph(name, reader.finished())


def _needs_own_size(file: OnnxFile, image: Shape | None) -> bool:
    """Tell whether the file, which cannot be read with images of this size, can be read with its own: exporters write
    the shapes of some layers as constants."""
    if image is None:
        return False
    try:
        _refuse_unknown(file)
        _graph(file, "own", None)
    except (GraphError, Refused):
        return False
    return True


def _refuse_unknown(file: OnnxFile) -> None:
    """Refuse all kinds of nodes that have no layer, with their nodes."""
    unknown: dict[str, list[str]] = {}
    for node in file.nodes:
        if node.op not in HANDLERS and node.op not in onnx_sizes.COMPUTES:
            unknown.setdefault(node.op, []).append(readable(node.name))
    if unknown:
        kinds = [f"{readable(op)} ({some(nodes, _NODES_LISTED)})" for op, nodes in unknown.items()]
        one = len(kinds) == 1
        what = f"{len(kinds)} {'kind' if one else 'kinds'} of nodes {'has' if one else 'have'} no layer here"
        drops = not unknown.keys().isdisjoint(_RANDOM)
        remedy = f"{DROPS}; {REMEDY}" if drops else REMEDY
        raise Refused(f"{what}: {some(kinds, _LISTED)}; {remedy}")
