"""The layers of a graph on Neon 2, one after the other, forward and backward. In the syntax of Python 3.6."""

from typing import Callable, Dict, List, Sequence

from deepstone.backends.legacy.neon2_joins import AddNode, ConcatNode, MklConcatNode
from deepstone.backends.legacy.neon2_layers import (
    ConvNode,
    DenseNode,
    DropNode,
    FlattenNode,
    LossNode,
    PassNode,
    ReluNode,
)
from deepstone.backends.legacy.neon2_node import Node, Settings, Sum, Tensor
from deepstone.backends.legacy.neon2_norms import LrnNode, NormNode, PixelNormNode
from deepstone.backends.legacy.neon2_pools import GlobalPoolNode, PoolNode
from deepstone.backends.wire_graph import LOSS, WireLayer

Stamp = Callable[[str, str], None]

SUMS = "sums of gradients"
# Layers whose output their own backward does not read, so that a relu may write over it.
_OUTPUT_UNREAD = ("conv", "dense", "batch_norm", "max_pool", "average_pool", "global_pool", "add", "concat")

_NODES: Dict[str, Callable[..., Node]] = {
    "conv": ConvNode,
    "dense": DenseNode,
    "batch_norm": NormNode,
    "relu": ReluNode,
    "max_pool": PoolNode,
    "average_pool": PoolNode,
    "global_pool": GlobalPoolNode,
    "lrn": LrnNode,
    "dropout": DropNode,
    "add": AddNode,
    "concat": ConcatNode,
    "flatten": FlattenNode,
    LOSS: LossNode,
}
OPS = ["input"] + list(_NODES)


def lowered(settings: Settings, layer: WireLayer) -> Node:
    if layer.op == "lrn" and layer.has["within_channel"]:
        return PixelNormNode(settings, layer)
    if layer.op == "dropout" and not settings.dropout:
        return PassNode(settings, layer)
    if layer.op == "concat" and settings.mkl:
        return MklConcatNode(settings, layer)
    return _NODES[layer.op](settings, layer)


def _no_stamp(layer: str, what: str) -> None:
    """Steps that are timed as a whole have none."""


class Network:
    """Some layers of the graph, or all, which read tensors by the names of their sources."""

    def __init__(self, settings: Settings, layers: Sequence[WireLayer], wanted: Callable[[str], bool]) -> None:
        """`wanted` says of a layer whether its output needs a gradient."""
        graph = settings.graph
        self.nodes: List[Node] = []
        self.by_name: Dict[str, Node] = {}
        for layer in layers:
            if layer.op == "input":
                continue
            node = lowered(settings, layer)
            node.wanted = [settings.training and wanted(source) for source in layer.inputs]
            source = graph.by_name[layer.inputs[0]]
            node.in_place = len(layers) > 1 and source.op in _OUTPUT_UNREAD and graph.takers(source.name) == 1
            node.make()
            self.nodes.append(node)
            self.by_name[layer.name] = node
        self._settings, self._wanted = settings, wanted
        self._backward = [node for node in reversed(self.nodes) if settings.training and wanted(node.layer.name)]
        self._sums: Dict[str, Sum] = {}
        self._make_sums()

    def _make_sums(self) -> None:
        counts: Dict[str, int] = {}
        for node in self._backward:
            for source, wanted in zip(node.layer.inputs, node.wanted):
                counts[source] = counts.get(source, 0) + int(wanted)
        for source, count in counts.items():
            if count > 1:
                shape = self._settings.graph.shape(source)
                self._sums[source] = Sum(self._settings, shape, count, self.nodes[0].buffer(shape))

    @property
    def losses(self) -> List[LossNode]:
        return [node for node in self.nodes if isinstance(node, LossNode)]

    def forward(self, samples: Tensor, stamp: Stamp = _no_stamp) -> None:
        """`stamp` is called after each layer."""
        outputs = {self._settings.graph.input.name: samples}
        for node in self.nodes:
            outputs[node.layer.name] = node.forward([outputs[source] for source in node.layer.inputs])
            stamp(node.layer.name, "forward")

    def backward(self, stamp: Stamp = _no_stamp) -> None:
        """`stamp` is called after each sum of gradients too, of no layer."""
        met: Dict[str, List[Tensor]] = {}
        for node in self._backward:
            error = self._error(node.layer.name, met)
            stamp("", SUMS)
            for source, found in zip(node.layer.inputs, node.backward(error)):
                if found is not None:
                    met.setdefault(source, []).append(found)
            stamp(node.layer.name, "backward")
        self.input_error = self._error(self._settings.graph.input.name, met)

    def _error(self, name: str, met: Dict[str, List[Tensor]]) -> Tensor:
        """Return the gradient of a layer's output: the sum of what those gave that read it."""
        found = met.pop(name, [])
        return self._sums[name](found) if len(found) > 1 else found[0] if found else None
