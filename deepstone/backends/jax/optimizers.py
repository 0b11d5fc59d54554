"""The update of a training step, as torch defines it, on lists of arrays. `slots` is what an optimizer remembers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from deepstone.backends.base import ADAM_LEARNING_RATE, LEARNING_RATE, MOMENTUM

_DECAY, _SQUARE_DECAY, _EPSILON = 0.9, 0.999, 1e-8  # torch's defaults for Adam


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


OPTIMIZERS = {
    "momentum": Optimizer(_zeros, _momentum),
    "sgd": Optimizer(lambda parameters: [], _sgd),
    "adam": Optimizer(_adam_start, _adam),
}
