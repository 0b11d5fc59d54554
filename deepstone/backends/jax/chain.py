"""Steps of very deep graphs: a chain of programs, one for each kind of segment, called one after the other.

XLA needs disproportionate time and memory to compile a program of ten thousand layers. But such graphs repeat a few
blocks, so a few programs suffice: each is compiled once and called for every identical segment. The device stays busy
while the host enqueues the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax

from deepstone.backends.jax.arrays import place
from deepstone.backends.jax.lower import Lowering
from deepstone.backends.jax.network import Segment, segments_of
from deepstone.backends.jax.settings import Settings
from deepstone.backends.jax.training import OPTIMIZERS, Batch, State, advanced
from deepstone.graph.graph import Graph
from deepstone.graph.segments import chain
from deepstone.setups.axes import JAX
from deepstone.setups.refusals import MOST_LAYERS_IN_PARTS

DEEP = MOST_LAYERS_IN_PARTS[JAX]  # up to here the whole step is one program, which XLA compiles within about a minute
LINK = 50  # layers of one program of the chain


class ChainedSteps:
    """The steps of `WholeSteps`, with the arrays of each segment next to each other in the flat lists."""

    def __init__(self, graph: Graph, batch: Batch, state: State, settings: Settings) -> None:
        self.lowered: list[Any] = []
        self.compiled: list[Any] = []
        self._segments = segments_of(graph, chain(graph, LINK))
        self._lowering = Lowering(settings=settings, training=settings.training)
        self._batch = batch
        self._state = state
        self._settings = settings
        self._optimizer = OPTIMIZERS[settings.optimizer]
        self._one = place(1.0, settings.wide, settings)
        self._programs: dict[tuple[str, int], Callable[..., Any]] = {}
        self._shared: dict[Any, Callable[..., Any]] = {}  # identical segments have the same key
        self._parameters = _slices([segment.parameters for segment in self._segments])
        self._buffers = _slices([segment.buffers for segment in self._segments])
        if settings.phase == "train":
            slots = [self._optimizer.start(state.parameters[part]) for part in self._parameters]
            state.slots = jax.device_put(slots, settings.device)

    def function(self, program: str) -> Callable[[], None]:
        if program == "forward":
            return self._forward
        return self._gradient if program == "gradient" else self._train

    def _forward(self) -> None:
        state = self._state
        x, labels, keys = self._start()
        for number, (parameters, buffers, key) in enumerate(zip(self._parameters, self._buffers, keys, strict=True)):
            arguments = (x, state.parameters[parameters], state.buffers[buffers], labels, key)
            x, state.buffers[buffers] = self._program("forward", number, *arguments)(*arguments)
        state.loss = state.latest = x

    def _gradient(self) -> None:
        state = self._state
        state.gradients, state.image_gradient = [], None
        found: list[list[Any]] = [[] for _ in self._segments]
        self._backward(self._recorded(), found.__setitem__)
        state.gradients = [gradient for gradients in found for gradient in gradients]

    def _train(self) -> None:
        state = self._state

        def use(number: int, gradients: list[Any]) -> None:
            own = self._parameters[number]
            arguments = (state.parameters[own], state.slots[number], gradients)
            update = self._program("update", number, *arguments)
            state.parameters[own], state.slots[number] = update(*arguments)

        self._backward(self._recorded(), use)

    def _start(self) -> tuple[Any, Any, Sequence[Any]]:
        samples, labels = self._batch.get()
        self._state.key, used = advanced(self._state.key)
        keys = [None] * len(self._segments) if used is None else list(jax.random.split(used, len(self._segments)))
        return samples, labels, keys

    def _recorded(self) -> list[Any]:
        """Run forward; return with it what each segment needs for backward."""
        state = self._state
        x, labels, keys = self._start()
        ways_back: list[Any] = []
        for number, (parameters, buffers, key) in enumerate(zip(self._parameters, self._buffers, keys, strict=True)):
            kind = "first" if number == 0 and not self._settings.input_grad else "recorded"
            arguments = (x, state.parameters[parameters], state.buffers[buffers], labels, key)
            x, state.buffers[buffers], back = self._program(kind, number, *arguments)(*arguments)
            ways_back.append(back)
        state.loss = state.latest = x
        return ways_back

    def _backward(self, ways_back: list[Any], use: Callable[[int, list[Any]], None]) -> None:
        """Run backward. `use` receives the number of a segment and the gradients of its parameters as soon as they are
        known."""
        upstream = self._one
        for number in reversed(range(len(self._segments))):
            arguments = (ways_back.pop(), upstream)
            gradients, *of_inputs = self._program("back", number, *arguments)(*arguments)
            use(number, gradients)
            upstream = of_inputs[0] if of_inputs else None
        self._state.image_gradient = upstream

    def _program(self, kind: str, number: int, *arguments: Any) -> Callable[..., Any]:
        """Return the program of this kind for one segment; identical segments share it."""
        own = self._programs.get((kind, number))
        if own is None:
            flat, tree = jax.tree.flatten(arguments)
            alike = (kind, self._segments[number], tree, tuple((array.shape, array.dtype) for array in flat))
            if alike not in self._shared:
                self._shared[alike] = self._compile(kind, self._segments[number], *arguments)
            own = self._programs[kind, number] = self._shared[alike]
        return own

    def _compile(self, kind: str, segment: Segment, *arguments: Any) -> Callable[..., Any]:
        function = jax.jit(self._traced(kind, segment), donate_argnums=(0, 1) if kind == "update" else ())
        self.lowered.append(function.lower(*arguments))
        self.compiled.append(self.lowered[-1].compile(compiler_options=dict(self._settings.compiler_options)))
        return self.compiled[-1]

    def _traced(self, kind: str, segment: Segment) -> Callable[..., Any]:
        if kind == "update":
            return self._optimizer.update
        if kind == "back":
            return _call_back
        run = self._run_function(segment)
        return {"forward": run, "first": partial(_record_first, run), "recorded": partial(_record, run)}[kind]

    def _run_function(self, segment: Segment) -> Callable[..., Any]:
        def run(x: Any, parameters: Any, buffers: Any, labels: Any, key: Any) -> Any:
            return segment.run(self._lowering, x.astype(self._settings.activations), parameters, buffers, labels, key)

        return jax.checkpoint(run) if self._settings.checkpointing else run


def _record(run: Callable[..., Any], x: Any, parameters: Any, buffers: Any, labels: Any, key: Any) -> Any:
    def forward(parameters: Any, x: Any) -> Any:
        return run(x, parameters, buffers, labels, key)

    output, back, after = jax.vjp(forward, parameters, x, has_aux=True)
    return output, after, back


def _record_first(run: Callable[..., Any], x: Any, parameters: Any, buffers: Any, labels: Any, key: Any) -> Any:
    """Record the first segment, without the gradient of the images, which training does not need."""

    def forward(parameters: Any) -> Any:
        return run(x, parameters, buffers, labels, key)

    output, back, after = jax.vjp(forward, parameters, has_aux=True)
    return output, after, back


def _call_back(back: Callable[..., Any], upstream: Any) -> Any:
    return back(upstream)


def _slices(lengths: Sequence[int]) -> list[slice]:
    slices: list[slice] = []
    start = 0
    for length in lengths:
        slices.append(slice(start, start + length))
        start += length
    return slices
