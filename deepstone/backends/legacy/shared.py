"""What backends for old frameworks need of a job: the graph's layers, and what is refused and reported. Some of today's
take it too.

In the syntax of Python 3.6, like all that runs in old Pythons. `graph/` and `setups/` cannot be used there: they are
written for the controller's Python. So layers are read from JSON, in which every shape is spelled out.
"""

import os
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from deepstone.backends.base import Unsupported, as_observed, as_set

BUFFERS = {"batch_norm": ("running_mean", "running_var")}  # arrays that are kept and not trained; each is as the weight
LOSS = "softmax_cross_entropy"


class WireLayer:
    """One layer as it comes to a worker. Its attributes are those of docs/graph.md, pairs as tuples."""

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
        """The layers it reads, each once."""
        return list(dict.fromkeys(self.inputs))

    @property
    def buffers(self) -> Tuple[str, ...]:
        return BUFFERS.get(self.op, ())

    def ends_outside(self, source: Sequence[int]) -> bool:
        """Whether a pool that rounds up has a last window outside the image, which the graph leaves out.

        Old frameworks keep it, so their result must be cut to `output`. `source` is the shape of the input.
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
        """Of each window of an average pool, how many rows and how many columns count in the divisor."""
        pad, kernel, stride = self.has["pad"], self.has["kernel"], self.has["stride"]
        found: List[List[int]] = []
        for side in (0, 1):
            before, after = pad[2 * side : 2 * side + 2] if self.has["count_pad"] else (0, 0)
            starts = [number * stride[side] - pad[2 * side] for number in range(self.output[1 + side])]
            end = source[1 + side] + after
            found.append([min(start + kernel[side], end) - max(start, -before) for start in starts])
        return found[0], found[1]

    def pad_is_even(self) -> bool:
        """Whether a framework that pads both ends of a side alike can do it itself."""
        top, bottom, left, right = self.has["pad"]
        return bool(top == bottom and left == right)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]


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
        """Of what a layer gives for one sample."""
        return self.by_name[name].output

    def takers(self, name: str) -> int:
        """How often a layer's output is used."""
        return self._takers.get(name, 0)


def refuse_other_ops(graph: WireGraph, known: Iterable[str], framework: str) -> None:
    """Unsupported, with all that the network needs and the backend does not lower, and a layer that needs it."""
    have = set(known)
    lacking: Dict[str, str] = {}
    for layer in graph.layers:
        if layer.op not in have:
            lacking.setdefault(layer.op, layer.name)
    if lacking:
        told = ", ".join("%s (layer %r)" % pair for pair in sorted(lacking.items()))
        raise Unsupported("%s has no lowering of: %s" % (framework, told))


def refuse_other_values(request: Dict[str, Any], honoured: Mapping[str, Sequence[Any]], framework: str) -> None:
    """Unsupported, with every axis of the request that has a value this backend does not honour.

    It stands for setups/rules.py too, whose rules about devices and engines are all narrower than these tables.
    """
    refused: List[str] = []
    for axis, values in honoured.items():
        if request[axis] not in values:
            refused.append("%s=%s (it takes %s)" % (axis, request[axis], " or ".join(map(str, values))))
    if refused:
        raise Unsupported("%s does not honour %s" % (framework, "; ".join(refused)))


def effective(
    request: Dict[str, Any], set_to: Dict[str, Any], observed: Optional[Dict[str, Any]] = None
) -> Dict[str, Dict[str, Any]]:
    """The answer of `observe`: the request, over it what `auto` became, over that what was read back."""
    answer = {axis: as_set(value) for axis, value in request.items()}
    answer.update({axis: as_set(value) for axis, value in set_to.items()})
    answer["affinity"] = as_observed(format_cpus(sorted(os.sched_getaffinity(0))))
    answer.update({axis: as_observed(value) for axis, value in (observed or {}).items()})
    return answer


def format_cpus(cpus: Sequence[int]) -> str:
    """As setups/axes.py writes them: 0-2+5."""
    runs: List[List[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return "+".join(str(run[0]) if len(run) == 1 else "%d-%d" % (run[0], run[-1]) for run in runs)


def on_the_cpu() -> Dict[str, Any]:
    """The answer of `memory` where there is no device with a memory of its own."""
    absent = {"absent": "the step ran on the CPU; see host_peak_bytes"}
    return {"device_allocated_bytes": absent, "device_reserved_bytes": absent}
