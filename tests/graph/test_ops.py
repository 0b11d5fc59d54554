"""Shapes and parameters each op infers, and what it refuses."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from depth import examples
from graph_examples import average_pools, convs, image_shapes
from hypothesis import assume, given

from deepstone.graph.ops import (
    OPS,
    Add,
    AveragePool,
    BatchNorm,
    Clip,
    Concat,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalPool,
    Input,
    Lrn,
    MaxPool,
    Multiply,
    OpError,
    Relu,
    Shuffle,
    Silu,
    Slice,
    SoftmaxCrossEntropy,
)


@pytest.mark.parametrize(
    ("op", "inputs", "output"),
    [
        (Input(shape=(3, 227, 227)), [], (3, 227, 227)),
        (Conv(channels=96, kernel=(11, 11), stride=(4, 4)), [(3, 227, 227)], (96, 55, 55)),
        (Conv(channels=64, kernel=(7, 7), stride=(2, 2), pad=(3, 3, 3, 3)), [(3, 224, 224)], (64, 112, 112)),
        (Conv(channels=8, kernel=(3, 1), pad=(0, 2, 1, 0), dilation=(2, 1)), [(4, 6, 5)], (8, 4, 6)),
        (MaxPool(kernel=(3, 3), stride=(2, 2)), [(96, 55, 55)], (96, 27, 27)),
        (MaxPool(kernel=(3, 3), stride=(2, 2)), [(8, 32, 32)], (8, 15, 15)),
        (MaxPool(kernel=(3, 3), stride=(2, 2), ceil_mode=True), [(8, 32, 32)], (8, 16, 16)),
        # 4 + 2 - 2 = 4 in steps of 3: ceil gives 3 windows, but the third would start in the trailing pad.
        (MaxPool(kernel=(2, 2), stride=(3, 3), pad=(1, 1, 1, 1), ceil_mode=True), [(1, 4, 4)], (1, 2, 2)),
        # The leading pad alone decides whether the last window counts: 1 + 3 = 4 > 3 here, 0 + 3 = 3 there.
        (AveragePool(kernel=(2, 2), stride=(3, 3), pad=(1, 0, 0, 1), ceil_mode=True), [(1, 3, 3)], (1, 2, 1)),
        (GlobalPool(), [(512, 7, 9)], (512, 1, 1)),
        (Dense(features=10), [(64,)], (10,)),
        (Relu(), [(4, 5, 6)], (4, 5, 6)),
        (Relu(), [(7,)], (7,)),
        (Clip(low=-1, high=1), [(4, 5, 6)], (4, 5, 6)),
        (Silu(), [(7,)], (7,)),
        (Multiply(), [(4, 5, 6), (4, 5, 6)], (4, 5, 6)),
        (Multiply(), [(4, 5, 6), (4, 1, 1)], (4, 5, 6)),
        (Multiply(), [(4,), (4, 5, 6)], (4, 5, 6)),
        (BatchNorm(), [(4, 5, 6)], (4, 5, 6)),
        (Lrn(), [(4, 5, 6)], (4, 5, 6)),
        (Dropout(), [(9,)], (9,)),
        (Add(), [(4, 5, 6)] * 3, (4, 5, 6)),
        (Concat(), [(4, 5, 6), (1, 5, 6), (2, 5, 6)], (7, 5, 6)),
        (Slice(first=1, channels=2), [(4, 5, 6)], (2, 5, 6)),
        (Slice(first=0, channels=4), [(4, 5, 6)], (4, 5, 6)),
        (Shuffle(groups=2), [(4, 5, 6)], (4, 5, 6)),
        (Flatten(), [(4, 5, 6)], (120,)),
        (SoftmaxCrossEntropy(), [(10,)], ()),
    ],
)
def test_output_shape(op, inputs, output):
    op.check()
    assert op.output(inputs) == output


def test_every_op_has_a_kind_of_its_own():
    assert {kind: op.kind for kind, op in OPS.items()} == {kind: kind for kind in OPS}
    assert len(OPS) == 26


@pytest.mark.parametrize(
    ("op", "inputs", "parameters"),
    [
        (Conv(channels=8, kernel=(3, 5)), [(4, 9, 9)], {"weight": (8, 4, 3, 5), "bias": (8,)}),
        (Conv(channels=8, kernel=(1, 1), groups=4, bias=False), [(4, 9, 9)], {"weight": (8, 1, 1, 1)}),
        (Dense(features=3), [(7,)], {"weight": (3, 7), "bias": (3,)}),
        (Dense(features=3, bias=False), [(7,)], {"weight": (3, 7)}),
        (BatchNorm(), [(4, 2, 2)], {"weight": (4,), "bias": (4,)}),
        (Relu(), [(4, 2, 2)], {}),
    ],
)
def test_parameters_in_order(op, inputs, parameters):
    assert list(op.parameters(inputs).items()) == list(parameters.items())


def test_only_batch_norm_has_buffers():
    assert BatchNorm().buffers([(4, 2, 2)]) == {"running_mean": (4,), "running_var": (4,)}
    assert Conv(channels=8, kernel=(1, 1)).buffers([(4, 2, 2)]) == {}


@pytest.mark.parametrize(
    ("op", "says"),
    [
        (Input(shape=(3, 4)), "shape must be (channels, height, width), not [3, 4]"),
        (Input(shape=(3, 0, 4)), "shape must be at least 1, not 3, 0, 4"),
        (Conv(channels=0, kernel=(1, 1)), "channels must be at least 1, not 0"),
        (Conv(channels=4, kernel=(0, 1)), "kernel must be at least 1, not 0, 1"),
        (Conv(channels=4, kernel=(1, 1), stride=(1, 0)), "stride must be at least 1, not 1, 0"),
        (Conv(channels=4, kernel=(1, 1), dilation=(-1, 1)), "dilation must be at least 1, not -1, 1"),
        (Conv(channels=4, kernel=(1, 1), groups=0), "groups must be at least 1, not 0"),
        (Conv(channels=4, kernel=(1, 1), pad=(0, 0, -1, 0)), "pad must not be negative, not 0, 0, -1, 0"),
        (Conv(channels=4, kernel=(1, 1), groups=3), "4 channels cannot be split into 3 groups"),
        (MaxPool(kernel=(2, 2), stride=(1, 1), pad=(0, 2, 0, 0)), "pad [0, 2, 0, 0] must be smaller than the kernel"),
        (AveragePool(kernel=(2, 2), stride=(0, 1)), "stride must be at least 1, not 0, 1"),
        (Dense(features=0), "features must be at least 1, not 0"),
        (BatchNorm(epsilon=0.0), "epsilon must be above 0, not 0.0"),
        (BatchNorm(momentum=1.5), "momentum must be between 0 and 1, not 1.5"),
        (Lrn(size=4), "size must be odd and positive, not 4"),
        (Lrn(k=0.0), "k must be above 0, not 0.0"),
        (Lrn(alpha=-1.0), "alpha must not be negative, not -1.0"),
        (Clip(low=1.0, high=1.0), "low must be below high, not 1.0 and 1.0"),
        (Dropout(rate=1.0), "rate must be at least 0 and below 1, not 1.0"),
    ],
)
def test_senseless_attribute(op, says):
    with pytest.raises(OpError) as caught:
        op.check()
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("op", "inputs", "says"),
    [
        (Conv(channels=4, kernel=(3, 3)), [(5,)], "needs an image (channels, height, width), not [5]"),
        (Conv(channels=4, kernel=(1, 1), groups=2), [(3, 5, 5)], "3 input channels cannot be split into 2 groups"),
        (Conv(channels=4, kernel=(3, 3), dilation=(2, 2)), [(3, 5, 4)], "width 4 with padding is smaller than"),
        (MaxPool(kernel=(3, 3), stride=(1, 1)), [(3, 2, 5)], "height 2 with pad 0 is smaller than the kernel 3"),
        (Dense(features=4), [(3, 5, 5)], "put a flatten layer before it (input is [3, 5, 5])"),
        (BatchNorm(), [(5,)], "needs an image"),
        (Lrn(), [(5,)], "needs an image"),
        (GlobalPool(), [(5,)], "needs an image"),
        (Flatten(), [(5,)], "needs an image"),
        (SoftmaxCrossEntropy(), [(3, 1, 1)], "put a flatten layer before it"),
        (Add(), [(3, 5, 5), (3, 5, 4)], "inputs differ in shape: [[3, 5, 5], [3, 5, 4]]"),
        (Slice(first=2, channels=3), [(4, 5, 6)], "takes channels 2 to 4 of an image that has 4"),
        (Slice(first=0, channels=1), [(4,)], "needs an image"),
        (Shuffle(groups=3), [(4, 5, 6)], "4 channels cannot be split into 3 groups"),
        (Multiply(), [(3, 5, 5), (2, 1, 1)], "inputs must have one shape, or be an image and one number per channel"),
        (Multiply(), [(3, 5, 5), (3, 5, 1)], "not [3, 5, 5] and [3, 5, 1]"),
        (Concat(), [(3, 5, 5), (3, 4, 5)], "inputs differ in height or width"),
    ],
)
def test_inputs_that_do_not_fit(op, inputs, says):
    with pytest.raises(OpError) as caught:
        op.output(inputs)
    assert says in str(caught.value)


@examples(150)
@given(op=average_pools, shape=image_shapes)
def test_every_pool_window_sees_the_image(op, shape):
    """Or a maximum could be minus infinity and an average 0 / 0."""
    try:
        _, *counts = op.output([shape])
    except OpError:
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
    same_pads = AveragePool(
        kernel=op.kernel, stride=op.stride, pad=(top, top, left, left), ceil_mode=op.ceil_mode, count_pad=op.count_pad
    )
    try:
        ours = same_pads.output([shape])
    except OpError:
        assume(False)
    theirs = F.avg_pool2d(torch.zeros(1, *shape), op.kernel, op.stride, (top, left), op.ceil_mode)
    assert ours == tuple(theirs.shape[1:])


@examples(100)
@given(op=convs(), shape=image_shapes)
def test_conv_shape_as_torch_has_it(op, shape):
    try:
        ours = op.output([shape])
    except OpError:
        assume(False)
    top, bottom, left, right = op.pad
    padded = F.pad(torch.zeros(1, *shape), (left, right, top, bottom))
    weight = torch.zeros(op.parameters([shape])["weight"])
    theirs = F.conv2d(padded, weight, stride=op.stride, dilation=op.dilation, groups=op.groups)
    assert ours == tuple(theirs.shape[1:])
