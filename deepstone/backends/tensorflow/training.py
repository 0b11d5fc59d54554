"""The steps as one would write them by hand: forward, forward and backward, or the whole training step.

Each is one program, recorded when it is first asked for. Without `compile` the same functions run eagerly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from deepstone.backends.scopes import UPDATE
from deepstone.backends.tensorflow.lower import Pass
from deepstone.backends.tensorflow.network import Network
from deepstone.backends.tensorflow.optimizers import make_optimizer
from deepstone.backends.tensorflow.settings import Settings
from deepstone.backends.tensorflow.variables import Variables

Tensor: TypeAlias = Any


class Steps:
    """Programs by name, and what the last one that ran left behind."""

    def __init__(self, network: Network, variables: Variables, images: Any, labels: Any, settings: Settings) -> None:
        self.last_loss: Tensor | None = None
        self.last_gradients: list[Tensor] = []
        self.last_image_gradient: Tensor | None = None
        self._network = network
        self._variables = variables
        self._settings = settings
        self._batch = (_resident if settings.input == "resident" else _copied)(images, labels, settings)
        self._number = tf.Variable(tf.constant(0, tf.int64), trainable=False) if settings.dropout else None
        self._update = make_optimizer(settings.optimizer, variables.parameters) if settings.phase == "train" else None
        self._programs: dict[str, Callable[[], None]] = {}
        self.recorded: dict[str, Any] = {}  # programs as TensorFlow keeps them; without `compile` there are none

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
            self.last_gradients = []  # lets go of the memory before as much is needed again
            self.last_loss, self.last_gradients, self.last_image_gradient = run(*batch())

        return step

    def _train(self) -> Callable[[], None]:
        update = self._update
        assert update is not None

        def whole(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            loss, gradients, image_gradient = self._loss_and_gradients(images, labels)
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

    def _loss(self, images: Tensor, labels: Tensor) -> Tensor:
        one_pass = Pass(labels=labels, number=None if self._number is None else self._number.assign_add(1))
        loss = self._network.loss(images, one_pass)
        for name, value in one_pass.statistics.items():
            self._variables.buffers[name].assign(value, read_value=False)
        return loss

    def _loss_and_gradients(self, images: Tensor, labels: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        parameters = self._variables.parameters
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([*parameters, images] if self._settings.input_grad else parameters)
            loss = self._loss(images, labels)
        if not self._settings.input_grad:
            return loss, tape.gradient(loss, parameters), None
        *gradients, image_gradient = tape.gradient(loss, [*parameters, images])
        return loss, gradients, image_gradient


def _resident(images: Any, labels: Any, settings: Settings) -> Callable[[], tuple[Tensor, Tensor]]:
    """The batch lies where the step runs; `tf.device` around this says where that is."""
    batch = tf.cast(np.ascontiguousarray(images), settings.weights), tf.constant(labels)
    return lambda: batch


def _copied(images: Any, labels: Any, settings: Settings) -> Callable[[], tuple[Tensor, Tensor]]:
    """A copy from host memory for every step. On a CPU nothing less than DeepCopy would copy anything."""
    with tf.device("/CPU:0"):
        host_images, host_labels = tf.constant(np.ascontiguousarray(images)), tf.constant(labels)
    if settings.on_gpu:
        return lambda: (tf.identity(host_images), tf.identity(host_labels))
    copy = tf.raw_ops.DeepCopy
    return lambda: (copy(x=host_images), copy(x=host_labels))
