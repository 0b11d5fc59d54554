"""One layer by itself, lowered as it is in the network: on given arrays, or timed again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import paddle

from deepstone.backends.base import Job, LayerResult
from deepstone.backends.legacy.shared import LOSS, WireGraph
from deepstone.backends.lone_arrays import drawn_inputs, drawn_upstream, sources_with_gradient
from deepstone.backends.paddle.lower import Held, Lowering, Settings
from deepstone.graph.graph import Graph
from deepstone.graph.ops import Conv, Dense, Dropout, Flatten, Input


class SingleLayer:
    """With the job's weights, and with gradients for those sources, and for the weights if `trained`, and nothing else:
    a kernel of Paddle computes what had needed a gradient in forward."""

    def __init__(
        self, job: Job, name: str, inputs: Mapping[str, Any], *, sources: Iterable[str] = (), trained: bool = False
    ) -> None:
        settings, graph = Settings.of(job.request), WireGraph(job.graph)
        self.layer = graph.by_name[name]
        self.held = Held([self.layer], job.weights, settings, trained=trained)
        self.inputs = {
            source: paddle.to_tensor(array, dtype=settings.dtype, stop_gradient=source not in sources)
            for source, array in inputs.items()
        }
        self._function = Lowering(graph, self.held, settings).lower(self.layer)
        self._arguments = [self.inputs[source] for source in self.layer.inputs]
        if self.layer.op == LOSS:
            self._arguments.append(paddle.to_tensor(job.labels))

    def forward(self) -> Any:
        return self._function(*self._arguments)

    def with_gradient(self) -> list[Any]:
        return [tensor for tensor in [*self.inputs.values(), *self.held.flat()] if not tensor.stop_gradient]


def layer_result(job: Job, name: str, inputs: Mapping[str, Any], upstream: Any | None) -> LayerResult:
    backward = upstream is not None
    single = SingleLayer(job, name, inputs, sources=inputs if backward else (), trained=backward)
    with paddle.set_grad_enabled(backward):
        # Some layers hand on what they are given; a copy of it is a result like any other.
        output = paddle.assign(single.forward())
    if backward:
        output.backward(paddle.to_tensor(upstream, dtype=output.dtype))
    steps = 1 if backward else 0
    gradients = single.held.arrays("gradients", steps)
    return LayerResult(
        output.numpy(),
        inputs={source: tensor.grad.numpy() for source, tensor in single.inputs.items() if tensor.grad is not None},
        parameters={key: array for (_, key), array in gradients.items()},
        buffers={key: array for (_, key), array in single.held.arrays("buffers", steps).items()},
    )


def lone_programs(job: Job, name: str) -> dict[str, Callable[[], None]]:
    """On arrays drawn from N(0, 1). Each backward runs from what a forward of its own kept, as it does in a step."""
    settings, graph = Settings.of(job.request), Graph.from_worker_json(job.graph)
    layer = graph.layer(name)
    if isinstance(layer.op, Input | Flatten) or (isinstance(layer.op, Dropout) and not settings.dropout):
        return {}  # there is nothing to do but to hand on an array
    inputs = drawn_inputs(graph, layer, len(job.labels))
    if not settings.training:
        return {"forward": _evaluation(SingleLayer(job, name, inputs))}
    upstream = paddle.to_tensor(drawn_upstream(graph, layer, len(job.labels)), dtype=settings.dtype)
    sources = sources_with_gradient(graph, layer, input_grad=settings.input_grad)
    trained = bool(graph.parameters(layer))
    programs = {"forward": _forward(SingleLayer(job, name, inputs, sources=sources, trained=trained))}
    if sources or trained:
        programs["backward"] = _backward(SingleLayer(job, name, inputs, sources=sources, trained=trained), upstream)
    if isinstance(layer.op, Conv | Dense):
        programs["weight"] = _backward(SingleLayer(job, name, inputs, trained=True), upstream)
        if sources:
            programs["data"] = _backward(SingleLayer(job, name, inputs, sources=sources), upstream)
    return programs


def _evaluation(single: SingleLayer) -> Callable[[], None]:
    def evaluate() -> None:
        with paddle.no_grad():
            single.forward()

    return evaluate


def _forward(single: SingleLayer) -> Callable[[], None]:
    def forward() -> None:
        single.forward()

    return forward


def _backward(single: SingleLayer, upstream: Any) -> Callable[[], None]:
    output, wanted = single.forward(), single.with_gradient()

    def backward() -> None:
        paddle.grad([output], wanted, [upstream], retain_graph=True)

    return backward
