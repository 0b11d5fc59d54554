"""The steps as one would write them by hand: forward, forward and backward, or the whole training step.

Each is one program, recorded when it is first asked for. Without `compile` the same functions run eagerly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from deepstone.backends.base import ADAM_LEARNING_RATE, ADAMW_DECAY, LEARNING_RATE, MOMENTUM
from deepstone.backends.owners import UPDATE
from deepstone.backends.tensorflow.arrays import Variables
from deepstone.backends.tensorflow.lower import Pass
from deepstone.backends.tensorflow.network import Network
from deepstone.backends.tensorflow.processes import Processes
from deepstone.backends.tensorflow.settings import Settings

Tensor: TypeAlias = Any


class Update(NamedTuple):
    """The update, which takes gradients in the order of the parameters, and the optimizer's state."""

    apply: Callable[[list[Tensor]], None]
    slots: list[Any]


# Adam's, as in the paper and in torch.
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


class Steps:
    """The programs by name, and the results of the last run."""

    def __init__(
        self,
        network: Network,
        variables: Variables,
        samples: Any,
        labels: Any,
        settings: Settings,
        *,
        processes: Processes | None = None,
        keeps_gradients: bool = False,
    ) -> None:
        """`processes`: those that train together, if there are several."""
        self.last_loss: Tensor | None = None
        self.last_gradients: list[Tensor] = []
        self.last_image_gradient: Tensor | None = None
        self._network = network
        self._variables = variables
        self._settings = settings
        self._processes = processes
        self._keeps_gradients = keeps_gradients
        self._batch = (_resident if settings.input == "resident" else _copied)(samples, labels, settings)
        self._number = tf.Variable(tf.constant(0, tf.int64), trainable=False) if settings.dropout else None
        self.update = make_update(settings.optimizer, variables.parameters) if settings.phase == "train" else None
        self._programs: dict[str, Callable[[], None]] = {}
        self._restore: Any = None
        self.recorded: dict[str, Any] = {}  # programs as TensorFlow has them; without `compile` there are none

    def loss(self) -> float:
        assert self.last_loss is not None
        return float(self.last_loss.numpy())

    def program(self, name: str) -> Callable[[], None]:
        if name not in self._programs:
            make = {"forward": self._forward, "gradient": self._gradient, "exchange": self._exchange}
            self._programs[name] = make.get(name, partial(self._train, name))()
        return self._programs[name]

    def _forward(self) -> Callable[[], None]:
        run, batch = self._recorded("forward", self._loss), self._batch

        def step() -> None:
            self.last_loss = run(*batch())

        return step

    def _gradient(self) -> Callable[[], None]:
        run, batch = self._recorded("gradient", self.loss_and_gradients), self._batch

        def step() -> None:
            self.last_gradients = []  # frees the memory before the same amount is allocated again
            self.last_loss, self.last_gradients, self.last_image_gradient = run(*batch())

        return step

    def _train(self, program: str) -> Callable[[], None]:
        """`train`, or what processes do less in: `local` does not communicate, `meet` only waits for the others."""
        update, processes = self.update, self._processes
        assert update is not None

        def whole(samples: Tensor, labels: Tensor) -> tuple[Tensor, list[Tensor], Tensor, Tensor]:
            loss, gradients, image_gradient = self.loss_and_gradients(samples, labels)
            met = None
            if processes is not None and program == "train":
                gradients = processes.mean(gradients)
            elif processes is not None and program == "meet":
                met = processes.meet(gradients)
            with tf.name_scope(UPDATE):
                update.apply(gradients)
            return loss, gradients if self._keeps_gradients else [], image_gradient, met

        of_replica = processes is not None and program != "local"
        run = self._recorded(program, processes.run(whole) if processes is not None and of_replica else whole)
        batch = self._batch

        def step() -> None:
            self.last_gradients = []
            self.last_loss, self.last_gradients, self.last_image_gradient, _ = run(*batch())

        return step

    def _exchange(self) -> Callable[[], None]:
        """Tensors of zeros stand for the gradients."""
        processes = self._processes
        assert processes is not None
        zeros = [tf.zeros_like(parameter) for parameter in self._variables.parameters]
        return tf.function(processes.run(lambda: processes.mean(zeros)), autograph=False).get_concrete_function()

    def restore(self) -> None:
        """Take parameters, running statistics and the optimizer's state from rank 0."""
        processes = self._processes
        assert processes is not None
        if self._restore is None:
            slots = [] if self.update is None else self.update.slots
            variables = [*self._variables.parameters, *self._variables.buffers.values(), *slots]

            def restore() -> None:
                for variable, value in zip(variables, processes.of_first(variables), strict=True):
                    variable.assign(value, read_value=False)

            self._restore = tf.function(processes.run(restore), autograph=False).get_concrete_function()
        self._restore()

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

    def loss_and_gradients(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        """Of the whole batch, or the mean over its parts, one after the other."""
        parts = self._settings.accumulate
        if parts == 1:
            return self._loss_and_gradients_of_part(samples, labels)
        cut = [tf.reshape(array, [parts, -1, *array.shape[1:]]) for array in (samples, labels)]

        def add(number: Tensor, total: Tensor, sums: list[Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
            loss, gradients, _ = self._loss_and_gradients_of_part(cut[0][number], cut[1][number])
            return number + 1, total + loss, [a + b for a, b in zip(sums, gradients, strict=True)]

        start = [tf.zeros_like(parameter) for parameter in self._variables.parameters]
        loss_type = tf.float64 if self._settings.weights == tf.float64 else tf.float32
        _, total, sums = tf.while_loop(
            lambda number, *_: number < parts, add, (0, tf.zeros((), loss_type), start), parallel_iterations=1
        )
        return total / parts, [gradient / parts for gradient in sums], None

    def _loss_and_gradients_of_part(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
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


def make_update(name: str, parameters: list[Any]) -> Update:
    """Return the update. One kernel per parameter updates it and its slots."""
    return {"momentum": _momentum, "sgd": _sgd, "adam": _adam, "adamw": _adamw}[name](parameters)


def zeros_like(parameters: list[Any]) -> list[Any]:
    """Variables, each where its parameter is: that may be another process."""
    found: list[Any] = []
    for parameter in parameters:
        with tf.device(parameter.device):
            found.append(tf.Variable(tf.zeros(parameter.shape, parameter.dtype), trainable=False))
    return found


def _momentum(parameters: list[Any]) -> Update:
    velocities = zeros_like(parameters)

    def update(gradients: list[Tensor]) -> None:
        for parameter, velocity, gradient in zip(parameters, velocities, gradients, strict=True):
            tf.raw_ops.ResourceApplyMomentum(
                var=parameter.handle,
                accum=velocity.handle,
                lr=tf.constant(LEARNING_RATE, parameter.dtype),
                grad=gradient,
                momentum=tf.constant(MOMENTUM, parameter.dtype),
            )

    return Update(update, velocities)


def _sgd(parameters: list[Any]) -> Update:
    def update(gradients: list[Tensor]) -> None:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            tf.raw_ops.ResourceApplyGradientDescent(
                var=parameter.handle, alpha=tf.constant(LEARNING_RATE, parameter.dtype), delta=gradient
            )

    return Update(update, [])


def _adam(parameters: list[Any]) -> Update:
    """Update by Adam. TensorFlow adds epsilon before it corrects the second moment, torch after; so epsilon is
    corrected too."""
    firsts, seconds = zeros_like(parameters), zeros_like(parameters)
    with tf.device(parameters[0].device):
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

    return Update(update, [*firsts, *seconds, number])


def _adamw(parameters: list[Any]) -> Update:
    """Update by AdamW. Weights decay first, independent of the gradient, as in torch."""
    as_adam = _adam(parameters)

    def update(gradients: list[Tensor]) -> None:
        for parameter in parameters:
            decay = tf.constant(1.0 - ADAM_LEARNING_RATE * ADAMW_DECAY, parameter.dtype)
            parameter.assign(parameter * decay, read_value=False)
        as_adam.apply(gradients)

    return Update(update, as_adam.slots)
