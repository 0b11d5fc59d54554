"""One isolated layer: its inputs, and the passes that are timed.

In the syntax of Python 3.6. Arrays have the layer's real shapes and are sampled from N(0, 1), always the same.
"""

from typing import Any, Callable, Dict, List, Sequence, Set, Tuple

import numpy as np

from deepstone.backends.wire_graph import LOSS, WireGraph
from deepstone.graph.batch import seeded

Program = Callable[[], None]


class Isolation:
    """The layer `name` of a job, and its role in a step of that job."""

    def __init__(self, graph: WireGraph, name: str, request: Dict[str, Any], batch: int) -> None:
        self.layer = graph.by_name[name]
        self.training = request["phase"] != "forward"
        self._graph = graph
        self._batch = batch
        self._dropout = request["dropout"] == "on"
        depends_on_weights = _after_weights(graph)
        # The source layers whose output has a gradient in a step.
        self.sources = [
            source for source in self.layer.sources if request["input_grad"] == "on" or source in depends_on_weights
        ]

    def inputs(self) -> Dict[str, Any]:
        """Return inputs by source layer, float32, batch first, channels first."""
        return {source: _sampled((self._batch,) + self._graph.shape(source), source) for source in self.layer.sources}

    def upstream(self) -> Any:
        """Return the gradient of the layer's output; that of a loss is one number."""
        shape = () if self.layer.op == LOSS else (self._batch,) + self.layer.output
        return _sampled(shape, self.layer.name + ": upstream")

    def programs(
        self,
        forward: Callable[[], Program],
        backward: Callable[[Sequence[str], bool], Program],
        with_forward: bool = False,
        moves_to_flatten: bool = False,
    ) -> Dict[str, Program]:
        """Return programs by the names in `IsolatedLayer`; none if the layer only passes on an array.

        `backward(sources, trained)` returns the program for the gradients of those inputs, and of the weights if
        `trained`; `with_forward`: it runs forward too. `moves_to_flatten`: whether flatten copies data.
        """
        op = self.layer.op
        if op == "input" or (op == "dropout" and not self._dropout) or (op == "flatten" and not moves_to_flatten):
            return {}
        programs = {"forward": forward()}
        for name, sources, trained in self._gradients() if self.training else []:
            programs["forward+" + name if with_forward else name] = backward(sources, trained)
        return programs

    def _gradients(self) -> List[Tuple[str, List[str], bool]]:
        trained = bool(self.layer.parameters)
        found: List[Tuple[str, List[str], bool]] = []
        if self.sources or trained:
            found.append(("backward", self.sources, trained))
        if self.layer.op in ("conv", "dense"):
            found.append(("weight", [], True))
            if self.sources:
                found.append(("data", self.sources, False))
        return found


def _after_weights(graph: WireGraph) -> Set[str]:
    """Return the names of layers whose output depends on weights."""
    found: Set[str] = set()
    for layer in graph.layers:
        if layer.parameters or any(source in found for source in layer.inputs):
            found.add(layer.name)
    return found


def _sampled(shape: Tuple[int, ...], name: str) -> Any:
    random = seeded(0, name)
    array = np.empty(shape, np.float32)
    for sample in array if shape else [array]:  # one at a time: the generator works in float64
        sample[...] = random.standard_normal(sample.shape)
    return array
