"""One layer in isolation, lowered as it is in the network: on given arrays, or timed again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import paddle

from deepstone.backends.base import Job, LayerResult
from deepstone.backends.isolated import Isolation
from deepstone.backends.paddle.arrays import Arrays
from deepstone.backends.paddle.lower import Lowering
from deepstone.backends.paddle.settings import Settings
from deepstone.backends.wire_graph import LOSS, WireGraph


class SingleLayer:
    """With the job's weights, and with gradients for those sources, and for the weights if `trained`, and nothing else:
    a kernel of Paddle computes what had needed a gradient in forward."""

    def __init__(
        self, job: Job, name: str, inputs: Mapping[str, Any], *, sources: Iterable[str] = (), trained: bool = False
    ) -> None:
        settings, graph = Settings.of(job.request), WireGraph(job.graph)
        self.layer = graph.by_name[name]
        self.arrays = Arrays([self.layer], job.weights, settings, trained=trained)
        self.inputs = {
            source: paddle.to_tensor(array, dtype=settings.dtype, stop_gradient=source not in sources)
            for source, array in inputs.items()
        }
        self._function = Lowering(graph, self.arrays, settings).lower(self.layer)
        self._arguments = [self.inputs[source] for source in self.layer.inputs]
        if self.layer.op == LOSS:
            self._arguments.append(paddle.to_tensor(job.labels))

    def forward(self) -> Any:
        return self._function(*self._arguments)

    def with_gradient(self) -> list[Any]:
        return [tensor for tensor in [*self.inputs.values(), *self.arrays.flat()] if not tensor.stop_gradient]


def layer_result(job: Job, name: str, inputs: Mapping[str, Any], upstream: Any | None) -> LayerResult:
    backward = upstream is not None
    single = SingleLayer(job, name, inputs, sources=inputs if backward else (), trained=backward)
    with paddle.set_grad_enabled(backward):
        # Some layers pass on their input; copy it to get a separate result.
        output = paddle.assign(single.forward())
    if backward:
        output.backward(paddle.to_tensor(upstream, dtype=output.dtype))
    steps = 1 if backward else 0
    gradients = single.arrays.arrays("gradients", steps)
    return LayerResult(
        output.numpy(),
        inputs={source: tensor.grad.numpy() for source, tensor in single.inputs.items() if tensor.grad is not None},
        parameters={key: array for (_, key), array in gradients.items()},
        buffers={key: array for (_, key), array in single.arrays.arrays("buffers", steps).items()},
    )


def isolated_programs(job: Job, name: str) -> dict[str, Callable[[], None]]:
    """Each backward uses the results of its own forward, as in a step."""
    isolation = Isolation(WireGraph(job.graph), name, job.request, len(job.labels))
    inputs = isolation.inputs()

    def forward() -> Callable[[], None]:
        if not isolation.training:
            return _evaluation(SingleLayer(job, name, inputs))
        trained = bool(isolation.layer.parameters)
        return _forward(SingleLayer(job, name, inputs, sources=isolation.sources, trained=trained))

    def backward(sources: Sequence[str], trained: bool) -> Callable[[], None]:
        upstream = paddle.to_tensor(isolation.upstream(), dtype=Settings.of(job.request).dtype)
        return _backward(SingleLayer(job, name, inputs, sources=sources, trained=trained), upstream)

    return isolation.programs(forward, backward)


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
    output, sources = single.forward(), single.with_gradient()

    def backward() -> None:
        paddle.grad([output], sources, [upstream], retain_graph=True)

    return backward
