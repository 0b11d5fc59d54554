"""A layer graph as torch code one would write by hand: nn modules, functional ops, in place where that is safe.

torch.fx writes the forward function, so a step runs plain Python with no interpreter of ours, and frees each
activation after its last use.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from deepstone.backends.base import Unsupported
from deepstone.backends.owners import scope_name
from deepstone.backends.torch.own_module import own_module
from deepstone.graph import ops
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import AveragePool, MaxPool, Pad, Shape
from deepstone.graph.space_to_depth import Blocks, blocks_of
from deepstone.graph.stages import Stage

LAYER = "layer"  # the key of fx.Node.meta under which a node's layer is noted

# Layers whose output their own backward does not read, so that the next layer may write over it.
_OUTPUT_UNREAD = (ops.Conv, ops.Dense, ops.BatchNorm, ops.Add)


class Lowering:
    """Builds a module from a segment of a graph: some of its layers, or all."""

    def __init__(self, graph: Graph, layers: Iterable[Layer], *, dropout: bool, space_to_depth: bool = False) -> None:
        self._graph = graph
        self._layers = tuple(layers)
        self._dropout = dropout
        self._space_to_depth = space_to_depth
        self._fx = fx.Graph()
        self._root = nn.Module()
        self._nodes: dict[str, fx.Node] = {}
        self._names = {layer.name for layer in self._layers}

    def module(self, *sources: str) -> fx.GraphModule:
        """Return the module that maps the sources' outputs (and the labels if it has losses) to the segment's own."""
        self._take(sources)
        has_loss = any(isinstance(layer.op, ops.SoftmaxCrossEntropy | ops.ModuleLoss) for layer in self._layers)
        losses = self._lower_all(self._fx.placeholder("labels") if has_loss else None)
        return self._made(self._nodes[self._layers[-1].name] if not losses else self._sum(losses))

    def stage(self, stage: Stage) -> fx.GraphModule:
        """Return the module of a stage of a pipeline. It maps what crosses its begin, then the labels, to what crosses
        its end; the last one to the loss."""
        self._take(stage.takes or (self._graph.input.name,))
        before = [self._fx.placeholder("loss")] if stage.takes_loss else []
        losses = [*before, *self._lower_all(self._fx.placeholder("labels"))]
        passed_on = [self._nodes[name] for name in stage.gives]
        if stage.gives_loss:
            passed_on.append(self._sum(losses))
        return self._made(tuple(passed_on) if passed_on else self._sum(losses))

    def _take(self, sources: Iterable[str]) -> None:
        for number, source in enumerate(sources):
            self._nodes[source] = self._fx.placeholder(f"input{number}")

    def _lower_all(self, labels: fx.Node | None) -> list[fx.Node]:
        """Lower all layers, and return the losses."""
        losses: list[fx.Node] = []
        for layer in self._layers:
            before = len(self._fx.nodes)
            if isinstance(layer.op, ops.SoftmaxCrossEntropy):
                assert labels is not None
                losses.append(self._loss(layer, layer.op, labels))
            elif isinstance(layer.op, ops.ModuleLoss):
                module = own_module(layer.op, dropout=self._dropout)
                losses.append(self._call(layer, module, self._nodes[layer.inputs[0]]))
            elif not isinstance(layer.op, ops.Input | ops.Tensors):
                self._nodes[layer.name] = self._lower(layer)
            for node in islice(reversed(self._fx.nodes), len(self._fx.nodes) - before):
                node.meta[LAYER] = layer.name
        return losses

    def _made(self, output: fx.Node | tuple[fx.Node, ...]) -> fx.GraphModule:
        self._fx.output(output)
        self._fx.lint()
        return fx.GraphModule(self._root, self._fx, class_name="Network")

    def _lower(self, layer: Layer) -> fx.Node:
        op = layer.op
        x = self._nodes[layer.inputs[0]]
        match op:
            case ops.Conv():
                return self._conv(layer, op, x)
            case ops.Dense():
                features = self._graph.input_shapes(layer)[0][0]
                module = _uninitialized(nn.Linear, features, op.features, bias=op.bias)
                return self._call(layer, module, x)
            case ops.BatchNorm():
                channels = self._graph.shapes[layer.name][0]
                return self._call(layer, nn.BatchNorm2d(channels, eps=op.epsilon, momentum=op.momentum), x)
            case ops.Relu():
                return self._fx.call_function(F.relu, (x,), {"inplace": self._may_overwrite(layer.inputs[0])})
            case ops.Clip():
                overwrite: dict[str, Any] = {"inplace": self._may_overwrite(layer.inputs[0])}
                if (op.low, op.high) == (0.0, 6.0):
                    return self._fx.call_function(F.relu6, (x,), overwrite)
                return self._fx.call_function(F.hardtanh, (x, op.low, op.high), overwrite)
            case ops.Activation():
                return self._fx.call_function(_ACTIVATIONS[type(op)], (x,))
            case ops.MaxPool() | ops.AveragePool():
                return self._pool(layer, op, x)
            case ops.GlobalPool():
                return self._fx.call_function(F.adaptive_avg_pool2d, (x, 1))
            case ops.Lrn():
                if op.within_channel:
                    return self._fx.call_function(pixel_response_norm, (x, op.size, op.alpha, op.beta, op.k))
                return self._fx.call_function(F.local_response_norm, (x, op.size, op.alpha, op.beta, op.k))
            case ops.Dropout():
                return self._call(layer, nn.Dropout(op.rate), x) if self._dropout else x
            case ops.Add():
                return self._add(layer)
            case ops.Multiply():
                return self._fx.call_function(operator.mul, (self._factor(layer, 0), self._factor(layer, 1)))
            case ops.Concat():
                return self._fx.call_function(torch.cat, ([self._nodes[name] for name in layer.inputs], 1))
            case ops.Slice():
                return self._fx.call_method("narrow", (x, 1, op.first, op.channels))
            case ops.Shuffle():
                return self._fx.call_function(torch.channel_shuffle, (x, op.groups))
            case ops.Flatten():
                return self._fx.call_function(torch.flatten, (x, 1))
            case ops.Module():
                return self._call(layer, own_module(op, dropout=self._dropout), x)
            case _:
                raise Unsupported(f"torch backend: no lowering of {op.kind} (layer {layer.name!r})")

    def _conv(self, layer: Layer, op: ops.Conv, x: fx.Node) -> fx.Node:
        source = self._graph.input_shapes(layer)[0]
        blocks = blocks_of(op, source) if self._space_to_depth else None
        if blocks is not None:
            module = _uninitialized(BlockConv, source[0], op.channels, op.kernel, bias=op.bias)
            module.blocks = blocks
            return self._call(layer, module, x)
        top, bottom, left, right = op.pad
        even = top == bottom and left == right
        if not even:
            x = self._fx.call_function(F.pad, (x, _outer_pad(op.pad)))
        module = _uninitialized(
            nn.Conv2d,
            source[0],
            op.channels,
            op.kernel,
            stride=op.stride,
            padding=(top, left) if even else 0,
            dilation=op.dilation,
            groups=op.groups,
            bias=op.bias,
        )
        return self._call(layer, module, x)

    def _pool(self, layer: Layer, op: ops.MaxPool | ops.AveragePool, x: fx.Node) -> fx.Node:
        output = self._graph.shapes[layer.name]
        if isinstance(op, ops.MaxPool):
            if not _torch_takes(op.pad, op.kernel):
                return self._call(layer, _PaddedMaxPool(op, output), x)
            options: dict[str, Any] = {"padding": (op.pad[0], op.pad[2]), "ceil_mode": op.ceil_mode}
            return self._fx.call_function(F.max_pool2d, (x, op.kernel, op.stride), options)
        if not _torch_takes(op.pad, op.kernel):
            return self._call(layer, _PaddedAveragePool(op, self._graph.input_shapes(layer)[0], output), x)
        options = {
            "padding": (op.pad[0], op.pad[2]),
            "ceil_mode": op.ceil_mode,
            "count_include_pad": op.count_pad,
        }
        return self._fx.call_function(F.avg_pool2d, (x, op.kernel, op.stride), options)

    def _add(self, layer: Layer) -> fx.Node:
        names = sorted(layer.inputs, key=lambda name: not self._may_overwrite(name))  # one to write over first
        total = self._nodes[names[0]]
        overwrite = self._may_overwrite(names[0])
        for name in names[1:]:
            total = self._fx.call_function(operator.iadd if overwrite else operator.add, (total, self._nodes[name]))
            overwrite = True  # the sum so far is ours
        return total

    def _factor(self, layer: Layer, number: int) -> fx.Node:
        """Return one factor of a product; a flat gate gets a height and a width of 1."""
        name = layer.inputs[number]
        sides, node = self._graph.shapes[name], self._nodes[name]
        if len(sides) == len(self._graph.shapes[layer.name]):
            return node
        return self._fx.call_method("unflatten", (node, 1, (sides[0], 1, 1)))

    def _loss(self, layer: Layer, op: ops.SoftmaxCrossEntropy, labels: fx.Node) -> fx.Node:
        logits = self._nodes[layer.inputs[0]]
        loss = self._fx.call_function(cross_entropy, (logits, labels))
        return loss if op.weight == 1.0 else self._fx.call_function(operator.mul, (loss, op.weight))

    def _sum(self, losses: list[fx.Node]) -> fx.Node:
        total = losses[0]
        for loss in losses[1:]:
            total = self._fx.call_function(operator.add, (total, loss))
        return total

    def _may_overwrite(self, name: str) -> bool:
        """Whether the only consumer of a layer may work in place on its output."""
        producer = self._graph.layer(name)
        return (
            name in self._names
            and isinstance(producer.op, _OUTPUT_UNREAD)
            and len(self._graph.consumers[name]) == 1
            and self._graph.consumers[name][0].inputs.count(name) == 1
        )

    def _call(self, layer: Layer, module: nn.Module, x: fx.Node) -> fx.Node:
        name = scope_name(layer.name)
        self._root.add_module(name, module)
        return self._fx.call_module(name, (x,))


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean loss over the batch; narrow logits are widened first, because the loss would hardly change
    otherwise."""
    wide = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
    return F.cross_entropy(wide, labels)


def pixel_response_norm(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    """Local response normalization over pixels; written like torch's own over channels."""
    mean = F.avg_pool2d(x.mul(x), size, stride=1, padding=size // 2)
    return x / mean.mul(alpha).add(k).pow(beta)


def hard_sigmoid(x: Tensor) -> Tensor:
    """Compute a hard sigmoid. torch's own backward multiplies by the float32 value of 1/6, in float64 too."""
    return F.relu6(x + 3) / 6 if x.dtype == torch.float64 else F.hardsigmoid(x)


M = TypeVar("M", bound=nn.Module)


def _uninitialized(kind: type[M], *sizes: Any, **options: Any) -> M:
    """Make a module without initial weights: they come from us.

    `nn.utils.skip_init` makes it on the meta device first. For that torch imports sympy, which takes a worker that only
    runs forward a quarter of a second.
    """
    bare: Any = type(kind.__name__, (kind,), {"reset_parameters": lambda _: None})
    module = bare(*sizes, **options)
    module.__class__ = kind
    return module


# Traced by name, so that the generated code calls them instead of looking inside.
fx.wrap("cross_entropy")
fx.wrap("pixel_response_norm")
fx.wrap("hard_sigmoid")

_ACTIVATIONS: dict[type[ops.Op], Callable[[Tensor], Tensor]] = {
    ops.Sigmoid: torch.sigmoid,
    ops.Tanh: torch.tanh,
    ops.Silu: F.silu,
    ops.HardSigmoid: hard_sigmoid,
    ops.HardSwish: F.hardswish,
}


def _torch_takes(pad: Pad, kernel: tuple[int, int]) -> bool:
    """Whether torch's pool can pad by itself: equal sides, at most half the kernel."""
    top, bottom, left, right = pad
    return top == bottom and left == right and 2 * top <= kernel[0] and 2 * left <= kernel[1]


def _outer_pad(pad: Pad) -> tuple[int, int, int, int]:
    """Return the padding in torch's order of sides."""
    top, bottom, left, right = pad
    return left, right, top, bottom


class BlockConv(nn.Conv2d):
    """A strided convolution that takes blocks of pixels as channels; its parameters are those of the plain one."""

    blocks: Blocks

    def forward(self, input: Tensor) -> Tensor:
        below, beside = self.blocks.kernel_pad
        images = F.pixel_unshuffle(F.pad(input, _outer_pad(self.blocks.image_pad)), self.blocks.side)
        kernels = F.pixel_unshuffle(F.pad(self.weight, (0, beside, 0, below)), self.blocks.side)
        if input.is_contiguous(memory_format=torch.channels_last) and not input.is_contiguous():
            # Taking blocks apart forgets the order of the channels, and cuDNN then answers in another one.
            images = images.contiguous(memory_format=torch.channels_last)
            kernels = kernels.contiguous(memory_format=torch.channels_last)
        return F.conv2d(images, kernels, self.bias)


class _PaddedMaxPool(nn.Module):
    """A max pool that pads first; a window that torch would add inside the trailing pad is cut off."""

    def __init__(self, op: MaxPool, output: Shape) -> None:
        super().__init__()
        self._op = op
        self._height, self._width = output[1:]

    def forward(self, x: Tensor) -> Tensor:
        padded = F.pad(x, _outer_pad(self._op.pad), value=float("-inf"))
        pooled = F.max_pool2d(padded, self._op.kernel, self._op.stride, ceil_mode=self._op.ceil_mode)
        return pooled[:, :, : self._height, : self._width]


class _PaddedAveragePool(nn.Module):
    """An average pool that pads with zeros, sums each window, and divides by its count of values."""

    divisor: Tensor

    def __init__(self, op: AveragePool, source: Shape, output: Shape) -> None:
        super().__init__()
        self._op = op
        self._height, self._width = output[1:]
        ones = torch.ones(1, 1, *source[1:])
        counted = F.pad(ones, _outer_pad(op.pad), value=1.0 if op.count_pad else 0.0)
        self.register_buffer("divisor", self._sums(counted), persistent=False)  # whole numbers, exact in any type

    def _sums(self, padded: Tensor) -> Tensor:
        sums = F.avg_pool2d(padded, self._op.kernel, self._op.stride, ceil_mode=self._op.ceil_mode, divisor_override=1)
        return sums[:, :, : self._height, : self._width]

    def forward(self, x: Tensor) -> Tensor:
        return self._sums(F.pad(x, _outer_pad(self._op.pad))) / self.divisor
