"""A network as TensorFlow code: classes derived from tf.Module, with their layers by name, and functions of tf.nn.

What TensorFlow's kernels lack, the helpers do as the measured step does: gradients of groups, dilation and explicit
padding on a CPU, and sums of gradients in bf16.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from deepstone.graph import ops
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Pad, Shape
from deepstone.graph.padding import reached_pad, same_pad
from deepstone.tuner.emit.body import Body, Style, Texts, Use, arguments, folded, signature
from deepstone.tuner.emit.network import (
    NetworkWriter,
    body_of_block,
    body_of_network,
    chosen_lines,
    described_network,
    losses,
    side,
    sides,
    with_needed,
)
from deepstone.tuner.emit.plan import Block, Described, Node, Plan, Slot, plan_of
from deepstone.tuner.emit.tensorflow_helpers import HELPERS, NEEDS

_FUNCTIONS: Final[Mapping[type[ops.Op], str]] = {
    ops.Relu: "tf.nn.relu",
    ops.Sigmoid: "tf.sigmoid",
    ops.Tanh: "tf.tanh",
    ops.Silu: "tf.nn.silu",
}
_USUAL: Final[Mapping[str, Slot]] = {"stride": 1, "padding": "VALID", "dilation": 1, "groups": 1}


class TensorflowNetwork(NetworkWriter):
    """`precision`: fp32, bf16-mixed or bf16. `limited`: TensorFlow's own CPU kernels compute it, not XLA, nor a GPU."""

    framework = "tensorflow"
    functions = _FUNCTIONS

    def __init__(self, graph: Graph, *, dropout: bool, nchw: bool, precision: str, limited: bool, xla: bool) -> None:
        super().__init__(graph, nchw=nchw)
        self._narrow = precision.startswith("bf16")
        self._precision = precision
        self._limited = limited
        self._xla = xla
        self._plan = plan_of(graph, self._described, dropout=dropout)

    def code(self) -> str:
        plan = self._plan
        classes = [*(self._block(block) for block in plan.blocks), self._network(plan)]
        return folded("\n\n".join([*self._used_helpers(), *classes]))

    def loss(self, network: str) -> list[str]:
        return losses(self._plan, network, lambda scores: f"cross_entropy({scores}, labels)")

    def _used_helpers(self) -> list[str]:
        wanted = with_needed({*self._helpers, "cross_entropy"}, HELPERS, NEEDS)
        chosen = {"NCHW" if self._nchw else "NHWC", "LIMITED" if self._limited else "FREE"}
        chosen |= {"NARROW" if self._narrow else "WIDE", "BF16" if self._precision == "bf16" else "FP32"}
        if self._limited:
            convs = [layer.op for layer in self._graph.layers if isinstance(layer.op, ops.Conv)]
            chosen |= {"APART"} if any(op.groups > 1 or op.dilation != (1, 1) for op in convs) else {"PLAIN"}
            chosen |= {"DILATED"} if any(op.dilation != (1, 1) for op in convs) else set()
        return [chosen_lines(HELPERS[name], chosen, narrow=self._precision == "bf16-mixed") for name in wanted]

    def _network(self, plan: Plan) -> str:
        head = ["class Network(tf.Module):", *described_network(self._graph, plan)]
        return self._class(head, "", body_of_network(plan))

    def _block(self, block: Block) -> str:
        return self._class([f"class {block.name}(tf.Module):"], _signature(block), body_of_block(block))

    def _class(self, head: list[str], parameters: str, body: Body) -> str:
        made = [
            f"        self.{name} = {code}"
            for place, name in enumerate(body.names)
            if (code := self._layer(body.nodes[place], body.texts(place))) is not None
        ]
        style = Style(expression=self._computed, is_whole=lambda node: node.count > 1, whole=_repeated)
        lines, results = body.lines(style)
        given = f", {parameters}" if parameters else ""
        init = [f"    def __init__(self{given}):", "        super().__init__()", *made, ""]
        parts = [*head, *init, "    def __call__(self, x):", *(f"        {line}" for line in lines)]
        return "\n".join([*parts, f"        return {', '.join(results)}", ""])

    def _layer(self, node: Node, texts: Texts) -> str | None:
        if node.block is not None:
            call = f"{node.block.name}({_arguments(texts, node.block)})"
            return call if node.count == 1 else f"[{call} for _ in range({node.count})]"
        op = node.op
        match op:
            case ops.Conv():
                name = "DepthwiseConv" if "outputs" in node.slots else "Conv"
                firsts = (
                    ("inputs", "outputs", "kernel") if "outputs" in node.slots else ("inputs", "channels", "kernel")
                )
                given = [str(texts[each]) for each in firsts]
                given += [f"{each}={texts[each]}" for each, usual in _USUAL.items() if _differs(texts, each, usual)]
                return self._helper(name, *given, *([] if op.bias else ["bias=False"]))
            case ops.Dense():
                return self._helper("Dense", texts["inputs"], texts["features"], *([] if op.bias else ["bias=False"]))
            case ops.BatchNorm():
                given = [str(texts["channels"])]
                given += [f"epsilon={texts['epsilon']}"] if texts["epsilon"].value != 1e-5 else []
                given += [f"momentum={texts['momentum']}"] if texts["momentum"].value != 0.1 else []
                return self._helper("BatchNorm", *given)
            case _:
                return None

    def _described_other(self, layer: Layer) -> Described:
        op, sources = layer.op, self._graph.input_shapes(layer)
        match op:
            case ops.MaxPool() | ops.AveragePool():
                structure = (op, reached_pad(op, sources[0]), same_pad(op, sources[0]))
                return Described(structure=structure, slots={})
            case ops.Multiply():
                return Described(structure=(op.kind, tuple(sources)), slots={})
            case ops.Flatten():
                return Described(structure=(op.kind, self._moves(layer)), slots={})
            case _:
                return super()._described_other(layer)

    def _described_conv(self, op: ops.Conv, source: Shape) -> Described:
        padding: Slot = "VALID"
        if any(op.pad):
            fits = op.dilation == (1, 1) and op.pad == same_pad(op, source) and self._limited
            padding = "SAME" if fits else op.pad
        slots: dict[str, Slot] = {"inputs": source[0], "kernel": side(op.kernel), "stride": side(op.stride)}
        slots |= {"padding": padding, "dilation": side(op.dilation)}
        equal = op.stride == (1, 1) or (op.stride[0] == op.stride[1] and op.dilation == (1, 1))
        if op.groups > 1 and op.groups == source[0] and equal:
            return Described(
                structure=(op.kind, op.bias, "depthwise"), slots={**slots, "outputs": op.channels // op.groups}
            )
        return Described(structure=(op.kind, op.bias), slots={**slots, "channels": op.channels, "groups": op.groups})

    def _computed(self, use: Use) -> str:
        op, x, node = use.node.op, use.arguments[0], use.node
        if node.block is not None:
            return f"self.{use.name}({x})"
        match op:
            case ops.Conv() | ops.Dense() | ops.BatchNorm():
                return f"self.{use.name}({x})"
            case ops.Clip() if (op.low, op.high) == (0.0, 6.0):
                return f"tf.nn.relu6({x})"
            case ops.GlobalPool():
                return f"tf.reduce_mean({x}, {[2, 3] if self._nchw else [1, 2]}, keepdims=True)"
            case ops.Lrn():
                return self._lrn(x, op)
            case ops.Dropout():
                return f"tf.nn.dropout({x}, {op.rate})"
            case ops.Concat():
                return f"tf.concat([{', '.join(use.arguments)}], {1 if self._nchw else 3})"
            case ops.Flatten():
                features = self._graph.shapes[node.value][0]
                moved = f"tf.transpose({x}, [0, 3, 1, 2])" if self._moves(self._graph.layer(node.value)) else x
                return f"tf.reshape({moved}, [-1, {features}])"
            case _:
                return self._written_alike(use)

    def _pool(self, use: Use, op: ops.MaxPool | ops.AveragePool) -> str:
        """TensorFlow's SAME or VALID where one of them fits; else the image is padded first."""
        source = self._graph.shapes[use.node.inputs[0]]
        x, pad, same = use.arguments[0], reached_pad(op, source), same_pad(op, source)
        is_max = isinstance(op, ops.MaxPool)
        order = ', "NCHW"' if self._nchw else ""
        name = "tf.nn.max_pool2d" if is_max else "tf.nn.avg_pool2d"
        if not any(pad):
            return f'{name}({x}, {sides(op.kernel)}, {sides(op.stride)}, "VALID"{order})'
        if pad == same and (not self._xla if isinstance(op, ops.MaxPool) else not op.count_pad):
            return f'{name}({x}, {sides(op.kernel)}, {sides(op.stride)}, "SAME"{order})'
        if is_max:
            fill = f'tf.pad({x}, {self._around(pad)}, constant_values=float("-inf"))'
            return f'{name}({fill}, {sides(op.kernel)}, {sides(op.stride)}, "VALID"{order})'
        given = [x, str(op.kernel), str(op.stride), f"pad={op.pad}", f"reached={pad}", f"count_pad={op.count_pad}"]
        return self._helper("padded_average_pool", *given)

    def _around(self, pad: Pad) -> str:
        top, bottom, left, right = pad
        rows = [[top, bottom], [left, right]]
        return str([[0, 0], [0, 0], *rows] if self._nchw else [[0, 0], *rows, [0, 0]])

    def _lrn(self, x: str, op: ops.Lrn) -> str:
        if op.within_channel:
            return self._helper("pixel_response_norm", x, op.size, op.alpha, op.beta, op.k)
        if not self._narrow and not self._nchw:
            given = f"{op.size // 2}, bias={op.k}, alpha={op.alpha} / {op.size}, beta={op.beta}"
            return f"tf.nn.local_response_normalization({x}, {given})"
        return self._helper("local_response_norm", x, op.size, op.alpha, op.beta, op.k)

    def _moves(self, layer: Layer) -> bool:
        """Whether a flatten layer must move the channels to the front: not if only dense layers read it, whose weights
        are in another order instead."""
        channels, height, width = self._graph.input_shapes(layer)[0]
        return not self._nchw and channels > 1 and height * width > 1 and not self._only_dense_layers_read(layer.name)

    def _only_dense_layers_read(self, name: str) -> bool:
        return all(
            isinstance(reader.op, ops.Dense)
            or (isinstance(reader.op, ops.Activation | ops.Dropout) and self._only_dense_layers_read(reader.name))
            for reader in self._graph.consumers[name]
        )


def _repeated(use: Use, variable: str) -> list[str]:
    x = use.arguments[0]
    begin = [] if variable == x else [f"{variable} = {x}"]
    return [*begin, f"for block in self.{use.name}:", f"    {variable} = block({variable})"]


def _differs(texts: Texts, name: str, usual: Slot) -> bool:
    return name in texts and texts[name].value != usual


def _signature(block: Block) -> str:
    return signature(block.parameters).replace("padding=0", 'padding="VALID"')


def _arguments(texts: Texts, block: Block) -> str:
    names = [name for name in block.parameters if name != "padding" or texts[name].value != "VALID"]
    return arguments(texts, names)
