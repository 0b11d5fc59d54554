"""Lowers each operation to JAX code as one would write it by hand. JAX traces it once, so none of it runs in a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from deepstone.backends.base import Unsupported
from deepstone.backends.jax.norms import batch_norm_evaluation, batch_norm_training, local_response_norm
from deepstone.backends.jax.settings import Settings
from deepstone.backends.jax.windows import Windows, average_pool, convolution, max_pool
from deepstone.graph import ops
from deepstone.graph.ops import Op, Shape


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """The arrays of one layer."""

    inputs: Sequence[Any]
    parameters: Mapping[str, Any]
    buffers: Mapping[str, Any]  # running statistics
    labels: Any
    key: Any | None  # randomness for dropout; None: nothing is dropped


@dataclass(frozen=True, kw_only=True, slots=True)
class Lowering:
    """Settings for computing operations; `training` false means evaluation."""

    settings: Settings
    training: bool

    def apply(self, op: Op, given: Given) -> tuple[Any, Mapping[str, Any]]:
        """Return the output of one operation, and its new running statistics."""
        settings = self.settings
        x = given.inputs[0]
        match op:
            case ops.BatchNorm() if self.training:
                return batch_norm_training(op, x, given.parameters, given.buffers, settings)
            case ops.BatchNorm():
                return batch_norm_evaluation(
                    op, x, given.parameters, given.buffers, settings.order, settings.wide
                ), given.buffers
            case ops.Conv():
                return self._conv(op, x, given.parameters), {}
            case ops.Dense():
                return self._dense(op, x, given.parameters), {}
            case ops.Relu():
                return jax.nn.relu(x), {}
            case ops.Clip():
                return _clip(x, op.low, op.high), {}
            case ops.Sigmoid():
                return jax.nn.sigmoid(x), {}
            case ops.Tanh():
                return jnp.tanh(x), {}
            case ops.Silu():
                return jax.nn.silu(x), {}
            case ops.HardSigmoid():
                return _hard_sigmoid(x), {}
            case ops.HardSwish():
                return x * _hard_sigmoid(x), {}
            case ops.MaxPool():
                return max_pool(x, self._windows(op, x)), {}
            case ops.AveragePool():
                pooled = average_pool(x.astype(settings.wide), self._windows(op, x), count_pad=op.count_pad)
                return pooled.astype(x.dtype), {}
            case ops.GlobalPool():
                return x.mean(settings.order.image_axes, keepdims=True), {}
            case ops.Lrn():
                return local_response_norm(op, x, settings.order, settings.wide), {}
            case ops.Dropout():
                return self._dropout(op, x, given.key), {}
            case ops.Add():
                return sum(given.inputs[1:], start=x), {}
            case ops.Multiply():
                return self._multiply(x, given.inputs[1]), {}
            case ops.Concat():
                return lax.concatenate(given.inputs, settings.order.channel_axis), {}
            case ops.Slice():
                axis = settings.order.channel_axis
                return lax.slice_in_dim(x, op.first, op.first + op.channels, axis=axis), {}
            case ops.Shuffle():
                return self._shuffle(op, x), {}
            case ops.Flatten():
                return self._flatten(x), {}
            case ops.SoftmaxCrossEntropy():
                return self._loss(op, x, given.labels), {}
            case _:
                raise Unsupported(f"JAX backend: no lowering of {op.kind}")

    def _conv(self, op: ops.Conv, x: Any, parameters: Mapping[str, Any]) -> Any:
        y = convolution(op, x, parameters["weight"].astype(x.dtype), self.settings)
        return self._plus(y, self.settings.order.along_channels(parameters["bias"])) if op.bias else y

    def _dense(self, op: ops.Dense, x: Any, parameters: Mapping[str, Any]) -> Any:
        y = jnp.dot(x, parameters["weight"].astype(x.dtype), precision=self.settings.product_precision)
        return self._plus(y, parameters["bias"]) if op.bias else y

    def _plus(self, y: Any, bias: Any) -> Any:
        """Add the bias in the wide type, so that its gradient, a sum over all pixels, is computed in it, too."""
        return (y.astype(self.settings.wide) + bias.astype(self.settings.wide)).astype(y.dtype)

    def _windows(self, op: ops.MaxPool | ops.AveragePool, x: Any) -> Windows:
        order = self.settings.order
        source: Shape = (x.shape[order.channel_axis], *(x.shape[axis] for axis in order.image_axes))
        return Windows.of(op, source, op.output([source]), order)

    def _dropout(self, op: ops.Dropout, x: Any, key: Any | None) -> Any:
        if key is None:
            return x
        passed = jax.random.bernoulli(key, 1 - op.rate, x.shape)
        return jnp.where(passed, x / (1 - op.rate), 0)

    def _multiply(self, first: Any, second: Any) -> Any:
        """Multiply by a gate in the wide type, so that its gradient, a sum over all pixels, is computed in it, too."""
        if first.shape == second.shape:
            return first * second
        order, wide = self.settings.order, self.settings.wide
        sides = [x if x.ndim == 4 else jnp.expand_dims(x, order.image_axes) for x in (first, second)]
        return (sides[0].astype(wide) * sides[1].astype(wide)).astype(first.dtype)

    def _shuffle(self, op: ops.Shuffle, x: Any) -> Any:
        axis = self.settings.order.channel_axis
        apart = x.reshape(*x.shape[:axis], op.groups, -1, *x.shape[axis + 1 :])
        return apart.swapaxes(axis, axis + 1).reshape(x.shape)

    def _flatten(self, x: Any) -> Any:
        """Flatten with channels slowest. NHWC is transposed, at no measurable cost."""
        first = x.transpose(0, 3, 1, 2) if self.settings.order.is_last else x
        return first.reshape(len(x), -1)

    def _loss(self, op: ops.SoftmaxCrossEntropy, x: Any, labels: Any) -> Any:
        log_softmax = jax.nn.log_softmax(x.astype(self.settings.wide))
        return -op.weight * jnp.take_along_axis(log_softmax, labels[:, None], axis=1).mean()


def _clip(x: Any, low: float, high: float) -> Any:
    """Clip. jax.nn.relu6 is not used: its gradient at the limits is a half."""
    return lax.clamp(jnp.asarray(low, x.dtype), x, jnp.asarray(high, x.dtype))


def _hard_sigmoid(x: Any) -> Any:
    """Compute a hard sigmoid, clipped first: in a narrow type x + 3 may round to a limit that x does not reach."""
    return _clip(x, -3.0, 3.0) / 6 + 0.5
