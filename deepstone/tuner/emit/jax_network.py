"""A network as JAX code: functions of a tree of parameters, and functions that make the tree.

Helpers are those of the measured step: a pool as slices, and gradients of norms written out, because XLA's own are many
times slower on a CPU. A network has only the helpers that it uses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from deepstone.graph import ops
from deepstone.graph.graph import Graph
from deepstone.graph.ops import Pad
from deepstone.graph.space_to_depth import blocks_of
from deepstone.tuner.emit.body import Body, Style, Texts, Use, arguments, folded, options, signature
from deepstone.tuner.emit.jax_helpers import HELPERS, NEEDS
from deepstone.tuner.emit.network import (
    NetworkWriter,
    body_of_block,
    body_of_network,
    chosen_lines,
    losses,
    side,
    with_needed,
    words_about,
)
from deepstone.tuner.emit.plan import Block, Described, Node, Plan, Slot, plan_of

_FUNCTIONS: Final[Mapping[type[ops.Op], str]] = {
    ops.Relu: "jax.nn.relu",
    ops.Sigmoid: "jax.nn.sigmoid",
    ops.Tanh: "jnp.tanh",
    ops.Silu: "jax.nn.silu",
}
_MADE: Final = ("inputs", "channels", "features", "kernel", "groups")  # slots that decide the shape of a parameter
_FEW_GROUPS: Final = 4


class JaxNetwork(NetworkWriter):
    """`narrow`: activations are in bf16. `scans`: long repetitions become a loop of XLA's, which compiles once."""

    framework = "jax"
    functions = _FUNCTIONS

    def __init__(
        self, graph: Graph, *, dropout: bool, space_to_depth: bool, nchw: bool, narrow: bool, on_cpu: bool, scans: bool
    ) -> None:
        super().__init__(graph, nchw=nchw)
        self._space_to_depth = space_to_depth
        self._narrow = narrow
        self._on_cpu = on_cpu
        self._scans = scans
        self._plan = plan_of(graph, self._described, dropout=dropout, may_repeat=lambda node: not _drops(node))
        self.has_norms = any(isinstance(layer.op, ops.BatchNorm) for layer in graph.layers)
        self.drops = dropout and any(isinstance(layer.op, ops.Dropout) for layer in graph.layers)

    def code(self) -> str:
        plan = self._plan
        functions = [code for block in plan.blocks for code in self._block(block)]
        functions += self._network(plan)
        if any(node.count > 1 for node in plan.nodes) and self._scans:
            self._helpers["stacked"] = None
        if self.has_norms:
            self._helpers["initial_statistics"] = None
        return folded("\n\n".join([*self._used_helpers(), *functions]))

    def loss(self, network: str) -> list[str]:
        return losses(self._plan, network, lambda scores: f"cross_entropy({scores}, labels)")

    def _used_helpers(self) -> list[str]:
        wanted = with_needed({*self._helpers, "cross_entropy"}, HELPERS, NEEDS)
        return [self._in_layout(HELPERS[name]) for name in wanted if self._nchw or name != "channels"]

    def _in_layout(self, code: str) -> str:
        """The lines that are for this layout, device and network."""
        chosen = {"NCHW" if self._nchw else "NHWC", "CPU" if self._on_cpu else "GPU"}
        convs = [layer.op for layer in self._graph.layers if isinstance(layer.op, ops.Conv)]
        if self._on_cpu and not self._nchw and any(op.kernel == (1, 1) for op in convs):
            chosen.add("POINT")
        if self._on_cpu and any(1 < op.groups <= _FEW_GROUPS for op in convs):
            chosen.add("GROUPS")
        code = chosen_lines(code, chosen, narrow=self._narrow)
        if not self._nchw:
            code = re.sub(r"along_channels\((\w+)\)", r"\1", code)
            code = code.replace("along_channels(", "(")
        return code

    def _network(self, plan: Plan) -> list[str]:
        body, about = body_of_network(plan), words_about(self._graph, plan)
        told = [f'    """{about[0]}', *(f"    {line}" for line in about[1:])]
        told = [*told[:-1], f'{told[-1]}"""'] if len(told) == 1 else [*told, '    """']
        init = self._init("init_network", (), body)
        given = ["params", *(["stats"] if self.has_norms else []), "x", *(["key"] if self.drops else [])]
        return [init, self._function("network", given, body, stateful=self.has_norms, told=told)]

    def _block(self, block: Block) -> list[str]:
        body, made, used = body_of_block(block), _made_parameters(block), _used_parameters(block)
        stateful, name = _is_stateful(block.nodes), snake(block.name)
        given = ["params", *(["stats"] if stateful else []), "x"]
        given += ["key"] if any(_drops(node) for node in block.nodes) else []
        given += [signature(used)] if used else []
        init = [self._init(f"init_{name}", made, body)] if _has_parameters(block.nodes) else []
        return [*init, self._function(name, given, body, stateful=stateful, told=[])]

    def _init(self, name: str, parameters: Sequence[str], body: Body) -> str:
        entries = [
            f'        "{own}": {code},'
            for place, own in enumerate(body.names)
            if (code := self._parameters(body.nodes[place], body.texts(place))) is not None
        ]
        given = f", {signature(parameters)}" if parameters else ""
        return "\n".join([f"def {name}(rng{given}):", "    return {", *entries, "    }", ""])

    def _parameters(self, node: Node, texts: Texts) -> str | None:
        if node.block is not None:
            if not _has_parameters(node.block.nodes):
                return None
            given = arguments(texts, _made_parameters(node.block))
            call = f"init_{snake(node.block.name)}(rng{', ' if given else ''}{given})"
            if node.count == 1:
                return call
            several = f"[{call} for _ in range({node.count})]"
            return f"stacked({several})" if self._scans else several
        op = node.op
        match op:
            case ops.Conv():
                given = [str(texts[name]) for name in ("inputs", "channels", "kernel")]
                given += options(texts, "groups") if "groups" in texts else []
                given += [] if op.bias else ["bias=False"]
                return self._helper("init_conv", "rng", *given)
            case ops.Dense():
                bias = [] if op.bias else ["bias=False"]
                return self._helper("init_dense", "rng", texts["inputs"], texts["features"], *bias)
            case ops.BatchNorm():
                return self._helper("init_norm", texts["channels"])
            case _:
                return None

    def _function(self, name: str, given: Sequence[str], body: Body, *, stateful: bool, told: list[str]) -> str:
        style = Style(
            expression=self._computed,
            is_whole=lambda node: node.count > 1 or _is_stateful([node]),
            whole=self._whole,
        )
        lines, results = body.lines(style)
        start = [*told]
        start += ["    new = {}  # running means and variances after this batch"] if stateful else []
        result = results[0] if len(results) == 1 else f"({', '.join(results)})"
        end = f"    return {result}, new" if stateful else f"    return {result}"
        return "\n".join([f"def {name}({', '.join(given)}):", *start, *(f"    {line}" for line in lines), end, ""])

    def _whole(self, use: Use, variable: str) -> list[str]:
        node, x = use.node, use.arguments[0]
        stateful = _is_stateful([node])
        if node.count == 1:
            return [f'{variable}, new["{use.name}"] = {self._call(use)}']
        assert node.block is not None
        name, used = snake(node.block.name), arguments(use.texts, _used_parameters(node.block))
        given = f", {used}" if used else ""
        if self._scans:
            own = f'params["{use.name}"], stats["{use.name}"]' if stateful else f'params["{use.name}"]'
            if stateful:
                call = f"lambda x, own: {name}(*own, x{given})"
                return [f'{variable}, new["{use.name}"] = lax.scan({call}, {x}, ({own}))']
            return [f"{variable}, _ = lax.scan(lambda x, own: ({name}(own, x{given}), None), {x}, {own})"]
        begin = [] if variable == x else [f"{variable} = {x}"]
        if not stateful:
            return [*begin, f'for own in params["{use.name}"]:', f"    {variable} = {name}(own, {variable}{given})"]
        return [
            *begin,
            f'new["{use.name}"] = []',
            f'for own, seen in zip(params["{use.name}"], stats["{use.name}"]):',
            f"    {variable}, after = {name}(own, seen, {variable}{given})",
            f'    new["{use.name}"].append(after)',
        ]

    def _call(self, use: Use) -> str:
        """A function with parameters, and running statistics if it has them."""
        node, x = use.node, use.arguments[0]
        own = [f'params["{use.name}"]'] if _has_parameters([node]) else ["{}"]
        own += [f'stats["{use.name}"]'] if _is_stateful([node]) else []
        if node.block is not None:
            own += [x, *(["key"] if _drops(node) else [])]
            used = arguments(use.texts, _used_parameters(node.block))
            return f"{snake(node.block.name)}({', '.join([*own, *([used] if used else [])])})"
        given = [*own, x]
        given += [f"epsilon={use.texts['epsilon']}"] if use.texts["epsilon"].value != 1e-5 else []
        given += [f"momentum={use.texts['momentum']}"] if use.texts["momentum"].value != 0.1 else []
        return self._helper("batch_norm", *given)

    def _described_conv(self, op: ops.Conv, source: tuple[int, ...]) -> Described:
        slots: dict[str, Slot] = {"inputs": source[0], "channels": op.channels, "kernel": side(op.kernel)}
        blocks = blocks_of(op, source) if self._space_to_depth else None
        if blocks is not None:
            slots |= {"side": blocks.side, "image_pad": blocks.image_pad, "kernel_pad": blocks.kernel_pad}
            return Described(structure=(op.kind, op.bias, "blocks"), slots=slots)
        slots |= {"stride": side(op.stride), "padding": _edges(op.pad), "dilation": side(op.dilation)}
        slots |= {"groups": op.groups}
        return Described(structure=(op.kind, op.bias), slots=slots)

    def _computed(self, use: Use) -> str:
        op, x, node = use.node.op, use.arguments[0], use.node
        if node.block is not None:
            return self._call(use)
        match op:
            case ops.Conv() if "side" in node.slots:
                given = [f"{name}={use.texts[name]}" for name in ("side", "image_pad", "kernel_pad")]
                return self._helper("block_conv", f'params["{use.name}"]', x, *given)
            case ops.Conv():
                given = options(use.texts, "stride", "padding", "dilation", "groups")
                return self._helper("conv", f'params["{use.name}"]', x, *given)
            case ops.Dense():
                return self._helper("dense", f'params["{use.name}"]', x)
            case ops.GlobalPool():
                return f"{x}.mean({(2, 3) if self._nchw else (1, 2)}, keepdims=True)"
            case ops.Lrn():
                name = "pixel_response_norm" if op.within_channel else "local_response_norm"
                return self._helper(name, x, op.size, op.alpha, op.beta, op.k)
            case ops.Dropout():
                place = [layer.name for layer in self._graph.layers].index(node.value)
                return self._helper("dropout", x, op.rate, f"jax.random.fold_in(key, {place})")
            case ops.Multiply() if self._narrow and len({self._graph.shapes[name] for name in node.inputs}) > 1:
                return self._helper("gated", *self._factors(use))
            case ops.Concat():
                return f"jnp.concatenate([{', '.join(use.arguments)}], {1 if self._nchw else 3})"
            case ops.Flatten():
                return self._helper("flatten", x)
            case _:
                return self._written_alike(use)

    def _pool(self, use: Use, op: ops.MaxPool | ops.AveragePool) -> str:
        given = [use.arguments[0], str(side(op.kernel)), str(side(op.stride))]
        given += [f"padding={_edges(op.pad)}"] if any(op.pad) else []
        given += ["ceil_mode=True"] if op.ceil_mode else []
        given += ["count_pad=False"] if isinstance(op, ops.AveragePool) and not op.count_pad else []
        return self._helper(op.kind, *given)


def _edges(pad: Pad) -> Slot:
    """One number, (rows, columns), or (top, bottom, left, right)."""
    top, bottom, left, right = pad
    return side((top, left)) if (top, left) == (bottom, right) else pad


def _is_stateful(nodes: Sequence[Node]) -> bool:
    return any(isinstance(layer.op, ops.BatchNorm) for node in nodes for layer in node.layers)


def _has_parameters(nodes: Sequence[Node]) -> bool:
    return any(isinstance(layer.op, ops.Conv | ops.Dense | ops.BatchNorm) for node in nodes for layer in node.layers)


def _drops(node: Node) -> bool:
    return any(isinstance(layer.op, ops.Dropout) for layer in node.layers)


def _made_parameters(block: Block) -> tuple[str, ...]:
    """Parameters of a block that decide the shapes of arrays."""
    return _parameters_of(block, making=True)


def _used_parameters(block: Block) -> tuple[str, ...]:
    """Parameters of a block that decide what is computed."""
    return _parameters_of(block, making=False)


def _parameters_of(block: Block, *, making: bool) -> tuple[str, ...]:
    found: set[str] = set()
    for (place, slot), name in block.texts.items():
        inner = block.nodes[place].block
        if inner is not None:
            is_one = slot in _parameters_of(inner, making=making)
        elif making:
            is_one = slot in _MADE
        else:
            is_one = slot not in _MADE or slot == "groups"
        found |= {name} if is_one else set()
    return tuple(name for name in block.parameters if name in found)


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
