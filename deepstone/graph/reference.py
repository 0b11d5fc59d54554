"""The reference for every lowering: each operation forward and backward in float64 NumPy. docs/graph.md has the
formulas.

Arrays have the batch first: (batch, channels, height, width), or (batch, features) once flattened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deepstone.errors import GraphError
from deepstone.graph import ops
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Op, OpError, Pad, Pair, Shape
from deepstone.graph.weights import initial_buffers

Array: TypeAlias = NDArray[np.float64]
Arrays: TypeAlias = dict[str, Array]
LayerArrays: TypeAlias = dict[str, Arrays]  # layer -> name of the parameter or buffer -> array
Given: TypeAlias = Mapping[str, NDArray[Any]]  # of any precision; computation is in float64


@dataclass(frozen=True, kw_only=True, slots=True)
class Gradients:
    """The loss's gradient with respect to each input and each parameter of one operation."""

    inputs: list[Array]
    parameters: Arrays


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """The result of one operation. `backward` takes the gradient of `value`; it may be called more than once."""

    value: Array
    backward: Callable[[Array], Gradients]
    buffers: Arrays  # after this step


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """Forward and backward of a whole graph. Each mapping is by layer; `upstream` is d loss / d that layer's output.

    The gradient of the samples is `input_gradients[graph.input.name][0]`.
    """

    loss: float
    outputs: Arrays
    upstream: Arrays
    input_gradients: dict[str, list[Array]]
    parameter_gradients: LayerArrays
    buffers: LayerArrays


def step(
    graph: Graph,
    parameters: Mapping[str, Given],
    samples: NDArray[Any],
    labels: NDArray[Any],
    *,
    training: bool = True,
    buffers: Mapping[str, Given] | None = None,
    drop_masks: Given | None = None,
) -> StepResult:
    """Return loss, outputs and gradients of one batch. Arguments do not change; the default buffers are the initial
    ones."""
    done = forward_all(graph, parameters, samples, labels, training=training, buffers=buffers, drop_masks=drop_masks)
    upstream: Arrays = {layer.name: np.ones(()) for layer in graph.losses}
    input_gradients: dict[str, list[Array]] = {}
    parameter_gradients: LayerArrays = {}
    for layer in reversed(graph.layers):
        gradients = done[layer.name].backward(upstream[layer.name])
        input_gradients[layer.name] = gradients.inputs
        if gradients.parameters:
            parameter_gradients[layer.name] = gradients.parameters
        if isinstance(layer.op, ops.Input):
            continue
        for name, gradient in zip(layer.inputs, gradients.inputs, strict=True):
            upstream[name] = upstream[name] + gradient if name in upstream else gradient
    return StepResult(
        loss=float(sum(done[layer.name].value for layer in graph.losses)),
        outputs={name: output.value for name, output in done.items()},
        upstream=upstream,
        input_gradients=input_gradients,
        parameter_gradients=parameter_gradients,
        buffers={name: output.buffers for name, output in done.items() if output.buffers},
    )


def forward_all(
    graph: Graph,
    parameters: Mapping[str, Given],
    samples: NDArray[Any],
    labels: NDArray[Any],
    *,
    training: bool,
    buffers: Mapping[str, Given] | None = None,
    drop_masks: Given | None = None,
) -> dict[str, Output]:
    """Return the output of every layer for one batch."""
    buffers = initial_buffers(graph) if buffers is None else buffers
    drop_masks = drop_masks or {}
    done: dict[str, Output] = {}
    for layer in graph.layers:
        try:
            done[layer.name] = forward(
                layer.op,
                _inputs_of(layer, done, samples),
                parameters.get(layer.name, {}),
                training=training,
                buffers=buffers.get(layer.name, {}),
                labels=labels,
                drop_mask=drop_masks.get(layer.name),
            )
        except OpError as error:
            raise GraphError(f"layer {layer.name!r}: {error}") from None
    return done


def _inputs_of(layer: Layer, done: Mapping[str, Output], samples: NDArray[Any]) -> list[NDArray[Any]]:
    return [samples] if isinstance(layer.op, ops.Input) else [done[name].value for name in layer.inputs]


def sgd_momentum_update(
    parameters: Mapping[str, Given],
    gradients: Mapping[str, Given],
    velocities: Mapping[str, Given] | None = None,
    *,
    lr: float = 1e-4,
    momentum: float = 0.9,
) -> tuple[LayerArrays, LayerArrays]:
    """Return parameters and velocities after one update: v = momentum * v + g, then w = w - lr * v; v starts at 0."""
    new_parameters: LayerArrays = {}
    new_velocities: LayerArrays = {}
    for layer, arrays in parameters.items():
        new_parameters[layer], new_velocities[layer] = {}, {}
        for name, weight in arrays.items():
            velocity = _float64(gradients[layer][name])
            if velocities is not None:
                velocity = momentum * _float64(velocities[layer][name]) + velocity
            new_velocities[layer][name] = velocity
            new_parameters[layer][name] = _float64(weight) - lr * velocity
    return new_parameters, new_velocities


def forward(
    op: Op,
    inputs: Sequence[NDArray[Any]],
    parameters: Given | None = None,
    *,
    training: bool = True,
    buffers: Given | None = None,
    labels: NDArray[Any] | None = None,
    drop_mask: NDArray[Any] | None = None,
) -> Output:
    """Run one operation on one batch. An input layer gets the images; `drop_mask` is true for values that stay.

    Raises OpError if the arrays do not fit the operation.
    """
    xs = [_float64(array) for array in inputs]
    weights = {name: _float64(array) for name, array in (parameters or {}).items()}
    running = {name: _float64(array) for name, array in (buffers or {}).items()}
    shapes = _check_inputs(op, xs)
    _check_shapes("parameter", weights, op.parameters(shapes))
    match op:
        case ops.Input() | ops.Flatten():
            return _reshape(xs[0], op.output(shapes))
        case ops.Conv():
            return _conv(op, xs[0], weights["weight"], weights.get("bias"))
        case ops.MaxPool():
            return _max_pool(op, xs[0])
        case ops.AveragePool():
            return _average_pool(op, xs[0])
        case ops.GlobalPool():
            return _global_pool(xs[0])
        case ops.Dense():
            return _dense(xs[0], weights["weight"], weights.get("bias"))
        case ops.Relu():
            return _relu(xs[0])
        case ops.Clip():
            return _clip(op, xs[0])
        case ops.Sigmoid():
            return _sigmoid(xs[0])
        case ops.Tanh():
            return _tanh(xs[0])
        case ops.Silu():
            return _silu(xs[0])
        case ops.HardSigmoid():
            return _hard_sigmoid(xs[0])
        case ops.HardSwish():
            return _hard_swish(xs[0])
        case ops.BatchNorm():
            _check_shapes("buffer", running, op.buffers(shapes))
            return _batch_norm(op, xs[0], weights["weight"], weights["bias"], running, training=training)
        case ops.Lrn():
            return _lrn(op, xs[0])
        case ops.Dropout():
            return _dropout(op, xs[0], drop_mask)
        case ops.Add():
            return _add(xs)
        case ops.Multiply():
            return _multiply(xs[0], xs[1])
        case ops.Concat():
            return _concat(xs)
        case ops.Slice():
            return _slice(op, xs[0])
        case ops.Shuffle():
            return _shuffle(op, xs[0])
        case ops.SoftmaxCrossEntropy():
            return _softmax_cross_entropy(op, xs[0], _check_labels(labels, xs[0]))
        case _:
            raise AssertionError(f"no reference for {op.kind}")


def _float64(array: NDArray[Any]) -> Array:
    return np.asarray(array, dtype=np.float64)


def _check_inputs(op: Op, inputs: list[Array]) -> list[Shape]:
    """Return the inputs' shapes without the batch. `op.output` checks them."""
    shapes: list[Shape] = [array.shape[1:] for array in inputs]
    if isinstance(op, ops.Input) and shapes != [op.shape]:
        raise OpError(f"images must have the shape {list(op.shape)}, not {[list(shape) for shape in shapes]}")
    if len({len(array) for array in inputs}) != 1:
        raise OpError("inputs differ in the batch")
    op.output(shapes)
    return shapes


def _check_shapes(what: str, given: Arrays, expected: Mapping[str, Shape]) -> None:
    """Check exact shapes: NumPy would silently broadcast a wrong one."""
    shapes = {name: array.shape for name, array in given.items()}
    if shapes != expected:
        raise OpError(f"{what}s must have the shapes {dict(expected)}, not {shapes}")


def _check_labels(labels: NDArray[Any] | None, scores: Array) -> NDArray[np.int64]:
    batch, classes = scores.shape
    if labels is None or labels.shape != (batch,) or not np.issubdtype(labels.dtype, np.integer):
        raise OpError(f"labels must be {batch} whole numbers")
    if labels.min() < 0 or labels.max() >= classes:
        raise OpError(f"labels must be from 0 to {classes - 1}")
    return labels.astype(np.int64)


def _output(value: Array, input_gradients: Callable[[Array], list[Array]]) -> Output:
    """Return the output of an operation without parameters and buffers."""
    return Output(
        value=value,
        backward=lambda upstream: Gradients(inputs=input_gradients(upstream), parameters={}),
        buffers={},
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Windows:
    """The windows of a kernel on a padded image. Each position of the kernel is one strided view."""

    image: Pair
    pad: Pad
    kernel: Pair
    stride: Pair
    dilation: Pair
    count: Pair

    def padded(self, image: Array, fill: float = 0.0) -> Array:
        """Return the image with its padding, and with the positions beyond it that ceil_mode's last window covers."""
        top, bottom, left, right = self.pad
        below = max(bottom, self._reach(0) - top - self.image[0])
        right_pad = max(right, self._reach(1) - left - self.image[1])
        widths = ((0, 0), (0, 0), (top, below), (left, right_pad))
        return np.pad(image, widths, constant_values=fill)

    def views(self, padded: Array) -> Iterator[Array]:
        """Yield, for each kernel position, row by row, the values of all windows as a writable view of `padded`."""
        for row in range(self.kernel[0]):
            for column in range(self.kernel[1]):
                yield padded[:, :, self._side(0, row), self._side(1, column)]

    def cropped(self, padded: Array) -> Array:
        top, _, left, _ = self.pad
        return padded[:, :, top : top + self.image[0], left : left + self.image[1]]

    def _reach(self, side: int) -> int:
        return (self.count[side] - 1) * self.stride[side] + (self.kernel[side] - 1) * self.dilation[side] + 1

    def _side(self, side: int, position: int) -> slice:
        start = position * self.dilation[side]
        return slice(start, start + (self.count[side] - 1) * self.stride[side] + 1, self.stride[side])


def _windows(op: ops.Conv | ops.MaxPool | ops.AveragePool, x: Array) -> _Windows:
    _, height, width = op.output([x.shape[1:]])
    return _Windows(
        image=(x.shape[2], x.shape[3]),
        pad=op.pad,
        kernel=op.kernel,
        stride=op.stride,
        dilation=op.dilation if isinstance(op, ops.Conv) else (1, 1),
        count=(height, width),
    )


def _conv(op: ops.Conv, x: Array, weight: Array, bias: Array | None) -> Output:
    windows = _windows(op, x)
    padded = windows.padded(x)
    batch, groups = len(x), op.groups
    fan_out, fan_in = op.channels // groups, x.shape[1] // groups
    # One contiguous matrix per kernel position, because NumPy multiplies strided matrices without BLAS.
    by_position = np.moveaxis(weight.reshape(groups, fan_out, fan_in, -1), -1, 0)
    kernels = np.ascontiguousarray(by_position)

    def columns(view: Array) -> Array:
        return view.reshape(batch, groups, fan_in, -1)

    value = np.zeros((batch, groups, fan_out, windows.count[0] * windows.count[1]))
    for kernel, view in zip(kernels, windows.views(padded), strict=True):
        value += kernel @ columns(view)
    value = value.reshape(batch, op.channels, *windows.count)
    if bias is not None:
        value += bias[:, None, None]

    def backward(upstream: Array) -> Gradients:
        rows = upstream.reshape(batch, groups, fan_out, -1)
        padded_gradient = np.zeros_like(padded)
        kernel_gradients = np.empty_like(kernels)
        views = zip(windows.views(padded), windows.views(padded_gradient), strict=True)
        for position, (view, view_gradient) in enumerate(views):
            kernel_gradients[position] = (rows @ columns(view).swapaxes(-1, -2)).sum(axis=0)
            view_gradient += (kernels[position].swapaxes(-1, -2) @ rows).reshape(view.shape)
        parameters = {"weight": np.moveaxis(kernel_gradients, 0, -1).reshape(weight.shape)}
        if bias is not None:
            parameters["bias"] = upstream.sum(axis=(0, 2, 3))
        return Gradients(inputs=[windows.cropped(padded_gradient)], parameters=parameters)

    return Output(value=value, backward=backward, buffers={})


def _max_pool(op: ops.MaxPool, x: Array) -> Output:
    windows = _windows(op, x)
    value = np.full((*x.shape[:2], *windows.count), -np.inf)
    winner = np.zeros(value.shape, dtype=np.int64)
    for position, view in enumerate(windows.views(windows.padded(x, fill=-np.inf))):
        # Strictly greater, so the first of equals wins; NaN wins, so that it shows.
        better = (view > value) | np.isnan(view)
        value = np.where(better, view, value)
        winner = np.where(better, position, winner)

    def input_gradients(upstream: Array) -> list[Array]:
        gradient = windows.padded(np.zeros_like(x))
        for position, view in enumerate(windows.views(gradient)):
            view += np.where(winner == position, upstream, 0.0)
        return [windows.cropped(gradient)]

    return _output(value, input_gradients)


def tied_windows(op: ops.MaxPool, x: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which windows have their largest value more than once. Their gradient is not unique."""
    image = _float64(x)
    windows = _windows(op, image)
    largest = _max_pool(op, image).value
    count = sum((view == largest for view in windows.views(windows.padded(image, fill=-np.inf))), np.zeros((), int))
    return count > 1


def _average_pool(op: ops.AveragePool, x: Array) -> Output:
    windows = _windows(op, x)
    divisor = _average_pool_divisor(op, windows)
    value = sum(windows.views(windows.padded(x)), start=np.zeros(())) / divisor

    def input_gradients(upstream: Array) -> list[Array]:
        gradient = windows.padded(np.zeros_like(x))
        for view in windows.views(gradient):
            view += upstream / divisor
        return [windows.cropped(gradient)]

    return _output(value, input_gradients)


def _average_pool_divisor(op: ops.AveragePool, windows: _Windows) -> Array:
    """Return how many values each window counts: those in the image, and those in the padding if `count_pad`."""
    counted = windows.padded(np.ones((1, 1, *windows.image)))
    if op.count_pad:
        top, bottom, left, right = windows.pad
        height, width = windows.image
        counted[:, :, : top + height + bottom, : left + width + right] = 1.0
    return sum(windows.views(counted), start=np.zeros(()))


def _global_pool(x: Array) -> Output:
    area = x.shape[2] * x.shape[3]
    return _output(
        x.mean(axis=(2, 3), keepdims=True),
        lambda upstream: [np.broadcast_to(upstream / area, x.shape).copy()],
    )


def _dense(x: Array, weight: Array, bias: Array | None) -> Output:
    value = x @ weight.T
    if bias is not None:
        value += bias

    def backward(upstream: Array) -> Gradients:
        parameters = {"weight": upstream.T @ x}
        if bias is not None:
            parameters["bias"] = upstream.sum(axis=0)
        return Gradients(inputs=[upstream @ weight], parameters=parameters)

    return Output(value=value, backward=backward, buffers={})


def _relu(x: Array) -> Output:
    return _output(np.maximum(x, 0.0), lambda upstream: [np.where(x > 0, upstream, 0.0)])


def _clip(op: ops.Clip, x: Array) -> Output:
    inside = (x > op.low) & (x < op.high)
    return _output(np.clip(x, op.low, op.high), lambda upstream: [np.where(inside, upstream, 0.0)])


def _logistic(x: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * x))  # 1 / (1 + exp(-x)), and exp cannot overflow


def _sigmoid(x: Array) -> Output:
    value = _logistic(x)
    return _output(value, lambda upstream: [upstream * value * (1.0 - value)])


def _tanh(x: Array) -> Output:
    value = np.tanh(x)
    return _output(value, lambda upstream: [upstream * (1.0 - np.square(value))])


def _silu(x: Array) -> Output:
    share = _logistic(x)
    return _output(x * share, lambda upstream: [upstream * share * (1.0 + x * (1.0 - share))])


def _hard_sigmoid(x: Array) -> Output:
    inside = (x > -3.0) & (x < 3.0)
    return _output(np.clip(x + 3.0, 0.0, 6.0) / 6.0, lambda upstream: [np.where(inside, upstream / 6.0, 0.0)])


def _hard_swish(x: Array) -> Output:
    share = np.clip(x + 3.0, 0.0, 6.0) / 6.0
    inside = (x > -3.0) & (x < 3.0)
    return _output(x * share, lambda upstream: [upstream * (share + np.where(inside, x / 6.0, 0.0))])


def _per_channel(values: Array) -> Array:
    return values[:, None, None]


def _batch_norm(op: ops.BatchNorm, x: Array, weight: Array, bias: Array, running: Arrays, *, training: bool) -> Output:
    over = (0, 2, 3)
    if training:
        mean, variance = x.mean(axis=over), x.var(axis=over)
        running = _running_after(op, running, mean, variance, values=x.size // x.shape[1])
    else:
        mean, variance = running["running_mean"], running["running_var"]
    inverse_deviation = 1.0 / np.sqrt(variance + op.epsilon)
    normalized = (x - _per_channel(mean)) * _per_channel(inverse_deviation)

    def backward(upstream: Array) -> Gradients:
        weight_gradient = (upstream * normalized).sum(axis=over)
        bias_gradient = upstream.sum(axis=over)
        centred = upstream
        if training:  # the batch's mean and variance depend on x too
            values = x.size // x.shape[1]
            centred = upstream - (_per_channel(bias_gradient) + normalized * _per_channel(weight_gradient)) / values
        return Gradients(
            inputs=[centred * _per_channel(weight * inverse_deviation)],
            parameters={"weight": weight_gradient, "bias": bias_gradient},
        )

    value = normalized * _per_channel(weight) + _per_channel(bias)
    return Output(value=value, backward=backward, buffers=running)


def _running_after(op: ops.BatchNorm, running: Arrays, mean: Array, variance: Array, *, values: int) -> Arrays:
    """Return the running mean and variance after a batch with `values` values per channel; the variance is unbiased."""
    if values < 2:
        raise OpError("batch_norm needs at least two values per channel to train; take a larger batch")
    new = {"running_mean": mean, "running_var": variance * values / (values - 1)}
    return {name: (1.0 - op.momentum) * running[name] + op.momentum * new[name] for name in new}


def _lrn(op: ops.Lrn, x: Array) -> Output:
    window_sum = _pixel_window_sum if op.within_channel else _channel_window_sum
    scale = op.k + op.alpha / op.window * window_sum(np.square(x), op.size)
    shrink = scale**-op.beta
    value = x * shrink

    def input_gradients(upstream: Array) -> list[Array]:
        # A value affects the scale of all values whose windows contain it: the same window, since windows are
        # symmetric.
        through_scale = window_sum(upstream * value / scale, op.size)
        return [upstream * shrink - 2.0 * op.alpha * op.beta / op.window * x * through_scale]

    return _output(value, input_gradients)


def _channel_window_sum(x: Array, size: int) -> Array:
    """The sum over `size` channels centred on each, clipped at the first and last channel."""
    half, channels = size // 2, x.shape[1]
    padded = np.pad(x, ((0, 0), (half, half), (0, 0), (0, 0)))
    return sum((padded[:, start : start + channels] for start in range(size)), start=np.zeros(()))


def _pixel_window_sum(x: Array, size: int) -> Array:
    """The sum over `size` x `size` pixels centred on each, clipped at the border of the image."""
    half, (height, width) = size // 2, x.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (half, half), (half, half)))
    starts = [(top, left) for top in range(size) for left in range(size)]
    return sum((padded[:, :, top : top + height, left : left + width] for top, left in starts), start=np.zeros(()))


def _dropout(op: ops.Dropout, x: Array, mask: NDArray[Any] | None) -> Output:
    if mask is None:
        return _reshape(x, x.shape[1:])
    if mask.shape != x.shape:
        raise OpError(f"the drop mask must have the shape {x.shape}, not {mask.shape}")
    factor = mask.astype(np.bool_) / (1.0 - op.rate)
    return _output(x * factor, lambda upstream: [upstream * factor])


def _add(xs: list[Array]) -> Output:
    return _output(sum(xs, start=np.zeros(())), lambda upstream: [upstream for _ in xs])


def _multiply(first: Array, second: Array) -> Output:
    """A gate is one number per channel: its gradient is the sum over the pixels that it multiplied."""
    sides = max(first.ndim, second.ndim)
    wide = [x.reshape(*x.shape, *[1] * (sides - x.ndim)) for x in (first, second)]

    def gradient(x: Array, product: Array) -> Array:
        return (product if x.shape == product.shape else product.sum(axis=(2, 3))).reshape(x.shape)

    return _output(
        wide[0] * wide[1], lambda upstream: [gradient(first, upstream * wide[1]), gradient(second, upstream * wide[0])]
    )


def _concat(xs: list[Array]) -> Output:
    ends = np.cumsum([x.shape[1] for x in xs])[:-1]
    return _output(np.concatenate(xs, axis=1), lambda upstream: np.split(upstream, ends, axis=1))


def _slice(op: ops.Slice, x: Array) -> Output:
    taken = slice(op.first, op.first + op.channels)

    def input_gradients(upstream: Array) -> list[Array]:
        gradient = np.zeros_like(x)
        gradient[:, taken] = upstream
        return [gradient]

    return _output(x[:, taken], input_gradients)


def _shuffle(op: ops.Shuffle, x: Array) -> Output:
    size = x.shape[1] // op.groups
    order = [group * size + place for place in range(size) for group in range(op.groups)]

    def input_gradients(upstream: Array) -> list[Array]:
        gradient = np.empty_like(x)
        gradient[:, order] = upstream
        return [gradient]

    return _output(x[:, order], input_gradients)


def _reshape(x: Array, shape: Shape) -> Output:
    return _output(x.reshape(len(x), *shape), lambda upstream: [upstream.reshape(x.shape)])


def _softmax_cross_entropy(op: ops.SoftmaxCrossEntropy, scores: Array, labels: NDArray[np.int64]) -> Output:
    batch = np.arange(len(scores))
    shifted = scores - scores.max(axis=1, keepdims=True)  # the same softmax, and exp cannot overflow
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    value = np.asarray(-op.weight * log_softmax[batch, labels].mean())

    def input_gradients(upstream: Array) -> list[Array]:
        gradient = np.exp(log_softmax)
        gradient[batch, labels] -= 1.0
        return [gradient * (op.weight / len(scores) * upstream)]

    return _output(value, input_gradients)
