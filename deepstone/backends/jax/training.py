"""The steps as one would write them by hand: compiled pure functions that reuse the memory of the arrays they replace.

The updates are those of torch, on lists of arrays; `slots` is the optimizer's state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from deepstone.backends.base import ADAM_LEARNING_RATE, ADAMW_DECAY, LEARNING_RATE, MOMENTUM
from deepstone.backends.jax.arrays import place
from deepstone.backends.jax.network import Network
from deepstone.backends.jax.settings import Settings
from deepstone.backends.owners import UPDATE

_DECAY, _SQUARE_DECAY, _EPSILON = 0.9, 0.999, 1e-8  # torch's defaults for Adam


class Batch:
    """The synthetic batch, in the place that the axis `input` names; `get` is the data phase."""

    def __init__(self, samples: Any, labels: Any, settings: Settings) -> None:
        ordered = settings.order.images(samples)
        self._device = settings.device
        self._resident = settings.input == "resident"
        if self._resident:
            self._samples, self._labels = place(ordered, settings.weights, settings), place(labels, np.int32, settings)
            return
        self._samples, self._labels = np.array(ordered, settings.wide, order="C"), np.array(labels, np.int32)
        if settings.input == "pinned":
            pinned = SingleDeviceSharding(settings.device, memory_kind="pinned_host")
            self._samples, self._labels = jax.device_put((self._samples, self._labels), pinned)

    def get(self) -> tuple[Any, Any]:
        if self._resident:
            return self._samples, self._labels
        # Without `may_alias` the CPU's client would look at our memory instead of copying it.
        return jax.device_put((self._samples, self._labels), self._device, may_alias=False)


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

    def wait(self) -> None:
        jax.block_until_ready((self.parameters, self.buffers, self.slots, self.key, self.gradients, self.loss))


def advanced(key: Any) -> tuple[Any, Any]:
    """Return the key for the next step and the key for this one; without dropout there are none."""
    return (None, None) if key is None else tuple(jax.random.split(key))


class Steps(Protocol):
    """Functions that run one step each, without extra work of ours. Compiled on first use."""

    lowered: list[Any]  # every program as JAX lowered it
    compiled: list[Any]  # and as XLA compiled it

    def function(self, program: str) -> Callable[[], None]:
        """Return the step of `forward`, `gradient` or `train`."""
        ...


class WholeSteps:
    """Steps of one program each. In phase=forward it evaluates; else `forward` is the first part of a training step."""

    def __init__(self, network: Network, batch: Batch, state: State, settings: Settings) -> None:
        self.lowered: list[Any] = []
        self.compiled: list[Any] = []
        self._network = network
        self._batch = batch
        self._state = state
        self._settings = settings
        self._optimizer = OPTIMIZERS[settings.optimizer]
        self._functions: dict[str, Callable[[], None]] = {}
        self._programs: dict[str, Any] = {}
        if settings.phase == "train" and state.slots is None:
            state.slots = jax.device_put(self._optimizer.start(state.parameters), settings.device)

    def function(self, program: str) -> Callable[[], None]:
        if program not in self._functions:
            forward = self._evaluation if self._settings.phase == "forward" else self._forward
            make = {"forward": forward, "gradient": self._gradient, "train": self._train}[program]
            self._functions[program] = make()
            self._programs[program] = self.compiled[-1]
        return self._functions[program]

    def program(self, name: str) -> Any:
        """Return the compiled programs of a step."""
        self.function(name)
        return self._programs[name]

    def recompiled(self, options: Mapping[str, Any]) -> WholeSteps:
        """Return steps on the same arrays, compiled with further options."""
        settings = replace(self._settings, compiler_options={**self._settings.compiler_options, **options})
        return WholeSteps(self._network, self._batch, self._state, settings)

    @property
    def last_loss(self) -> Any:
        """Return the loss of the last enqueued step; it may not be ready yet."""
        return self._state.loss

    def _compile(self, function: Callable[..., Any], *arguments: Any, donated: tuple[int, ...] = ()) -> Any:
        lowered = jax.jit(function, donate_argnums=donated).lower(*arguments, *self._batch.get())
        self.lowered.append(lowered)
        self.compiled.append(lowered.compile(compiler_options=dict(self._settings.compiler_options)))
        return self.compiled[-1]

    def _evaluation(self) -> Callable[[], None]:
        state, get = self._state, self._batch.get

        def evaluate(parameters: Any, buffers: Any, samples: Any, labels: Any) -> Any:
            return self._network.loss(parameters, buffers, samples, labels, None)[0]

        run = self._compile(evaluate, state.parameters, state.buffers)

        def step() -> None:
            state.loss = run(state.parameters, state.buffers, *get())

        return step

    def _forward(self) -> Callable[[], None]:
        state, get = self._state, self._batch.get

        def forward(buffers: Any, key: Any, parameters: Any, samples: Any, labels: Any) -> Any:
            key, used = advanced(key)
            loss, buffers = self._network.loss(parameters, buffers, samples, labels, used)
            return buffers, key, loss

        run = self._compile(forward, state.buffers, state.key, state.parameters, donated=(0,))

        def step() -> None:
            state.buffers, state.key, state.loss = run(state.buffers, state.key, state.parameters, *get())

        return step

    def _gradient(self) -> Callable[[], None]:
        state, get = self._state, self._batch.get

        def gradient(buffers: Any, key: Any, parameters: Any, samples: Any, labels: Any) -> Any:
            key, used = advanced(key)
            loss, buffers, gradients, of_samples = self._differentiated(parameters, buffers, samples, labels, used)
            return buffers, key, loss, gradients, of_samples

        run = self._compile(gradient, state.buffers, state.key, state.parameters, donated=(0,))

        def step() -> None:
            state.gradients, state.image_gradient = [], None  # so that two steps' gradients are never in memory at once
            state.buffers, state.key, state.loss, state.gradients, state.image_gradient = run(
                state.buffers, state.key, state.parameters, *get()
            )

        return step

    def _train(self) -> Callable[[], None]:
        state, get = self._state, self._batch.get

        def train(parameters: Any, slots: Any, buffers: Any, key: Any, samples: Any, labels: Any) -> Any:
            key, used = advanced(key)
            loss, buffers, gradients, of_samples = self._differentiated(parameters, buffers, samples, labels, used)
            with jax.named_scope(UPDATE):
                parameters, slots = self._optimizer.update(parameters, slots, gradients)
            return parameters, slots, buffers, key, loss, of_samples

        run = self._compile(train, state.parameters, state.slots, state.buffers, state.key, donated=(0, 1, 2))

        def step() -> None:
            state.parameters, state.slots, state.buffers, state.key, state.loss, state.image_gradient = run(
                state.parameters, state.slots, state.buffers, state.key, *get()
            )

        return step

    def _differentiated(self, parameters: Any, buffers: Any, samples: Any, labels: Any, key: Any) -> Any:
        """Return the loss, running statistics, and gradients of the parameters and, if requested, of the images."""
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
