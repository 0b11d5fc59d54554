"""The steps as one would write them by hand: forward, forward and backward, or the whole training step.

Each is one program, recorded when it is first asked for. Without `compile` the same functions run eagerly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from deepstone.backends.base import ADAM_LEARNING_RATE, ADAMW_DECAY, LEARNING_RATE, MOMENTUM
from deepstone.backends.owners import UPDATE
from deepstone.backends.tensorflow.arrays import Variables
from deepstone.backends.tensorflow.lower import Pass
from deepstone.backends.tensorflow.network import Network
from deepstone.backends.tensorflow.settings import Settings

Tensor: TypeAlias = Any
Update: TypeAlias = Callable[[list[Tensor]], None]

# Adam's, as in the paper and in torch.
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


class Steps:
    """The programs by name, and the results of the last run."""

    def __init__(self, network: Network, variables: Variables, samples: Any, labels: Any, settings: Settings) -> None:
        self.last_loss: Tensor | None = None
        self.last_gradients: list[Tensor] = []
        self.last_image_gradient: Tensor | None = None
        self._network = network
        self._variables = variables
        self._settings = settings
        self._batch = (_resident if settings.input == "resident" else _copied)(samples, labels, settings)
        self._number = tf.Variable(tf.constant(0, tf.int64), trainable=False) if settings.dropout else None
        self._update = _make_update(settings.optimizer, variables.parameters) if settings.phase == "train" else None
        self._programs: dict[str, Callable[[], None]] = {}
        self.recorded: dict[str, Any] = {}  # programs as TensorFlow has them; without `compile` there are none

    def program(self, name: str) -> Callable[[], None]:
        if name not in self._programs:
            self._programs[name] = {"forward": self._forward, "gradient": self._gradient, "train": self._train}[name]()
        return self._programs[name]

    def _forward(self) -> Callable[[], None]:
        run, batch = self._recorded("forward", self._loss), self._batch

        def step() -> None:
            self.last_loss = run(*batch())

        return step

    def _gradient(self) -> Callable[[], None]:
        run, batch = self._recorded("gradient", self._loss_and_gradients), self._batch

        def step() -> None:
            self.last_gradients = []  # frees the memory before the same amount is allocated again
            self.last_loss, self.last_gradients, self.last_image_gradient = run(*batch())

        return step

    def _train(self) -> Callable[[], None]:
        update = self._update
        assert update is not None

        def whole(samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            loss, gradients, image_gradient = self._loss_and_gradients(samples, labels)
            with tf.name_scope(UPDATE):
                update(gradients)
            return loss, image_gradient

        run, batch = self._recorded("train", whole), self._batch

        def step() -> None:
            self.last_loss, self.last_image_gradient = run(*batch())

        return step

    def _recorded(self, name: str, function: Callable[[Tensor, Tensor], Any]) -> Callable[[Tensor, Tensor], Any]:
        if self._settings.compile == "off":
            return function
        program = tf.function(function, jit_compile=self._settings.xla, autograph=False)
        self.recorded[name] = program.get_concrete_function(*self._batch())
        return self.recorded[name]

    def _loss(self, samples: Tensor, labels: Tensor) -> Tensor:
        one_pass = Pass(labels=labels, number=None if self._number is None else self._number.assign_add(1))
        loss = self._network.loss(samples, one_pass)
        for name, value in one_pass.statistics.items():
            self._variables.buffers[name].assign(value, read_value=False)
        return loss

    def _loss_and_gradients(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        parameters = self._variables.parameters
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([*parameters, samples] if self._settings.input_grad else parameters)
            loss = self._loss(samples, labels)
        if not self._settings.input_grad:
            return loss, tape.gradient(loss, parameters), None
        *gradients, image_gradient = tape.gradient(loss, [*parameters, samples])
        return loss, gradients, image_gradient


def _resident(samples: Any, labels: Any, settings: Settings) -> Callable[[], tuple[Tensor, Tensor]]:
    """Return the batch, on the device of the step; a surrounding `tf.device` selects it."""
    batch = tf.cast(np.ascontiguousarray(samples), settings.weights), tf.constant(labels)
    return lambda: batch


def _copied(samples: Any, labels: Any, settings: Settings) -> Callable[[], tuple[Tensor, Tensor]]:
    """Return a copy from host memory for every step. On a CPU only DeepCopy really copies."""
    with tf.device("/CPU:0"):
        host_samples, host_labels = tf.constant(np.ascontiguousarray(samples)), tf.constant(labels)
    if settings.on_gpu:
        return lambda: (tf.identity(host_samples), tf.identity(host_labels))
    copy = tf.raw_ops.DeepCopy
    return lambda: (copy(x=host_samples), copy(x=host_labels))


def _make_update(name: str, parameters: list[Any]) -> Update:
    """Return the update, which takes gradients in the order of the parameters. One kernel per parameter updates it and
    its slots."""
    return {"momentum": _momentum, "sgd": _sgd, "adam": _adam, "adamw": _adamw}[name](parameters)


def _zeros_like(parameters: list[Any]) -> list[Any]:
    return [tf.Variable(tf.zeros_like(parameter), trainable=False) for parameter in parameters]


def _momentum(parameters: list[Any]) -> Update:
    velocities = _zeros_like(parameters)

    def update(gradients: list[Tensor]) -> None:
        for parameter, velocity, gradient in zip(parameters, velocities, gradients, strict=True):
            tf.raw_ops.ResourceApplyMomentum(
                var=parameter.handle,
                accum=velocity.handle,
                lr=tf.constant(LEARNING_RATE, parameter.dtype),
                grad=gradient,
                momentum=tf.constant(MOMENTUM, parameter.dtype),
            )

    return update


def _sgd(parameters: list[Any]) -> Update:
    def update(gradients: list[Tensor]) -> None:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            tf.raw_ops.ResourceApplyGradientDescent(
                var=parameter.handle, alpha=tf.constant(LEARNING_RATE, parameter.dtype), delta=gradient
            )

    return update


def _adam(parameters: list[Any]) -> Update:
    """Update by Adam. TensorFlow adds epsilon before it corrects the second moment, torch after; so epsilon is
    corrected too."""
    firsts, seconds = _zeros_like(parameters), _zeros_like(parameters)
    number = tf.Variable(tf.constant(0.0, tf.float64), trainable=False)

    def update(gradients: list[Tensor]) -> None:
        step = number.assign_add(1.0)
        power1, power2 = tf.pow(tf.constant(_BETA1, tf.float64), step), tf.pow(tf.constant(_BETA2, tf.float64), step)
        epsilon = _EPSILON * tf.sqrt(1.0 - power2)
        for parameter, first, second, gradient in zip(parameters, firsts, seconds, gradients, strict=True):
            dtype = parameter.dtype
            tf.raw_ops.ResourceApplyAdam(
                var=parameter.handle,
                m=first.handle,
                v=second.handle,
                beta1_power=tf.cast(power1, dtype),
                beta2_power=tf.cast(power2, dtype),
                lr=tf.constant(ADAM_LEARNING_RATE, dtype),
                beta1=tf.constant(_BETA1, dtype),
                beta2=tf.constant(_BETA2, dtype),
                epsilon=tf.cast(epsilon, dtype),
                grad=gradient,
            )

    return update


def _adamw(parameters: list[Any]) -> Update:
    """Update by AdamW. Weights decay first, independent of the gradient, as in torch."""
    as_adam = _adam(parameters)

    def update(gradients: list[Tensor]) -> None:
        for parameter in parameters:
            decay = tf.constant(1.0 - ADAM_LEARNING_RATE * ADAMW_DECAY, parameter.dtype)
            parameter.assign(parameter * decay, read_value=False)
        as_adam(gradients)

    return update
