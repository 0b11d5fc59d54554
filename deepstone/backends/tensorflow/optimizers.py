"""The updates, each one kernel per parameter, that writes over the parameter and what is remembered of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

from deepstone.backends.base import ADAM_LEARNING_RATE, LEARNING_RATE, MOMENTUM

Tensor: TypeAlias = Any
Update: TypeAlias = Callable[[list[Tensor]], None]

# Adam's, as in the paper and in torch.
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


def make_optimizer(name: str, parameters: list[Any]) -> Update:
    """A function from gradients, in the order of the parameters, to an update."""
    return {"momentum": _momentum, "sgd": _sgd, "adam": _adam}[name](parameters)


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
    """TensorFlow adds epsilon before it corrects the second moment, torch after: so epsilon is corrected as well."""
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
