"""The judge itself, judged: against torch in float64, against plain loops, and against finite differences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from depth import examples
from graph_examples import (
    average_pools,
    batch_norms,
    branching,
    convs,
    dropouts,
    image_shapes,
    lrns,
    max_pools,
    random_graphs,
)
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from deepstone.errors import GraphError
from deepstone.graph import ops
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.graph.reference import Output, forward, forward_all, sgd_momentum_update, step
from deepstone.graph.weights import initial_parameters, synthetic_batch

Shape = tuple[int, ...]
EXACT = {"rtol": 1e-11, "atol": 1e-12}  # rounding alone
BATCH = 2


def fits(op: ops.Op, shapes: list[Shape]) -> None:
    try:
        op.output(shapes)
    except ops.OpError:
        assume(False)


def normal(random: np.random.Generator, shape: Shape) -> np.ndarray:
    return random.standard_normal(shape)


def spread(random: np.random.Generator, shape: Shape) -> np.ndarray:
    """Values far from each other and from 0, in random order: nothing is near a kink."""
    count = int(np.prod(shape))
    return (0.1 * (random.permutation(count) + 0.5 - count // 2)).reshape(shape)


def arrays_of(random: np.random.Generator, shapes: Mapping[str, Shape]) -> dict[str, np.ndarray]:
    return {name: 0.5 + random.random(shape) for name, shape in shapes.items()}


# Central finite differences.


def numeric_gradient(array: np.ndarray, function: Any, nudge: float = 1e-5) -> np.ndarray:
    gradient = np.empty_like(array)
    for place in np.ndindex(array.shape):
        value = array[place]
        array[place] = value + nudge
        above = function()
        array[place] = value - nudge
        gradient[place] = (above - function()) / (2 * nudge)
        array[place] = value
    return gradient


def check_backward(op: ops.Op, inputs: list[np.ndarray], **options: Any) -> None:
    random = np.random.default_rng(1)
    shapes = [array.shape[1:] for array in inputs]
    parameters = arrays_of(random, op.parameters(shapes))
    buffers = arrays_of(random, op.buffers(shapes))

    def output() -> Output:
        return forward(op, inputs, parameters, buffers=buffers, **options)

    upstream = normal(random, output().value.shape)
    gradients = output().backward(upstream)

    def weighted() -> float:
        return float((output().value * upstream).sum())

    assert len(gradients.inputs) == len(inputs)
    assert gradients.parameters.keys() == parameters.keys()
    pairs = [*zip(inputs, gradients.inputs, strict=True)]
    pairs += [(parameters[name], gradients.parameters[name]) for name in parameters]
    for array, gradient in pairs:
        np.testing.assert_allclose(gradient, numeric_gradient(array, weighted), rtol=1e-5, atol=1e-7)


small_images = st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 5))
seeds = st.integers(0, 1000)


@examples(40)
@given(op=convs(), shape=st.tuples(st.integers(1, 2), st.integers(1, 5), st.integers(1, 5)), seed=seeds)
def test_conv_backward(op, shape, seed):
    shape = (shape[0] * op.groups, *shape[1:])
    fits(op, [shape])
    check_backward(op, [normal(np.random.default_rng(seed), (BATCH, *shape))])


@examples(40)
@given(op=max_pools, shape=small_images, seed=seeds)
def test_max_pool_backward(op, shape, seed):
    fits(op, [shape])
    check_backward(op, [spread(np.random.default_rng(seed), (BATCH, *shape))])


@examples(40)
@given(op=average_pools, shape=small_images, seed=seeds)
def test_average_pool_backward(op, shape, seed):
    fits(op, [shape])
    check_backward(op, [normal(np.random.default_rng(seed), (BATCH, *shape))])


@examples(15)
@given(op=batch_norms, shape=small_images, training=st.booleans(), seed=seeds)
def test_batch_norm_backward(op, shape, training, seed):
    check_backward(op, [normal(np.random.default_rng(seed), (BATCH, *shape))], training=training)


@examples(30)
@given(op=lrns, shape=small_images, seed=seeds)
def test_lrn_backward(op, shape, seed):
    check_backward(op, [normal(np.random.default_rng(seed), (BATCH, *shape))])


@examples(10)
@given(op=dropouts, shape=small_images, seed=seeds)
def test_dropout_backward(op, shape, seed):
    random = np.random.default_rng(seed)
    check_backward(op, [normal(random, (BATCH, *shape))], drop_mask=random.random((BATCH, *shape)) < 0.5)
    check_backward(op, [normal(random, (BATCH, *shape))])


OTHER_OPS: list[tuple[ops.Op, list[tuple[int, ...]]]] = [  # each with the shapes of its inputs
    (ops.GlobalPool(), [(3, 4, 2)]),
    (ops.Dense(features=4), [(5,)]),
    (ops.Relu(), [(3, 2, 2)]),
    (ops.Clip(low=-0.4, high=0.3), [(3, 2, 2)]),
    (ops.Sigmoid(), [(3, 2, 2)]),
    (ops.Tanh(), [(3, 2, 2)]),
    (ops.Silu(), [(3, 2, 2)]),
    (ops.HardSigmoid(), [(3, 2, 2)]),
    (ops.HardSwish(), [(3, 2, 2)]),
    (ops.Multiply(), [(2, 3, 2), (2, 3, 2)]),
    (ops.Multiply(), [(2, 3, 2), (2, 1, 1)]),
    (ops.Multiply(), [(2,), (2, 3, 2)]),
    (ops.Multiply(), [(5,), (5,)]),
    (ops.Add(), [(2, 3, 2)] * 3),
    (ops.Concat(), [(2, 3, 2), (1, 3, 2), (3, 3, 2)]),
    (ops.Slice(first=1, channels=2), [(4, 3, 2)]),
    (ops.Shuffle(groups=2), [(6, 3, 2)]),
    (ops.Shuffle(groups=3), [(6, 3, 2)]),
    (ops.Flatten(), [(2, 3, 2)]),
    (ops.SoftmaxCrossEntropy(weight=0.3), [(4,)]),
]


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        *OTHER_OPS,
        (ops.Dense(features=1, bias=False), [(3,)]),
        (ops.SoftmaxCrossEntropy(), [(1,)]),
        (ops.Input(shape=(2, 3, 2)), [(2, 3, 2)]),
    ],
)
def test_other_backward(op, shapes):
    random = np.random.default_rng(0)
    check_backward(op, [spread(random, (3, *shape)) for shape in shapes], labels=np.array([0, shapes[0][0] - 1, 0]))


# Torch in float64, an independent implementation of forward and backward.


def torch_forward(
    op: ops.Op, xs: list[Tensor], p: Mapping[str, Tensor], labels: Tensor, masks: Tensor | None
) -> Tensor:
    x = xs[0]
    match op:
        case ops.Conv():
            return F.conv2d(pad(x, op.pad), p["weight"], p.get("bias"), op.stride, 0, op.dilation, op.groups)
        case ops.MaxPool() | ops.AveragePool():
            return torch_pool(op, x)
        case ops.GlobalPool():
            return F.adaptive_avg_pool2d(x, 1)
        case ops.Dense():
            return F.linear(x, p["weight"], p.get("bias"))
        case ops.Relu():
            return F.relu(x)
        case ops.Clip():
            return F.hardtanh(x, op.low, op.high)
        case ops.Sigmoid():
            return F.sigmoid(x)
        case ops.Tanh():
            return F.tanh(x)
        case ops.Silu():
            return F.silu(x)
        case ops.HardSigmoid():
            return F.relu6(x + 3) / 6  # hardsigmoid's backward has the 1/6 of a float32
        case ops.HardSwish():
            return F.hardswish(x)
        case ops.Multiply():
            sides = max(len(each.shape) for each in xs)
            first, second = (each.reshape(*each.shape, *[1] * (sides - len(each.shape))) for each in xs)
            return first * second
        case ops.BatchNorm():
            return F.batch_norm(x, None, None, p["weight"], p["bias"], training=True, eps=op.epsilon)
        case ops.Lrn(within_channel=True):
            mean = F.avg_pool2d(x * x, op.size, stride=1, padding=op.size // 2, count_include_pad=True)
            return x / (op.k + op.alpha * mean) ** op.beta
        case ops.Lrn():
            return F.local_response_norm(x, op.size, op.alpha, op.beta, op.k)
        case ops.Dropout():
            return x if masks is None else x * masks / (1 - op.rate)
        case ops.Add():
            return torch.stack(xs).sum(0)
        case ops.Concat():
            return torch.cat(xs, 1)
        case ops.Slice():
            return x[:, op.first : op.first + op.channels]
        case ops.Shuffle():
            return torch.cat([x[:, start :: x.shape[1] // op.groups] for start in range(x.shape[1] // op.groups)], 1)
        case ops.Flatten():
            return x.flatten(1)
        case ops.SoftmaxCrossEntropy():
            return op.weight * F.cross_entropy(x, labels)
        case _:
            raise AssertionError(op.kind)


def pad(x: Tensor, pads: tuple[int, int, int, int], value: float = 0.0) -> Tensor:
    top, bottom, left, right = pads
    return F.pad(x, (left, right, top, bottom), value=value)


def torch_pool(op: ops.MaxPool | ops.AveragePool, x: Tensor) -> Tensor:
    """Torch's own padding is symmetric and at most half the kernel, so padding is laid on by hand."""
    count = op.output([tuple(x.shape[1:])])[1:]
    top, bottom, left, right = op.pad
    reach = [(count[side] - 1) * op.stride[side] + op.kernel[side] for side in (0, 1)]
    height, width = x.shape[2:]
    beyond = (0, max(0, reach[0] - top - height - bottom), 0, max(0, reach[1] - left - width - right))
    if isinstance(op, ops.MaxPool):
        pooled = F.max_pool2d(pad(pad(x, op.pad, -torch.inf), beyond, -torch.inf), op.kernel, op.stride)
    else:
        total = F.avg_pool2d(pad(pad(x, op.pad), beyond), op.kernel, op.stride, divisor_override=1)
        ones = pad(pad(torch.ones_like(x), op.pad, 1.0 if op.count_pad else 0.0), beyond)
        pooled = total / F.avg_pool2d(ones, op.kernel, op.stride, divisor_override=1)
    return pooled[:, :, : count[0], : count[1]]


def tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    return {name: torch.tensor(array, dtype=torch.float64, requires_grad=True) for name, array in arrays.items()}


def check_against_torch(op: ops.Op, inputs: list[np.ndarray], *, mask: np.ndarray | None = None) -> None:
    random = np.random.default_rng(2)
    shapes = [array.shape[1:] for array in inputs]
    parameters = arrays_of(random, op.parameters(shapes))
    buffers = arrays_of(random, op.buffers(shapes))
    labels = random.integers(0, shapes[0][0], size=len(inputs[0]))
    ours = forward(op, inputs, parameters, buffers=buffers, labels=labels, drop_mask=mask)
    xs = [torch.tensor(array, requires_grad=True) for array in inputs]
    held = tensors(parameters)
    theirs = torch_forward(op, xs, held, torch.tensor(labels), None if mask is None else torch.tensor(mask))
    np.testing.assert_allclose(ours.value, theirs.detach().numpy(), **EXACT)
    upstream = normal(random, ours.value.shape)
    theirs.backward(torch.tensor(upstream))
    gradients = ours.backward(upstream)
    for x, gradient in zip(xs, gradients.inputs, strict=True):
        np.testing.assert_allclose(gradient, x.grad.numpy(), **EXACT)
    for name, tensor in held.items():
        np.testing.assert_allclose(gradients.parameters[name], tensor.grad.numpy(), **EXACT)


@examples(60)
@given(op=convs(), shape=image_shapes, seed=seeds)
def test_conv_against_torch(op, shape, seed):
    shape = (shape[0] * op.groups, *shape[1:])
    fits(op, [shape])
    check_against_torch(op, [normal(np.random.default_rng(seed), (BATCH, *shape))])


@examples(60)
@given(op=st.one_of(max_pools, average_pools), shape=image_shapes, seed=seeds)
def test_pool_against_torch(op, shape, seed):
    fits(op, [shape])
    check_against_torch(op, [normal(np.random.default_rng(seed), (BATCH, *shape))])


@examples(40)
@given(op=st.one_of(batch_norms, lrns), shape=image_shapes, seed=seeds)
def test_normalization_against_torch(op, shape, seed):
    check_against_torch(op, [normal(np.random.default_rng(seed), (BATCH, *shape))])


@pytest.mark.parametrize(("op", "shapes"), [*OTHER_OPS, (ops.Dropout(rate=0.3), [(2, 3, 2)])])
def test_other_ops_against_torch(op, shapes):
    random = np.random.default_rng(0)
    check_against_torch(op, [normal(random, (3, *shape)) for shape in shapes])
    if isinstance(op, ops.Dropout):
        check_against_torch(op, [normal(random, (3, *shapes[0]))], mask=random.random((3, *shapes[0])) < 0.5)


# Pools: torch's own ceil_mode and count_include_pad, and plain loops for the padding torch cannot express.


@examples(100)
@given(op=average_pools, shape=image_shapes, seed=seeds)
def test_pool_against_torchs_own_options(op, shape, seed):
    top, _, left, _ = op.pad
    assume(2 * top <= op.kernel[0] and 2 * left <= op.kernel[1])
    options: dict[str, Any] = {"kernel": op.kernel, "stride": op.stride, "ceil_mode": op.ceil_mode}
    average = ops.AveragePool(pad=(top, top, left, left), count_pad=op.count_pad, **options)
    largest = ops.MaxPool(pad=(top, top, left, left), **options)
    fits(average, [shape])
    x = normal(np.random.default_rng(seed), (BATCH, *shape))
    arguments = (torch.tensor(x), op.kernel, op.stride, (top, left))
    theirs = F.avg_pool2d(*arguments, op.ceil_mode, op.count_pad)
    np.testing.assert_allclose(forward(average, [x]).value, theirs.numpy(), **EXACT)
    theirs = F.max_pool2d(*arguments, 1, op.ceil_mode)
    np.testing.assert_array_equal(forward(largest, [x]).value, theirs.numpy())


def looped_pool(op: ops.MaxPool | ops.AveragePool, x: np.ndarray) -> np.ndarray:
    """One window at a time, by the words of docs/graph.md."""
    height, width = x.shape[2:]
    top, bottom, left, right = op.pad
    value = np.empty((*x.shape[:2], *op.output([x.shape[1:]])[1:]))
    for row, column in np.ndindex(value.shape[2:]):
        first_row, first_column = row * op.stride[0] - top, column * op.stride[1] - left
        rows = range(max(first_row, 0), min(first_row + op.kernel[0], height))
        columns = range(max(first_column, 0), min(first_column + op.kernel[1], width))
        window = x[:, :, rows.start : rows.stop, columns.start : columns.stop]
        if isinstance(op, ops.MaxPool):
            value[:, :, row, column] = window.max(axis=(2, 3))
            continue
        area = len(rows) * len(columns)
        if op.count_pad:
            end_row = min(first_row + op.kernel[0], height + bottom)
            end_column = min(first_column + op.kernel[1], width + right)
            area = (end_row - first_row) * (end_column - first_column)
        value[:, :, row, column] = window.sum(axis=(2, 3)) / area
    return value


@examples(100)
@given(op=st.one_of(max_pools, average_pools), shape=image_shapes, seed=seeds)
def test_pool_against_loops(op, shape, seed):
    fits(op, [shape])
    x = normal(np.random.default_rng(seed), (BATCH, *shape))
    np.testing.assert_allclose(forward(op, [x]).value, looped_pool(op, x), **EXACT)


def test_average_pool_divisor_by_hand():
    """Ones, so each value is the share of its window that lies in the image."""
    ones = np.ones((1, 1, 4, 1))
    options: dict[str, Any] = {"kernel": (3, 1), "stride": (2, 1), "pad": (1, 1, 0, 0), "ceil_mode": True}
    # Rows -1..1, 1..3, 3..5; row 4 is padding, row 5 lies beyond it and counts for nobody.
    with_pad = forward(ops.AveragePool(**options, count_pad=True), [ones]).value.ravel()
    np.testing.assert_allclose(with_pad, [2 / 3, 1.0, 1 / 2])
    without = forward(ops.AveragePool(**options, count_pad=False), [ones]).value.ravel()
    np.testing.assert_allclose(without, [1.0, 1.0, 1.0])


# What the formulas leave open.


@examples(60)
@given(op=max_pools, shape=image_shapes, seed=seeds)
def test_ties_go_to_the_first(op, shape, seed):
    """Many equal values, zeros among them; torch gives the first of each window the whole gradient as well."""
    fits(op, [shape])
    x = np.random.default_rng(seed).integers(-1, 2, (BATCH, *shape)).astype(np.float64)
    check_against_torch(op, [x])


def test_tie_by_hand():
    output = forward(ops.MaxPool(kernel=(2, 2), stride=(2, 2)), [np.array([[[[1.0, 5.0], [5.0, 5.0]]]])])
    np.testing.assert_array_equal(output.backward(np.array([[[[3.0]]]])).inputs[0], [[[[0.0, 3.0], [0.0, 0.0]]]])


def test_max_pool_pads_with_minus_infinity():
    output = forward(ops.MaxPool(kernel=(2, 2), stride=(2, 2), pad=(1, 1, 1, 1)), [np.full((1, 1, 2, 2), -7.0)])
    np.testing.assert_array_equal(output.value, np.full((1, 1, 2, 2), -7.0))


def test_not_a_number_is_not_hidden():
    x = np.array([[[[np.nan, 1.0], [2.0, 3.0]]]])
    assert np.isnan(forward(ops.MaxPool(kernel=(2, 2), stride=(1, 1)), [x]).value).all()
    assert np.isnan(forward(ops.Relu(), [x]).value[0, 0, 0, 0])


def test_relu_gradient_at_zero_is_zero():
    output = forward(ops.Relu(), [np.array([[-1.0, 0.0, 2.0]])])
    np.testing.assert_array_equal(output.backward(np.ones((1, 3))).inputs[0], [[0.0, 0.0, 1.0]])


@pytest.mark.parametrize(
    ("op", "slopes"),
    [
        (ops.Clip(low=-3, high=3), [0.0, 1.0, 0.0]),
        (ops.HardSigmoid(), [0.0, 1 / 6, 0.0]),
        (ops.HardSwish(), [0.0, 0.5, 1.0]),
    ],
)
def test_gradients_at_the_limits(op, slopes):
    gradients = forward(op, [np.array([[-3.0, 0.0, 3.0]])]).backward(np.ones((1, 3)))
    assert gradients.inputs[0].tolist() == [slopes]


def test_sigmoid_of_large_numbers_does_not_overflow():
    assert forward(ops.Sigmoid(), [np.array([[-1e4, 1e4]])]).value.tolist() == [[0.0, 1.0]]
    assert forward(ops.Silu(), [np.array([[-1e4, 1e4]])]).value.tolist() == [[0.0, 1e4]]


def test_lrn_by_hand():
    x = np.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 4, 1, 1)
    op = ops.Lrn(size=3, alpha=0.6, beta=0.5, k=2.0)
    squares = np.array([1 + 4, 1 + 4 + 9, 4 + 9 + 16, 9 + 16])
    np.testing.assert_allclose(forward(op, [x]).value.ravel(), x.ravel() / np.sqrt(2.0 + 0.2 * squares))


def test_flatten_has_channels_slowest():
    x = np.arange(24.0).reshape(1, 2, 3, 4)
    np.testing.assert_array_equal(forward(ops.Flatten(), [x]).value, np.arange(24.0)[None])


def test_loss_of_large_scores_does_not_overflow():
    output = forward(ops.SoftmaxCrossEntropy(), [np.array([[1e4, 0.0]])], labels=np.array([1]))
    assert output.value == 1e4
    np.testing.assert_array_equal(output.backward(np.ones(())).inputs[0], [[1.0, -1.0]])


@examples(30)
@given(op=batch_norms, shape=image_shapes, seed=seeds)
def test_running_statistics_against_torch(op, shape, seed):
    random = np.random.default_rng(seed)
    buffers = arrays_of(random, op.buffers([shape]))
    parameters = arrays_of(random, op.parameters([shape]))
    mean, var = torch.tensor(buffers["running_mean"]), torch.tensor(buffers["running_var"])
    weight, bias = torch.tensor(parameters["weight"]), torch.tensor(parameters["bias"])
    for training in (True, True, False):
        x = normal(random, (BATCH, *shape))
        ours = forward(op, [x], parameters, training=training, buffers=buffers)
        theirs = F.batch_norm(torch.tensor(x), mean, var, weight, bias, training, op.momentum, op.epsilon)
        np.testing.assert_allclose(ours.value, theirs.numpy(), **EXACT)
        buffers = ours.buffers
        np.testing.assert_allclose(buffers["running_mean"], mean.numpy(), **EXACT)
        np.testing.assert_allclose(buffers["running_var"], var.numpy(), **EXACT)


# What is refused.


@pytest.mark.parametrize(
    ("op", "inputs", "options", "says"),
    [
        (ops.Dense(features=2), [np.ones((2, 3))], {"parameters": {}}, "parameters must have the shapes"),
        (
            ops.Dense(features=2),
            [np.ones((2, 3))],
            {"parameters": {"weight": np.ones((2, 3)), "bias": np.ones(1)}},
            "parameters must have the shapes {'weight': (2, 3), 'bias': (2,)}, not",
        ),
        (ops.Relu(), [np.ones((2, 3))], {"parameters": {"weight": np.ones(3)}}, "parameters must have the shapes {}"),
        (ops.Dense(features=2), [np.ones((2, 3, 1, 1))], {}, "put a flatten layer before it"),
        (ops.Add(), [np.ones((2, 3)), np.ones((1, 3))], {}, "inputs differ in the batch"),
        (ops.Input(shape=(1, 2, 3)), [np.ones((5, 3, 2, 1))], {}, "images must have the shape [1, 2, 3]"),
        (ops.Dropout(), [np.ones((2, 3))], {"drop_mask": np.ones((1, 3))}, "the drop mask must have the shape (2, 3)"),
        (ops.SoftmaxCrossEntropy(), [np.ones((2, 3))], {}, "labels must be 2 whole numbers"),
        (ops.SoftmaxCrossEntropy(), [np.ones((2, 3))], {"labels": np.array([0.0, 1.0])}, "labels must be 2 whole"),
        (ops.SoftmaxCrossEntropy(), [np.ones((2, 3))], {"labels": np.array([0, 3])}, "labels must be from 0 to 2"),
        (ops.SoftmaxCrossEntropy(), [np.ones((2, 3))], {"labels": np.array([0, -1])}, "labels must be from 0 to 2"),
        (
            ops.BatchNorm(),
            [np.ones((2, 1, 1, 1))],
            {"parameters": {"weight": np.ones(1), "bias": np.ones(1)}},
            "buffers",
        ),
        (
            ops.BatchNorm(),
            [np.ones((1, 1, 1, 1))],
            {
                "parameters": {"weight": np.ones(1), "bias": np.ones(1)},
                "buffers": {"running_mean": np.ones(1), "running_var": np.ones(1)},
            },
            "batch_norm needs at least two values per channel",
        ),
    ],
)
def test_arrays_that_do_not_fit(op, inputs, options, says):
    with pytest.raises(ops.OpError) as caught:
        forward(op, inputs, **options)
    assert says in str(caught.value)


def test_step_names_the_layer():
    graph = branching()
    samples, labels = synthetic_batch(graph, BATCH, 0)
    with pytest.raises(GraphError, match="layer 'conv1': parameters must have the shapes"):
        step(graph, {}, samples, labels)


# Whole graphs.


def torch_step(graph: Graph, parameters: Any, images: np.ndarray, labels: np.ndarray, masks: Any) -> Any:
    """Loss, outputs with their gradients, and parameters with theirs."""
    held = {layer: tensors(arrays) for layer, arrays in parameters.items()}
    outputs: dict[str, Tensor] = {}
    for layer in graph.layers:
        if isinstance(layer.op, ops.Input):
            outputs[layer.name] = torch.tensor(images, dtype=torch.float64, requires_grad=True)
            continue
        xs = [outputs[name] for name in layer.inputs]
        mask = masks.get(layer.name)
        mask = None if mask is None else torch.tensor(mask)
        # A view would have no gradient of its own to compare.
        outputs[layer.name] = torch_forward(layer.op, xs, held.get(layer.name, {}), torch.tensor(labels), mask).clone()
        outputs[layer.name].retain_grad()
    loss = torch.stack([outputs[layer.name] for layer in graph.losses]).sum()
    loss.backward()
    return loss, outputs, held


def check_step_against_torch(graph: Graph, seed: int, masks: Mapping[str, np.ndarray]) -> None:
    random = np.random.default_rng(seed)
    parameters = {
        layer.name: {name: 0.5 * normal(random, shape) for name, shape in graph.parameters(layer).items()}
        for layer in graph.layers
        if graph.parameters(layer)
    }
    samples, labels = synthetic_batch(graph, 3, seed)
    ours = step(graph, parameters, samples, labels, drop_masks=masks)
    loss, outputs, held = torch_step(graph, parameters, samples, labels, masks)
    np.testing.assert_allclose(ours.loss, loss.item(), **EXACT)
    assert list(ours.outputs) == [layer.name for layer in graph.layers]
    for name, output in outputs.items():
        np.testing.assert_allclose(ours.outputs[name], output.detach().numpy(), err_msg=name, **EXACT)
        np.testing.assert_allclose(ours.upstream[name], output.grad.numpy(), err_msg=name, rtol=1e-9, atol=1e-11)
    assert ours.parameter_gradients.keys() == held.keys()
    for layer, arrays in held.items():
        for name, tensor in arrays.items():
            gradient = ours.parameter_gradients[layer][name]
            np.testing.assert_allclose(gradient, tensor.grad.numpy(), err_msg=layer, rtol=1e-9, atol=1e-11)
    for layer in graph.layers:
        for name, gradient in zip(layer.inputs, ours.input_gradients[layer.name], strict=False):
            assert gradient.shape == ours.outputs[name].shape
            if len(graph.consumers[name]) == 1:
                np.testing.assert_array_equal(gradient, ours.upstream[name])


def test_branching_step_against_torch():
    graph = branching()
    check_step_against_torch(graph, 0, {})
    mask = np.random.default_rng(0).random((3, *graph.shapes["drop"])) < 0.75
    check_step_against_torch(graph, 1, {"drop": mask})


@examples(40)
@given(graph=random_graphs(), seed=seeds)
def test_random_step_against_torch(graph, seed):
    check_step_against_torch(graph, seed, {})


def test_step_changes_nothing_it_is_given():
    graph = branching()
    parameters = initial_parameters(graph, 0)
    samples, labels = synthetic_batch(graph, BATCH, 0)
    before = [samples.copy(), labels.copy(), *(a.copy() for held in parameters.values() for a in held.values())]
    one = step(graph, parameters, samples, labels)
    after = [samples, labels, *(a for held in parameters.values() for a in held.values())]
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)
    assert step(graph, parameters, samples, labels).loss == one.loss


def test_layer_alone_gives_what_it_gave_in_the_graph():
    """As a checker uses it: each layer on the reference's own inputs and upstream gradient."""
    graph = branching()
    parameters = initial_parameters(graph, 0)
    samples, labels = synthetic_batch(graph, BATCH, 0)
    whole = step(graph, parameters, samples, labels)
    layer = graph.layer("left")
    alone = forward(layer.op, [whole.outputs[name] for name in layer.inputs], parameters["left"])
    np.testing.assert_array_equal(alone.value, whole.outputs["left"])
    gradients = alone.backward(whole.upstream["left"])
    np.testing.assert_array_equal(gradients.inputs[0], whole.input_gradients["left"][0])
    np.testing.assert_array_equal(gradients.parameters["weight"], whole.parameter_gradients["left"]["weight"])


def test_evaluation_uses_and_keeps_the_running_statistics():
    graph = branching()
    parameters = initial_parameters(graph, 0)
    samples, labels = synthetic_batch(graph, BATCH, 0)
    trained = step(graph, parameters, samples, labels)
    buffers = trained.buffers
    assert list(buffers) == ["left_bn"]
    output = forward_all(graph, parameters, samples, labels, training=False, buffers=buffers)["left_bn"]
    x, running = trained.outputs["left"], buffers["left_bn"]
    scale = 1 / np.sqrt(running["running_var"] + 1e-3)
    expected = (x - running["running_mean"][:, None, None]) * scale[:, None, None]
    np.testing.assert_allclose(output.value, expected, **EXACT)
    for name, array in running.items():
        np.testing.assert_array_equal(output.buffers[name], array)


def test_sgd_against_torch():
    """Three steps of training a small net, weights and losses."""
    b = Builder("tiny")
    x = b.relu("relu", b.conv("conv", b.input("data", (2, 5, 5)), channels=3, kernel=3))
    b.softmax_cross_entropy("loss", b.dense("fc", b.flatten("flat", x), features=4))
    graph = b.build()
    samples, labels = synthetic_batch(graph, 3, 0)
    parameters: Any = initial_parameters(graph, 0)
    held = {layer: tensors(arrays) for layer, arrays in parameters.items()}
    optimizer = torch.optim.SGD([t for arrays in held.values() for t in arrays.values()], lr=0.1, momentum=0.8)
    velocities = None
    x, y = torch.tensor(samples, dtype=torch.float64), torch.tensor(labels)
    for _ in range(3):
        result = step(graph, parameters, samples, labels)
        parameters, velocities = sgd_momentum_update(
            parameters, result.parameter_gradients, velocities, lr=0.1, momentum=0.8
        )
        optimizer.zero_grad()
        hidden = F.relu(F.conv2d(x, held["conv"]["weight"], held["conv"]["bias"])).flatten(1)
        loss = F.cross_entropy(F.linear(hidden, held["fc"]["weight"], held["fc"]["bias"]), y)
        loss.backward()
        optimizer.step()
        np.testing.assert_allclose(result.loss, loss.item(), **EXACT)
        for layer, arrays in held.items():
            for name, tensor in arrays.items():
                np.testing.assert_allclose(parameters[layer][name], tensor.detach().numpy(), **EXACT)
