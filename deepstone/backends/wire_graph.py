"""The graph in a worker, for backends that do not use `graph/`, and a runner for lowered layers.

In the syntax of Python 3.6: old frameworks need old Pythons, which cannot import `graph/`. Layers are read from JSON,
which includes every shape.
"""

from typing import Any, Callable, Dict, Iterable, List, Sequence, Tuple

from deepstone.backends.base import Unsupported

BUFFERS = {"batch_norm": ("running_mean", "running_var")}  # each has the shape of the weight
LOSS = "softmax_cross_entropy"

_Op = Callable[..., Any]


class WireLayer:
    """One layer in a worker. Its attributes are those of docs/graph.md, pairs as tuples."""

    def __init__(self, described: Dict[str, Any]) -> None:
        rest = dict(described)
        self.name: str = rest.pop("name")
        self.op: str = rest.pop("op")
        self.inputs: Tuple[str, ...] = tuple(rest.pop("inputs"))
        self.output: Tuple[int, ...] = tuple(rest.pop("output"))  # per sample
        self.parameters = {name: tuple(shape) for name, shape in rest.pop("parameters").items()}
        self.has: Dict[str, Any] = {key: _frozen(value) for key, value in rest.items()}

    @property
    def sources(self) -> List[str]:
        """Return the layers that it reads, each once."""
        return list(dict.fromkeys(self.inputs))

    @property
    def buffers(self) -> Tuple[str, ...]:
        return BUFFERS.get(self.op, ())

    def ends_outside(self, source: Sequence[int]) -> bool:
        """Whether a pool that rounds up has a last window outside the image, which the graph omits.

        Old frameworks compute it, so their result must be cut to `output`. `source` is the shape of the input.
        """
        if not self.has["ceil_mode"]:
            return False
        pad, kernel, stride = self.has["pad"], self.has["kernel"], self.has["stride"]
        for side in (0, 1):
            room = source[1 + side] + pad[2 * side] + pad[2 * side + 1] - kernel[side]
            if -(-room // stride[side]) + 1 != self.output[1 + side]:
                return True
        return False

    def places_that_count(self, source: Sequence[int]) -> Tuple[List[int], List[int]]:
        """Return how many rows and columns of each window of an average pool count in the divisor."""
        pad, kernel, stride = self.has["pad"], self.has["kernel"], self.has["stride"]
        found: List[List[int]] = []
        for side in (0, 1):
            before, after = pad[2 * side : 2 * side + 2] if self.has["count_pad"] else (0, 0)
            starts = [number * stride[side] - pad[2 * side] for number in range(self.output[1 + side])]
            end = source[1 + side] + after
            found.append([min(start + kernel[side], end) - max(start, -before) for start in starts])
        return found[0], found[1]

    def pad_is_even(self) -> bool:
        """Whether both ends of each side have the same padding, as some frameworks require."""
        top, bottom, left, right = self.has["pad"]
        return bool(top == bottom and left == right)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


class WireGraph:
    """The layers in their order, and shapes by name."""

    def __init__(self, described: Dict[str, Any]) -> None:
        self.layers = [WireLayer(layer) for layer in described["layers"]]
        self.by_name = {layer.name: layer for layer in self.layers}
        self.input = next(layer for layer in self.layers if layer.op == "input")
        self._takers: Dict[str, int] = {}
        for layer in self.layers:
            for name in layer.inputs:
                self._takers[name] = self._takers.get(name, 0) + 1

    def shape(self, name: str) -> Tuple[int, ...]:
        """Return the shape of a layer's output for one sample."""
        return self.by_name[name].output

    def takers(self, name: str) -> int:
        """Return how often a layer's output is used."""
        return self._takers.get(name, 0)


def refuse_other_ops(graph: WireGraph, known: Iterable[str], framework: str) -> None:
    """Raise Unsupported with all operations that the backend does not lower, each with a layer that needs it."""
    have = set(known)
    lacking: Dict[str, str] = {}
    for layer in graph.layers:
        if layer.op not in have:
            lacking.setdefault(layer.op, layer.name)
    if lacking:
        listed = ", ".join("%s (layer %r)" % pair for pair in sorted(lacking.items()))
        raise Unsupported("%s has no lowering of: %s" % (framework, listed))


def lowered_outputs(
    graph: WireGraph, lower: Callable[..., Any], samples: Any, labels: Any
) -> Tuple[Dict[str, Any], List[Any]]:
    """For frameworks with graphs: return every layer's output by name, and the losses."""
    outputs: Dict[str, Any] = {graph.input.name: samples}
    for layer in graph.layers:
        if layer.op != "input":
            given = [outputs[name] for name in layer.inputs]
            outputs[layer.name] = lower(layer, *given, labels) if layer.op == LOSS else lower(layer, *given)
    return outputs, [outputs[layer.name] for layer in graph.layers if layer.op == LOSS]


class InTurn:
    """Runs lowered layers one after the other: the network as a function of samples and labels.

    `lower` returns the function from a layer's inputs (and the labels for a loss) to its output. Layers read and write
    numbered slots, and each activation is freed after its last use, as in a hand-written forward function.
    """

    def __init__(self, graph: WireGraph, lower: Callable[[WireLayer], _Op]) -> None:
        numbers = {layer.name: number for number, layer in enumerate(graph.layers)}
        last = {name: layer.name for layer in graph.layers for name in layer.inputs}
        self._plan: List[Tuple[_Op, List[int], int, List[int]]] = []
        self._losses: List[Tuple[_Op, int]] = []
        self._count = len(graph.layers)
        self._input = numbers[graph.input.name]
        for layer in graph.layers:
            if layer.op == LOSS:
                self._losses.append((lower(layer), numbers[layer.inputs[0]]))
            elif layer.op != "input":
                done = [numbers[name] for name in layer.sources if last[name] == layer.name]
                inputs = [numbers[name] for name in layer.inputs]
                self._plan.append((lower(layer), inputs, numbers[layer.name], done))

    def __call__(self, samples: Any, labels: Any) -> Any:
        slots: List[Any] = [None] * self._count
        slots[self._input] = samples
        for op, inputs, output, done in self._plan:
            slots[output] = op(*[slots[number] for number in inputs])
            for number in done:
                slots[number] = None
        total = None
        for loss, scores in self._losses:
            one = loss(slots[scores], labels)
            total = one if total is None else total + one
        return total
