"""The steps as one would write them by hand: pure functions, compiled, that take over the arrays they replace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import jax

from deepstone.backends.jax.network import Network
from deepstone.backends.jax.optimizers import OPTIMIZERS
from deepstone.backends.jax.settings import Settings
from deepstone.backends.jax.state import Batch, State, advanced
from deepstone.backends.scopes import UPDATE


class Steps(Protocol):
    """Functions that run one step each, with no work of ours beside the framework's. Compiled when first asked for."""

    lowered: list[Any]  # every program as JAX gave it to XLA
    compiled: list[Any]  # and as XLA gave it back

    def function(self, program: str) -> Callable[[], None]:
        """The step of `forward`, `gradient` or `train`."""
        ...


class WholeSteps:
    """Each step is one program. In phase=forward it evaluates; else `forward` is the first part of a training step."""

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
        """What runs in a step, compiled."""
        self.function(name)
        return self._programs[name]

    def recompiled(self, options: Mapping[str, Any]) -> WholeSteps:
        """Steps on the same arrays that are compiled with further options."""
        settings = replace(self._settings, compiler_options={**self._settings.compiler_options, **options})
        return WholeSteps(self._network, self._batch, self._state, settings)

    @property
    def last_loss(self) -> Any:
        """Of the step that was handed over last; it may not be there yet."""
        return self._state.loss

    def _compile(self, function: Callable[..., Any], *arguments: Any, donated: tuple[int, ...] = ()) -> Any:
        lowered = jax.jit(function, donate_argnums=donated).lower(*arguments, *self._batch.get())
        self.lowered.append(lowered)
        self.compiled.append(lowered.compile(compiler_options=dict(self._settings.compiler_options)))
        return self.compiled[-1]

    def _evaluation(self) -> Callable[[], None]:
        state, get = self._state, self._batch.get

        def evaluate(parameters: Any, buffers: Any, images: Any, labels: Any) -> Any:
            return self._network.loss(parameters, buffers, images, labels, None)[0]

        run = self._compile(evaluate, state.parameters, state.buffers)

        def step() -> None:
            state.loss = run(state.parameters, state.buffers, *get())

        return step

    def _forward(self) -> Callable[[], None]:
        state, get = self._state, self._batch.get

        def forward(buffers: Any, key: Any, parameters: Any, images: Any, labels: Any) -> Any:
            key, used = advanced(key)
            loss, buffers = self._network.loss(parameters, buffers, images, labels, used)
            return buffers, key, loss

        run = self._compile(forward, state.buffers, state.key, state.parameters, donated=(0,))

        def step() -> None:
            state.buffers, state.key, state.loss = run(state.buffers, state.key, state.parameters, *get())

        return step

    def _gradient(self) -> Callable[[], None]:
        state, get = self._state, self._batch.get

        def gradient(buffers: Any, key: Any, parameters: Any, images: Any, labels: Any) -> Any:
            key, used = advanced(key)
            loss, buffers, gradients, of_images = self._differentiated(parameters, buffers, images, labels, used)
            return buffers, key, loss, gradients, of_images

        run = self._compile(gradient, state.buffers, state.key, state.parameters, donated=(0,))

        def step() -> None:
            state.gradients, state.image_gradient = [], None  # so that two steps' gradients are never kept at once
            state.buffers, state.key, state.loss, state.gradients, state.image_gradient = run(
                state.buffers, state.key, state.parameters, *get()
            )

        return step

    def _train(self) -> Callable[[], None]:
        state, get = self._state, self._batch.get

        def train(parameters: Any, slots: Any, buffers: Any, key: Any, images: Any, labels: Any) -> Any:
            key, used = advanced(key)
            loss, buffers, gradients, of_images = self._differentiated(parameters, buffers, images, labels, used)
            with jax.named_scope(UPDATE):
                parameters, slots = self._optimizer.update(parameters, slots, gradients)
            return parameters, slots, buffers, key, loss, of_images

        run = self._compile(train, state.parameters, state.slots, state.buffers, state.key, donated=(0, 1, 2))

        def step() -> None:
            state.parameters, state.slots, state.buffers, state.key, state.loss, state.image_gradient = run(
                state.parameters, state.slots, state.buffers, state.key, *get()
            )

        return step

    def _differentiated(self, parameters: Any, buffers: Any, images: Any, labels: Any, key: Any) -> Any:
        """The loss, running statistics, and gradients of the parameters and, if asked for, of the images."""
        wanted = (0, 2) if self._settings.input_grad else (0,)
        differentiate = jax.value_and_grad(self._network.loss, argnums=wanted, has_aux=True)
        (loss, buffers), gradients = differentiate(parameters, buffers, images, labels, key)
        return loss, buffers, gradients[0], gradients[1] if self._settings.input_grad else None
