"""Who the operations that TensorFlow runs belong to, by the names of layers that their nodes carry.

TensorFlow rewrites a recorded program before it runs it. A fused node keeps the name of one of those that it stands
for, mostly of the last: `layer_relu1/Relu` may be a convolution, its bias and the activation after it. The program as
it was recorded tells, node by node backward, whose convolution that is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from deepstone.backends.owners import Owner, owner_of
from deepstone.backends.scopes import Scopes

# How time is shared, in words for the reader of a result.
SHARING = (
    "an operation that TensorFlow fused from several layers' (a convolution and the activation after it) goes to the "
    "layer of the convolution, matrix product or batch norm in it"
)

_FUSED = re.compile(r"Fused(Conv2D|MatMul|DepthwiseConv2dNative|BatchNormEx)")
_CORES = frozenset({"Conv2D", "DepthwiseConv2dNative", "MatMul", "FusedBatchNormV3"})
_MOST_STEPS = 8  # from the last of the nodes that are fused to the first
_IDLE = frozenset({"Const", "Identity", "NoOp", "Placeholder", "ReadVariableOp"})


class NodeOwners:
    """Of one recorded program; `nodes` are its operations."""

    def __init__(self, nodes: Iterable[Any], scopes: Scopes) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._scopes = scopes
        self._known: dict[tuple[str, str], Owner] = {}

    def of(self, node: str, kind: str) -> Owner:
        """`kind` is the operation that runs in the node's place."""
        if (node, kind) not in self._known:
            self._known[node, kind] = owner_of(self._core(node, kind), self._scopes) or _unowned(node, kind)
        return self._known[node, kind]

    def of_layers(self) -> set[Owner]:
        """The layers, forward and backward, that any recorded node is of."""
        found = {owner_of(name, self._scopes) for name, node in self._nodes.items() if node.type not in _IDLE}
        return {owner for owner in found if owner is not None and owner.is_layer}

    def _core(self, name: str, kind: str) -> str:
        node = self._nodes.get(name)
        if node is None or _FUSED.search(kind) is None:
            return name
        for _ in range(_MOST_STEPS):
            if node.type in _CORES:
                return node.name
            if not node.inputs:
                break
            node = node.inputs[0].op
        return name


def _unowned(node: str, kind: str) -> Owner:
    if kind == "AddN" or "AddN" in node:
        return Owner(part="other", name="sums of gradients")
    if "Random" in kind:
        return Owner(part="other", name="random numbers")
    return Owner(part="other", name="outside layers")
