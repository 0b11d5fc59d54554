"""The steps as one would write them by hand: compiled pure functions that reuse the memory of the arrays they replace.

The updates are those of torch, on lists of arrays; `slots` is the optimizer's state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from deepstone.backends.base import ADAM_LEARNING_RATE, ADAMW_DECAY, LEARNING_RATE, MOMENTUM
from deepstone.backends.jax.arrays import place
from deepstone.backends.jax.network import Network
from deepstone.backends.jax.processes import Processes, own_part
from deepstone.backends.jax.settings import Settings
from deepstone.backends.owners import UPDATE

_DECAY, _SQUARE_DECAY, _EPSILON = 0.9, 0.999, 1e-8  # torch's defaults for Adam


class Batch:
    """The synthetic batch, in the place that the axis `input` names; `get` is the data phase."""

    def __init__(self, samples: Any, labels: Any, settings: Settings, processes: Processes | None = None) -> None:
        ordered = settings.order.images(samples)
        self._device = settings.device
        self._processes = processes
        self._resident = settings.input == "resident"
        if self._resident:
            placed = place(ordered, settings.weights, settings), place(labels, np.int32, settings)
            self._samples, self._labels = self._shared(placed)
            return
        self._samples, self._labels = np.array(ordered, settings.wide, order="C"), np.array(labels, np.int32)
        if settings.input == "pinned":
            pinned = SingleDeviceSharding(settings.device, memory_kind="pinned_host")
            self._samples, self._labels = jax.device_put((self._samples, self._labels), pinned)

    def get(self) -> tuple[Any, Any]:
        if self._resident:
            return self._samples, self._labels
        # Without `may_alias` the CPU's client would look at our memory instead of copying it.
        return self._shared(jax.device_put((self._samples, self._labels), self._device, may_alias=False))

    def _shared(self, batch: tuple[Any, Any]) -> tuple[Any, Any]:
        return batch if self._processes is None else (self._processes.share(batch[0]), self._processes.share(batch[1]))


class State:
    """The state that steps update, and the results that are read back."""

    def __init__(self, parameters: list[Any], buffers: list[Any], settings: Settings) -> None:
        self.parameters = parameters
        self.buffers = buffers
        self.slots: Any = None  # the optimizer's state
        self.key: Any = jax.device_put(jax.random.key(settings.seed), settings.device) if settings.dropout else None
        self.gradients: list[Any] = []
        self.image_gradient: Any = None
        self.loss: Any = None
        self.exchanged: Any = None  # arrays that stand for gradients, where these are exchanged without a step
        self.latest: Any = None  # an array that the last program gives

    def wait(self) -> None:
        everything = (self.parameters, self.buffers, self.slots, self.key, self.gradients, self.loss)
        jax.block_until_ready((everything, self.exchanged))


def advanced(key: Any) -> tuple[Any, Any]:
    """Return the key for the next step and the key for this one; without dropout there are none."""
    return (None, None) if key is None else tuple(jax.random.split(key))


class Steps(Protocol):
    """Functions that run one step each, without extra work of ours. Compiled on first use."""

    lowered: list[Any]  # every program as JAX lowered it
    compiled: list[Any]  # and as XLA compiled it

    def function(self, program: str) -> Callable[[], None]:
        """Return the step of `forward`, `gradient` or `train`; in a group, also `local`, `meet` or `exchange`."""
        ...


class WholeSteps:
    """Steps of one program each. In phase=forward it evaluates; else `forward` is the first part of a training step.

    `processes`: those that train together, if there are several.
    """

    def __init__(
        self,
        network: Network,
        batch: Batch,
        state: State,
        settings: Settings,
        *,
        processes: Processes | None = None,
        keeps_gradients: bool = False,
    ) -> None:
        self.lowered: list[Any] = []
        self.compiled: list[Any] = []
        self._network, self._batch, self._state, self._settings = network, batch, state, settings
        self._processes, self._keeps_gradients = processes, keeps_gradients
        self._optimizer = OPTIMIZERS[settings.optimizer]
        self._functions: dict[str, Callable[[], None]] = {}
        self._programs: dict[str, Any] = {}
        self._of_first: Any = None
        if settings.phase == "train" and state.slots is None:
            state.slots = jax.device_put(self._optimizer.start(state.parameters), settings.device)
            if processes is not None:
                state.parameters, state.slots = processes.own((state.parameters, state.slots))
                state.buffers, state.key = processes.own((state.buffers, state.key))

    def function(self, program: str) -> Callable[[], None]:
        if program not in self._functions:
            forward = self._evaluation if self._settings.phase == "forward" else self._forward
            make = {"forward": forward, "gradient": self._gradient, "exchange": self._exchange}
            self._functions[program] = make.get(program, partial(self._train, program))()
            self._programs[program] = self.compiled[-1]
        return self._functions[program]

    def program(self, name: str) -> Any:
        """Return the compiled programs of a step."""
        self.function(name)
        return self._programs[name]

    def recompiled(self, options: Mapping[str, Any]) -> WholeSteps:
        """Return steps on the same arrays, compiled with further options."""
        settings = replace(self._settings, compiler_options={**self._settings.compiler_options, **options})
        return WholeSteps(self._network, self._batch, self._state, settings, processes=self._processes)

    @property
    def last_loss(self) -> Any:
        """Return the loss of the last enqueued step; it may not be ready yet."""
        return self._state.loss

    def _compile(self, function: Callable[..., Any], *arguments: Any, donated: tuple[int, ...] = ()) -> Any:
        return self._compile_for(function, arguments, self._batch.get(), donated)

    def _compile_for(
        self, function: Callable[..., Any], arguments: Sequence[Any], batch: Sequence[Any], donated: tuple[int, ...]
    ) -> Any:
        if self._processes is not None:
            function = self._processes.spread(function, shared=len(arguments), split=len(batch))
        lowered = jax.jit(function, donate_argnums=donated).lower(*arguments, *batch)
        self.lowered.append(lowered)
        self.compiled.append(lowered.compile(compiler_options=dict(self._settings.compiler_options)))
        return self.compiled[-1]

    def _evaluation(self) -> Callable[[], None]:
        state, get = self._state, self._batch.get

        def evaluate(parameters: Any, buffers: Any, samples: Any, labels: Any) -> Any:
            return self._network.loss(parameters, buffers, samples, labels, None)[0]

        run = self._compile(evaluate, state.parameters, state.buffers)

        def step() -> None:
            state.loss = state.latest = run(state.parameters, state.buffers, *get())

        return step

    def _forward(self) -> Callable[[], None]:
        state, get = self._state, self._batch.get

        def forward(buffers: Any, key: Any, parameters: Any, samples: Any, labels: Any) -> Any:
            key, used = self._advanced(key)
            loss, buffers = self._network.loss(parameters, buffers, samples, labels, used)
            return buffers, key, loss

        run = self._compile(forward, state.buffers, state.key, state.parameters, donated=(0,))

        def step() -> None:
            state.buffers, state.key, state.loss = run(state.buffers, state.key, state.parameters, *get())
            state.latest = state.loss

        return step

    def _gradient(self) -> Callable[[], None]:
        state, get = self._state, self._batch.get

        def gradient(buffers: Any, key: Any, parameters: Any, samples: Any, labels: Any) -> Any:
            key, used = self._advanced(key)
            loss, buffers, gradients, of_samples = self._differentiated(parameters, buffers, samples, labels, used)
            return buffers, key, loss, gradients, of_samples

        run = self._compile(gradient, state.buffers, state.key, state.parameters, donated=(0,))

        def step() -> None:
            state.gradients, state.image_gradient = [], None  # so that two steps' gradients are never in memory at once
            state.buffers, state.key, state.loss, state.gradients, state.image_gradient = run(
                state.buffers, state.key, state.parameters, *get()
            )
            state.latest = state.loss

        return step

    def _train(self, program: str) -> Callable[[], None]:
        """`train`, or what processes do less in: `local` does not communicate, `meet` only waits for the others."""
        state, get = self._state, self._batch.get

        def train(parameters: Any, slots: Any, buffers: Any, key: Any, samples: Any, labels: Any) -> Any:
            key, used = self._advanced(key)
            loss, buffers, gradients, of_samples = self._differentiated(parameters, buffers, samples, labels, used)
            met = None
            if self._processes is not None:
                gradients = self._processes.mean(gradients) if program == "train" else gradients
                met = self._processes.meet(gradients) if program == "meet" else None
            with jax.named_scope(UPDATE):
                parameters, slots = self._optimizer.update(parameters, slots, gradients)
            kept = gradients if self._keeps_gradients else []
            return parameters, slots, buffers, key, loss, of_samples, kept, met

        run = self._compile(train, state.parameters, state.slots, state.buffers, state.key, donated=(0, 1, 2))

        def step() -> None:
            state.gradients = []
            state.parameters, state.slots, state.buffers, state.key, *rest = run(
                state.parameters, state.slots, state.buffers, state.key, *get()
            )
            state.loss, state.image_gradient, state.gradients, _ = rest
            state.latest = state.loss

        return step

    def _exchange(self) -> Callable[[], None]:
        """Arrays of zeros stand for the gradients. One exchange needs the arrays of the one before, so that all
        processes exchange in the same order."""
        state, processes = self._state, self._processes
        assert processes is not None
        state.exchanged = processes.own(jax.device_put(_zeros(own_part(state.parameters)), self._settings.device))

        def exchange(arrays: Any) -> Any:
            arrays = processes.mean(arrays)
            return arrays, arrays[0].ravel()[0]  # the next exchange takes the memory of the arrays themselves

        run = self._compile_for(exchange, (state.exchanged,), (), (0,))

        def step() -> None:
            state.exchanged, state.latest = run(state.exchanged)

        return step

    def restore(self) -> None:
        """Take parameters, running statistics and the optimizer's state from rank 0."""
        state, processes = self._state, self._processes
        assert processes is not None
        if self._of_first is None:
            everything = (state.parameters, state.slots, state.buffers)
            self._of_first = self._compile_for(processes.of_first, (everything,), (), (0,))
        state.parameters, state.slots, state.buffers = self._of_first((state.parameters, state.slots, state.buffers))

    def _advanced(self, key: Any) -> tuple[Any, Any]:
        after, used = advanced(key)
        return after, used if self._processes is None else self._processes.own_key(used)

    def _differentiated(self, parameters: Any, buffers: Any, samples: Any, labels: Any, key: Any) -> Any:
        """Return the loss, running statistics, and gradients of the parameters and, if requested, of the images."""
        parts = self._settings.accumulate
        if parts == 1:
            return self._differentiated_part(parameters, buffers, samples, labels, key)

        def add(so_far: Any, part: Any) -> Any:
            total, buffers, gradients = so_far
            number, samples, labels = part
            own = None if key is None else jax.random.fold_in(key, number)
            found = self._differentiated_part(parameters, buffers, samples, labels, own)
            loss, buffers, of_part, of_samples = found
            return (total + loss, buffers, [a + b for a, b in zip(gradients, of_part, strict=True)]), of_samples

        start = (jnp.zeros((), self._settings.wide), buffers, _zeros(parameters))
        cut = [array.reshape(parts, -1, *array.shape[1:]) for array in (samples, labels)]
        (loss, buffers, gradients), of_samples = jax.lax.scan(add, start, (jnp.arange(parts), *cut))
        return loss / parts, buffers, [gradient / parts for gradient in gradients], of_samples

    def _differentiated_part(self, parameters: Any, buffers: Any, samples: Any, labels: Any, key: Any) -> Any:
        wanted = (0, 2) if self._settings.input_grad else (0,)
        differentiate = jax.value_and_grad(self._network.loss, argnums=wanted, has_aux=True)
        (loss, buffers), gradients = differentiate(parameters, buffers, samples, labels, key)
        return loss, buffers, gradients[0], gradients[1] if self._settings.input_grad else None


class Optimizer(NamedTuple):
    start: Callable[[Sequence[Any]], Any]  # parameters to slots
    update: Callable[[Sequence[Any], Any, Sequence[Any]], tuple[list[Any], Any]]  # parameters, slots, gradients


def _zeros(parameters: Sequence[Any]) -> list[Any]:
    return [jnp.zeros_like(parameter) for parameter in parameters]


def _momentum(parameters: Sequence[Any], slots: Any, gradients: Sequence[Any]) -> tuple[list[Any], Any]:
    velocities = [MOMENTUM * velocity + g for velocity, g in zip(slots, gradients, strict=True)]
    return [w - LEARNING_RATE * velocity for w, velocity in zip(parameters, velocities, strict=True)], velocities


def _sgd(parameters: Sequence[Any], slots: Any, gradients: Sequence[Any]) -> tuple[list[Any], Any]:
    return [w - LEARNING_RATE * g for w, g in zip(parameters, gradients, strict=True)], slots


def _adam_start(parameters: Sequence[Any]) -> Any:
    return _zeros(parameters), _zeros(parameters), jnp.zeros((), jnp.int32)


def _adam(parameters: Sequence[Any], slots: Any, gradients: Sequence[Any]) -> tuple[list[Any], Any]:
    means, squares, steps = slots
    steps = steps + 1
    means = [_DECAY * mean + (1 - _DECAY) * g for mean, g in zip(means, gradients, strict=True)]
    squares = [
        _SQUARE_DECAY * square + (1 - _SQUARE_DECAY) * g * g for square, g in zip(squares, gradients, strict=True)
    ]
    rate = ADAM_LEARNING_RATE / (1 - _DECAY**steps)
    correction = jnp.sqrt(1 - _SQUARE_DECAY**steps)
    moved = [
        (w - rate * mean / (jnp.sqrt(square) / correction + _EPSILON)).astype(w.dtype)
        for w, mean, square in zip(parameters, means, squares, strict=True)
    ]
    return moved, (means, squares, steps)


def _adamw(parameters: Sequence[Any], slots: Any, gradients: Sequence[Any]) -> tuple[list[Any], Any]:
    decay = 1 - ADAM_LEARNING_RATE * ADAMW_DECAY
    return _adam([(w * decay).astype(w.dtype) for w in parameters], slots, gradients)


OPTIMIZERS = {
    "momentum": Optimizer(_zeros, _momentum),
    "sgd": Optimizer(lambda parameters: [], _sgd),
    "adam": Optimizer(_adam_start, _adam),
    "adamw": Optimizer(_adam_start, _adamw),
}
