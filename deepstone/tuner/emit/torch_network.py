"""A network as torch code: a class with its layers by name in `__init__`, and what it computes in `forward`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from deepstone.graph import ops
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Pad, Pair
from deepstone.graph.space_to_depth import blocks_of
from deepstone.tuner.emit.body import Body, Style, Use, arguments, folded, options, signature
from deepstone.tuner.emit.network import (
    NetworkWriter,
    body_of_block,
    body_of_network,
    described_network,
    losses,
    side,
    sides,
)
from deepstone.tuner.emit.plan import Block, Described, Plan, Slot, plan_of

_FUNCTIONS: Final[Mapping[type[ops.Op], str]] = {
    ops.Sigmoid: "torch.sigmoid",
    ops.Tanh: "torch.tanh",
    ops.Silu: "F.silu",
    ops.HardSwish: "F.hardswish",
}


def torch_network(graph: Graph, *, dropout: bool, space_to_depth: bool, double: bool = False) -> str:
    """Classes of a network; the last of them is `Network`, which maps images to the scores of each loss."""
    return TorchNetwork(graph, dropout=dropout, space_to_depth=space_to_depth, double=double).code()


class TorchNetwork(NetworkWriter):
    framework = "torch"
    functions = _FUNCTIONS

    def __init__(self, graph: Graph, *, dropout: bool, space_to_depth: bool, double: bool = False) -> None:
        super().__init__(graph, nchw=True)
        self._space_to_depth = space_to_depth
        self._double = double
        self._plan = plan_of(graph, self._described, dropout=dropout)

    def code(self) -> str:
        plan = self._plan
        helpers = [_HELPERS[name] for name in self._helpers]
        blocks = [self._block(block) for block in plan.blocks]
        return folded("\n\n".join([*helpers, *blocks, self._network(plan)]))

    def loss(self, network: str, narrow: bool) -> list[str]:
        """Lines that compute the loss of `images` and `labels`."""
        wide = ".float()" if narrow else ""
        return losses(self._plan, network, lambda scores: f"F.cross_entropy({scores}{wide}, labels)")

    def _network(self, plan: Plan) -> str:
        head = ["class Network(nn.Module):", *described_network(self._graph, plan)]
        return self._class(head, "", body_of_network(plan))

    def _block(self, block: Block) -> str:
        return self._class([f"class {block.name}(nn.Module):"], signature(block.parameters), body_of_block(block))

    def _class(self, head: list[str], parameters: str, body: Body) -> str:
        made = [
            f"        self.{name} = {code}"
            for place, name in enumerate(body.names)
            if (code := self._module(body, place)) is not None
        ]
        style = Style(expression=self._computed, overwrites=True)
        lines, results = body.lines(style)
        parts = [*head]
        if made or parameters:
            given = f", {parameters}" if parameters else ""
            parts += [f"    def __init__(self{given}):", "        super().__init__()", *made, ""]
        parts += ["    def forward(self, x):", *(f"        {line}" for line in lines)]
        return "\n".join([*parts, f"        return {', '.join(results)}", ""])

    def _module(self, body: Body, place: int) -> str | None:
        """The module of a node; None if it has no parameters and is a function in `forward`."""
        node, texts = body.nodes[place], body.texts(place)
        if node.block is not None:
            call = f"{node.block.name}({arguments(texts, node.block.parameters)})"
            return call if node.count == 1 else f"nn.Sequential(*[{call} for _ in range({node.count})])"
        op = node.op
        match op:
            case ops.Conv() if "side" in node.slots:
                given = [str(texts[name]) for name in ("inputs", "channels", "kernel")]
                given += [f"{name}={texts[name]}" for name in ("side", "image_pad", "kernel_pad")]
                return f"BlockConv({', '.join([*given, *([] if op.bias else ['bias=False'])])})"
            case ops.Conv():
                given = [str(texts[name]) for name in ("inputs", "channels", "kernel")]
                given += options(texts, "stride", "padding", "dilation", "groups")
                return f"nn.Conv2d({', '.join([*given, *([] if op.bias else ['bias=False'])])})"
            case ops.Dense():
                bias = "" if op.bias else ", bias=False"
                return f"nn.Linear({texts['inputs']}, {texts['features']}{bias})"
            case ops.BatchNorm():
                given = [str(texts["channels"])]
                given += [f"eps={texts['epsilon']}"] if texts["epsilon"].value != 1e-5 else []
                given += [f"momentum={texts['momentum']}"] if texts["momentum"].value != 0.1 else []
                return f"nn.BatchNorm2d({', '.join(given)})"
            case ops.Dropout():
                return f"nn.Dropout({texts['rate']})"
            case ops.AveragePool() if "image" in node.slots:
                given = [f"{name}={texts[name]}" for name in ("kernel", "stride", "pad", "ceil_mode", "count_pad")]
                given += [f"{name}={texts[name]}" for name in ("image", "output")]
                return f"PaddedAveragePool({', '.join(given)})"
            case _:
                return None

    def _described_other(self, layer: Layer) -> Described:
        """What a module takes are numbers that may differ; what is written in `forward` is not."""
        op = layer.op
        match op:
            case ops.Dropout():
                return Described(structure=(op.kind,), slots={"rate": op.rate})
            case ops.Lrn() if op.within_channel:
                self._helpers["pixel_response_norm"] = None
            case ops.HardSigmoid() if self._double:
                self._helpers["hard_sigmoid"] = None
            case ops.MaxPool() if not _torch_pads(op.pad, op.kernel):
                self._helpers["padded_max_pool"] = None
                return Described(structure=(op, self._graph.shapes[layer.name][1:]), slots={})
            case ops.AveragePool() if not _torch_pads(op.pad, op.kernel):
                self._helpers["PaddedAveragePool"] = None
                slots = {
                    "kernel": op.kernel,
                    "stride": op.stride,
                    "pad": _outer(op.pad),
                    "ceil_mode": op.ceil_mode,
                    "count_pad": op.count_pad,
                    "image": self._graph.input_shapes(layer)[0][1:],
                    "output": self._graph.shapes[layer.name][1:],
                }
                return Described(structure=(op.kind, "padded"), slots=slots)
            case _:
                pass
        return super()._described_other(layer)

    def _described_conv(self, op: ops.Conv, source: tuple[int, ...]) -> Described:
        slots: dict[str, Slot] = {"inputs": source[0], "channels": op.channels, "kernel": side(op.kernel)}
        blocks = blocks_of(op, source) if self._space_to_depth else None
        if blocks is not None:
            self._helpers["BlockConv"] = None
            below, beside = blocks.kernel_pad
            slots |= {"kernel": op.kernel, "side": blocks.side, "image_pad": _outer(blocks.image_pad)}
            slots |= {"kernel_pad": (0, beside, 0, below)}
            return Described(structure=(op.kind, op.bias, "blocks"), slots=slots)
        top, bottom, left, right = op.pad
        even = top == bottom and left == right
        slots |= {
            "stride": side(op.stride),
            "padding": side((top, left)) if even else 0,
            "dilation": side(op.dilation),
            "groups": op.groups,
        }
        return Described(structure=(op.kind, op.bias, () if even else op.pad), slots=slots)

    def _computed(self, use: Use) -> str:
        op, x, node = use.node.op, use.arguments[0], use.node
        in_place = ", inplace=True" if use.overwrites else ""
        if node.block is not None:
            return f"self.{use.name}({x})"
        match op:
            case ops.Conv():
                top, bottom, left, right = op.pad
                uneven = (top, left) != (bottom, right) and "side" not in node.slots
                return f"self.{use.name}(F.pad({x}, {_outer(op.pad)}))" if uneven else f"self.{use.name}({x})"
            case ops.Dense() | ops.BatchNorm() | ops.Dropout():
                return f"self.{use.name}({x})"
            case ops.Relu():
                return f"F.relu({x}{in_place})"
            case ops.Clip():
                return (
                    f"F.relu6({x}{in_place})"
                    if (op.low, op.high) == (0.0, 6.0)
                    else f"F.hardtanh({x}, {op.low}, {op.high}{in_place})"
                )
            case ops.HardSigmoid():
                return f"hard_sigmoid({x})" if self._double else f"F.hardsigmoid({x})"
            case ops.GlobalPool():
                return f"F.adaptive_avg_pool2d({x}, 1)"
            case ops.Lrn():
                name = "pixel_response_norm" if op.within_channel else "F.local_response_norm"
                return f"{name}({x}, {op.size}, alpha={op.alpha}, beta={op.beta}, k={op.k})"
            case ops.Concat():
                return f"torch.cat([{', '.join(use.arguments)}], 1)"
            case ops.Shuffle():
                return f"torch.channel_shuffle({x}, {op.groups})"
            case ops.Flatten():
                return f"torch.flatten({x}, 1)"
            case _:
                return self._written_alike(use)

    def _pool(self, use: Use, op: ops.MaxPool | ops.AveragePool) -> str:
        x, taken = use.arguments[0], _torch_pads(op.pad, op.kernel)
        given = [x, sides(op.kernel), sides(op.stride)]
        given += [f"padding={sides((op.pad[0], op.pad[2]))}"] if taken and any(op.pad) else []
        given += ["ceil_mode=True"] if op.ceil_mode else []
        if isinstance(op, ops.AveragePool):
            if not taken:
                return f"self.{use.name}({x})"
            given += [] if op.count_pad else ["count_include_pad=False"]
            return f"F.avg_pool2d({', '.join(given)})"
        if taken:
            return f"F.max_pool2d({', '.join(given)})"
        given += [f"pad={_outer(op.pad)}", f"output={self._graph.shapes[use.node.value][1:]}"]
        return f"padded_max_pool({', '.join(given)})"


def _torch_pads(pad: Pad, kernel: Pair) -> bool:
    """Whether torch's pool can pad by itself: equal sides, at most half the kernel."""
    top, bottom, left, right = pad
    return top == bottom and left == right and 2 * top <= kernel[0] and 2 * left <= kernel[1]


def _outer(pad: Pad) -> tuple[int, int, int, int]:
    """The padding in torch's order of sides."""
    top, bottom, left, right = pad
    return left, right, top, bottom


_HELPERS: Final = {
    "BlockConv": '''class BlockConv(nn.Conv2d):
    """A strided convolution that takes blocks of pixels as channels: the same sums, without a stride."""

    def __init__(self, inputs, channels, kernel, side, image_pad, kernel_pad, bias=True):
        super().__init__(inputs, channels, kernel, bias=bias)
        self.side, self.image_pad, self.kernel_pad = side, image_pad, kernel_pad

    def forward(self, x):
        images = F.pixel_unshuffle(F.pad(x, self.image_pad), self.side)
        kernels = F.pixel_unshuffle(F.pad(self.weight, self.kernel_pad), self.side)
        return F.conv2d(images, kernels, self.bias)
''',
    "pixel_response_norm": '''def pixel_response_norm(x, size, alpha, beta, k):
    """Local response normalization over the pixels around each one."""
    mean = F.avg_pool2d(x * x, size, stride=1, padding=size // 2)
    return x / mean.mul(alpha).add(k).pow(beta)
''',
    "hard_sigmoid": '''def hard_sigmoid(x):
    """The backward of torch's own multiplies by the float32 value of 1/6, in float64 too."""
    return F.relu6(x + 3) / 6
''',
    "padded_max_pool": '''def padded_max_pool(x, kernel, stride, pad, output, ceil_mode=False):
    """A max pool whose sides are padded differently (left, right, top, bottom)."""
    pooled = F.max_pool2d(F.pad(x, pad, value=float("-inf")), kernel, stride, ceil_mode=ceil_mode)
    return pooled[:, :, : output[0], : output[1]]
''',
    "PaddedAveragePool": '''class PaddedAveragePool(nn.Module):
    """An average pool whose sides are padded differently (left, right, top, bottom)."""

    def __init__(self, kernel, stride, pad, ceil_mode, count_pad, image, output):
        super().__init__()
        self.kernel, self.stride, self.pad, self.ceil_mode, self.output = kernel, stride, pad, ceil_mode, output
        counted = F.pad(torch.ones(1, 1, *image), pad, value=float(count_pad))
        self.register_buffer("divisor", self.sums(counted), persistent=False)

    def sums(self, x):
        sums = F.avg_pool2d(x, self.kernel, self.stride, ceil_mode=self.ceil_mode, divisor_override=1)
        return sums[:, :, : self.output[0], : self.output[1]]

    def forward(self, x):
        return self.sums(F.pad(x, self.pad)) / self.divisor
''',
}
