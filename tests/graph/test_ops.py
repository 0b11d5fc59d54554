"""Shapes and parameters each op infers, and what it refuses."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from depth import examples
from graph_examples import average_pools, convs, image_shapes
from hypothesis import assume, given

from deepstone.graph import ops


@pytest.mark.parametrize(
    ("op", "inputs", "output"),
    [
        (ops.Input(shape=(3, 227, 227)), [], (3, 227, 227)),
        (ops.Conv(channels=96, kernel=(11, 11), stride=(4, 4)), [(3, 227, 227)], (96, 55, 55)),
        (ops.Conv(channels=64, kernel=(7, 7), stride=(2, 2), pad=(3, 3, 3, 3)), [(3, 224, 224)], (64, 112, 112)),
        (ops.Conv(channels=8, kernel=(3, 1), pad=(0, 2, 1, 0), dilation=(2, 1)), [(4, 6, 5)], (8, 4, 6)),
        (ops.MaxPool(kernel=(3, 3), stride=(2, 2)), [(96, 55, 55)], (96, 27, 27)),
        (ops.MaxPool(kernel=(3, 3), stride=(2, 2)), [(8, 32, 32)], (8, 15, 15)),
        (ops.MaxPool(kernel=(3, 3), stride=(2, 2), ceil_mode=True), [(8, 32, 32)], (8, 16, 16)),
        # 4 + 2 - 2 = 4 in steps of 3: ceil gives 3 windows, but the third would start in the trailing pad.
        (ops.MaxPool(kernel=(2, 2), stride=(3, 3), pad=(1, 1, 1, 1), ceil_mode=True), [(1, 4, 4)], (1, 2, 2)),
        # The leading pad alone decides whether the last window counts: 1 + 3 = 4 > 3 here, 0 + 3 = 3 there.
        (ops.AveragePool(kernel=(2, 2), stride=(3, 3), pad=(1, 0, 0, 1), ceil_mode=True), [(1, 3, 3)], (1, 2, 1)),
        (ops.GlobalPool(), [(512, 7, 9)], (512, 1, 1)),
        (ops.Dense(features=10), [(64,)], (10,)),
        (ops.Relu(), [(4, 5, 6)], (4, 5, 6)),
        (ops.Relu(), [(7,)], (7,)),
        (ops.Clip(low=-1, high=1), [(4, 5, 6)], (4, 5, 6)),
        (ops.Silu(), [(7,)], (7,)),
        (ops.Multiply(), [(4, 5, 6), (4, 5, 6)], (4, 5, 6)),
        (ops.Multiply(), [(4, 5, 6), (4, 1, 1)], (4, 5, 6)),
        (ops.Multiply(), [(4,), (4, 5, 6)], (4, 5, 6)),
        (ops.BatchNorm(), [(4, 5, 6)], (4, 5, 6)),
        (ops.Lrn(), [(4, 5, 6)], (4, 5, 6)),
        (ops.Dropout(), [(9,)], (9,)),
        (ops.Add(), [(4, 5, 6)] * 3, (4, 5, 6)),
        (ops.Concat(), [(4, 5, 6), (1, 5, 6), (2, 5, 6)], (7, 5, 6)),
        (ops.Slice(first=1, channels=2), [(4, 5, 6)], (2, 5, 6)),
        (ops.Slice(first=0, channels=4), [(4, 5, 6)], (4, 5, 6)),
        (ops.Shuffle(groups=2), [(4, 5, 6)], (4, 5, 6)),
        (ops.Flatten(), [(4, 5, 6)], (120,)),
        (ops.SoftmaxCrossEntropy(), [(10,)], ()),
    ],
)
def test_output_shape(op, inputs, output):
    op.check()
    assert op.output(inputs) == output


def test_every_op_has_a_kind_of_its_own():
    assert {kind: op.kind for kind, op in ops.OPS.items()} == {kind: kind for kind in ops.OPS}
    assert len(ops.OPS) == 26


@pytest.mark.parametrize(
    ("op", "inputs", "parameters"),
    [
        (ops.Conv(channels=8, kernel=(3, 5)), [(4, 9, 9)], {"weight": (8, 4, 3, 5), "bias": (8,)}),
        (ops.Conv(channels=8, kernel=(1, 1), groups=4, bias=False), [(4, 9, 9)], {"weight": (8, 1, 1, 1)}),
        (ops.Dense(features=3), [(7,)], {"weight": (3, 7), "bias": (3,)}),
        (ops.Dense(features=3, bias=False), [(7,)], {"weight": (3, 7)}),
        (ops.BatchNorm(), [(4, 2, 2)], {"weight": (4,), "bias": (4,)}),
        (ops.Relu(), [(4, 2, 2)], {}),
    ],
)
def test_parameters_in_order(op, inputs, parameters):
    assert list(op.parameters(inputs).items()) == list(parameters.items())


def test_only_batch_norm_has_buffers():
    assert ops.BatchNorm().buffers([(4, 2, 2)]) == {"running_mean": (4,), "running_var": (4,)}
    assert ops.Conv(channels=8, kernel=(1, 1)).buffers([(4, 2, 2)]) == {}


@pytest.mark.parametrize(
    ("op", "says"),
    [
        (ops.Input(shape=(3, 4)), "shape must be (channels, height, width), not [3, 4]"),
        (ops.Input(shape=(3, 0, 4)), "shape must be at least 1, not 3, 0, 4"),
        (ops.Conv(channels=0, kernel=(1, 1)), "channels must be at least 1, not 0"),
        (ops.Conv(channels=4, kernel=(0, 1)), "kernel must be at least 1, not 0, 1"),
        (ops.Conv(channels=4, kernel=(1, 1), stride=(1, 0)), "stride must be at least 1, not 1, 0"),
        (ops.Conv(channels=4, kernel=(1, 1), dilation=(-1, 1)), "dilation must be at least 1, not -1, 1"),
        (ops.Conv(channels=4, kernel=(1, 1), groups=0), "groups must be at least 1, not 0"),
        (ops.Conv(channels=4, kernel=(1, 1), pad=(0, 0, -1, 0)), "pad must not be negative, not 0, 0, -1, 0"),
        (ops.Conv(channels=4, kernel=(1, 1), groups=3), "4 channels cannot be split into 3 groups"),
        (
            ops.MaxPool(kernel=(2, 2), stride=(1, 1), pad=(0, 2, 0, 0)),
            "pad [0, 2, 0, 0] must be smaller than the kernel",
        ),
        (ops.AveragePool(kernel=(2, 2), stride=(0, 1)), "stride must be at least 1, not 0, 1"),
        (ops.Dense(features=0), "features must be at least 1, not 0"),
        (ops.BatchNorm(epsilon=0.0), "epsilon must be above 0, not 0.0"),
        (ops.BatchNorm(momentum=1.5), "momentum must be between 0 and 1, not 1.5"),
        (ops.Lrn(size=4), "size must be odd and positive, not 4"),
        (ops.Lrn(k=0.0), "k must be above 0, not 0.0"),
        (ops.Lrn(alpha=-1.0), "alpha must not be negative, not -1.0"),
        (ops.Clip(low=1.0, high=1.0), "low must be below high, not 1.0 and 1.0"),
        (ops.Dropout(rate=1.0), "rate must be at least 0 and below 1, not 1.0"),
    ],
)
def test_senseless_attribute(op, says):
    with pytest.raises(ops.OpError) as caught:
        op.check()
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("op", "inputs", "says"),
    [
        (ops.Conv(channels=4, kernel=(3, 3)), [(5,)], "needs an image (channels, height, width), not [5]"),
        (ops.Conv(channels=4, kernel=(1, 1), groups=2), [(3, 5, 5)], "3 input channels cannot be split into 2 groups"),
        (ops.Conv(channels=4, kernel=(3, 3), dilation=(2, 2)), [(3, 5, 4)], "width 4 with padding is smaller than"),
        (ops.MaxPool(kernel=(3, 3), stride=(1, 1)), [(3, 2, 5)], "height 2 with pad 0 is smaller than the kernel 3"),
        (ops.Dense(features=4), [(3, 5, 5)], "put a flatten layer before it (input is [3, 5, 5])"),
        (ops.BatchNorm(), [(5,)], "needs an image"),
        (ops.Lrn(), [(5,)], "needs an image"),
        (ops.GlobalPool(), [(5,)], "needs an image"),
        (ops.Flatten(), [(5,)], "needs an image"),
        (ops.SoftmaxCrossEntropy(), [(3, 1, 1)], "put a flatten layer before it"),
        (ops.Add(), [(3, 5, 5), (3, 5, 4)], "inputs differ in shape: [[3, 5, 5], [3, 5, 4]]"),
        (ops.Slice(first=2, channels=3), [(4, 5, 6)], "takes channels 2 to 4 of an image that has 4"),
        (ops.Slice(first=0, channels=1), [(4,)], "needs an image"),
        (ops.Shuffle(groups=3), [(4, 5, 6)], "4 channels cannot be split into 3 groups"),
        (
            ops.Multiply(),
            [(3, 5, 5), (2, 1, 1)],
            "inputs must have one shape, or be an image and one number per channel",
        ),
        (ops.Multiply(), [(3, 5, 5), (3, 5, 1)], "not [3, 5, 5] and [3, 5, 1]"),
        (ops.Concat(), [(3, 5, 5), (3, 4, 5)], "inputs differ in height or width"),
    ],
)
def test_inputs_that_do_not_fit(op, inputs, says):
    with pytest.raises(ops.OpError) as caught:
        op.output(inputs)
    assert says in str(caught.value)


@examples(150)
@given(op=average_pools, shape=image_shapes)
def test_every_pool_window_sees_the_image(op, shape):
    """Or a maximum could be minus infinity and an average 0 / 0."""
    try:
        _, *counts = op.output([shape])
    except ops.OpError:
        assume(False)
    for side, count in enumerate(counts):
        start = (count - 1) * op.stride[side] - op.pad[2 * side]
        assert start < shape[1 + side]
        assert op.pad[2 * side] < op.kernel[side]


@examples(150)
@given(op=average_pools, shape=image_shapes)
def test_pool_rounds_as_torch_does(op, shape):
    top, _, left, _ = op.pad
    assume(2 * top <= op.kernel[0] and 2 * left <= op.kernel[1])  # torch knows no other padding
    same_pads = ops.AveragePool(
        kernel=op.kernel, stride=op.stride, pad=(top, top, left, left), ceil_mode=op.ceil_mode, count_pad=op.count_pad
    )
    try:
        ours = same_pads.output([shape])
    except ops.OpError:
        assume(False)
    theirs = F.avg_pool2d(torch.zeros(1, *shape), op.kernel, op.stride, (top, left), op.ceil_mode)
    assert ours == tuple(theirs.shape[1:])


@examples(100)
@given(op=convs(), shape=image_shapes)
def test_conv_shape_as_torch_has_it(op, shape):
    try:
        ours = op.output([shape])
    except ops.OpError:
        assume(False)
    top, bottom, left, right = op.pad
    padded = F.pad(torch.zeros(1, *shape), (left, right, top, bottom))
    weight = torch.zeros(op.parameters([shape])["weight"])
    theirs = F.conv2d(padded, weight, stride=op.stride, dilation=op.dilation, groups=op.groups)
    assert ours == tuple(theirs.shape[1:])
