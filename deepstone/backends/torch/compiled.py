"""Compiles the job's network a second time, in the same way but with visible kernels and their origins.

Inductor records the nodes of each kernel. A node's stack trace leads to a line of the function that fx wrote
for our network, forward as well as backward, and that line belongs to a layer.

A program's calls are always the same and in the same order. Some are found by name; kernels with other names that ran
between two of them belong to the calls between the two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload

from deepstone.backends.base import Unsupported
from deepstone.backends.torch.lower import LAYER
from deepstone.backends.torch.settings import inductor_options

Layers: TypeAlias = Mapping[str, int]  # the layers that something belongs to, and its share for each

_ORIGINS = "trace.provenance_tracking_level"
_HANDLE = re.compile(r"\[Provenance debug handles\] (\S+:\d+)$", re.MULTILINE)
_LINE = re.compile(r'File "(<eval_with_key>[^"]*)", line \d+, in forward\n\s*(\w+) = ')


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelCall:
    """One call in a program: its visible name, and the number of elements that it computes for each layer.

    In the original program a call belongs to one layer or none; in the compiled one it may belong to several.
    """

    name: str
    layers: Layers


@dataclass(frozen=True, slots=True)
class WatchedNetwork:
    """A network compiled with records. `module` computes as the job's own does. `calls` are filled in order during
    compilation."""

    module: nn.Module
    calls: dict[str, list[KernelCall]]


def compile_watched(network: nn.Module, mode: str) -> WatchedNetwork:
    """Prepare the compilation. The first call compiles, and must be made inside `compiling_anew`."""
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner
    from torch._inductor.debug import reset_provenance_globals
    from torch._inductor.output_code import CompiledFxGraph

    if _ORIGINS not in config.get_config_copy():
        raise Unsupported(f"torch {torch.__version__} does not tell which operations its compiled kernels come from")
    options = inductor_options(mode) | {_ORIGINS: 1, "cpp.enable_kernel_profile": True, "fx_graph_cache": False}
    layer_of_line = _layers_by_line(network)
    calls: dict[str, list[KernelCall]] = {"forward": [], "backward": []}

    def compile_pass(module: fx.GraphModule, inputs: Any, **given: Any) -> Any:
        with reset_provenance_globals():  # without it Inductor records no backward pass
            code = compile_fx_inner(module, inputs, **given)
        assert isinstance(code, CompiledFxGraph)
        assert code.inductor_provenance_mapping_str is not None
        operations = {node.name: _operation(node, layer_of_line) for node in module.graph.nodes}
        direction = "backward" if given.get("is_backward") else "forward"
        calls[direction] += kernel_calls(code.source_code, code.inductor_provenance_mapping_str, operations)
        return code

    def backend(module: fx.GraphModule, inputs: list[Any]) -> Any:
        return compile_fx(module, inputs, inner_compile=compile_pass, config_patches=options)

    module = cast(nn.Module, torch.compile(network, backend=cast(Callable[..., Any], backend)))
    return WatchedNetwork(module, calls)


def compiling_anew() -> AbstractContextManager[Any]:
    """Bypass torch's cache of compiled programs inside: cached programs have no records."""
    from torch._functorch import config

    return config.patch(enable_autograd_cache=False)


def kernel_calls(source: str, origins: str, operations: Mapping[str, KernelCall]) -> list[KernelCall]:
    """Return the calls in a compiled program's source, in order.

    `origins` are the nodes of each call, from Inductor; `operations` are those nodes in the order of the program.
    """
    nodes_of: dict[str, list[str]] = json.loads(origins)["cppCodeToPost"]
    calls: list[KernelCall] = []
    for handle in _HANDLE.findall(source):
        name, nodes = shown_name(handle.rpartition(":")[0]), set(nodes_of.get(handle, []))
        fused = [operation for node, operation in operations.items() if node in nodes]
        calls.append(KernelCall(name=name, layers=_elements_by_layer(name, fused)))
    return calls


def shown_name(call: str) -> str:
    """Return the name of a kernel in the profiler: `extern_kernels.mm` is `aten::mm`."""
    external, _, name = call.rpartition("extern_kernels.")
    if not external and name != call:
        return f"aten::{name.removeprefix('bias_')}"
    if call.startswith("torch.ops."):
        space, name = call.split(".")[2:4]
        return f"{space}::{name}"
    return re.sub(r"^graph_\d+_", "", call)


def _elements_by_layer(kernel: str, operations: Sequence[KernelCall]) -> Layers:
    """Return elements by layer. A kernel of torch's own does one operation, the last of its name; nodes of its inputs
    may be listed too."""
    own = [operation for operation in operations if operation.name == kernel][-1:]
    layers = _together(own or operations)
    worked = {layer: elements for layer, elements in layers.items() if elements}
    return worked or dict.fromkeys(layers, 1)


def _operation(node: fx.Node, layer_of_line: Mapping[tuple[str, str], str]) -> KernelCall:
    """Return the operation of a node; views compute no elements."""
    lines = [line for line in _LINE.findall(node.stack_trace or "") if line in layer_of_line]
    layers = [layer_of_line[line] for line in lines[-1:]]
    if not isinstance(node.target, OpOverload):
        return KernelCall(name=str(node.target), layers=dict.fromkeys(layers, 0))
    made = node.meta.get("val")
    tensors = [made] if isinstance(made, Tensor) else made if isinstance(made, list | tuple) else []
    elements = sum(tensor.numel() for tensor in tensors if isinstance(tensor, Tensor))
    name = str(node.target.name()).partition(".")[0]
    return KernelCall(name=name, layers=dict.fromkeys(layers, 0 if node.target.is_view else elements))


def _layers_by_line(network: nn.Module) -> dict[tuple[str, str], str]:
    """Map the file and the variable of a line in a generated forward function to the layer."""
    found: dict[tuple[str, str], str] = {}
    for module in network.modules():
        if isinstance(module, fx.GraphModule):
            file = type(module).forward.__code__.co_filename
            found |= {(file, node.name): node.meta[LAYER] for node in module.graph.nodes if LAYER in node.meta}
    return found


def match_by_name(names: Sequence[str], calls: Sequence[KernelCall]) -> list[int | None]:
    """Return for each name that ran its call, or None."""
    found: list[int | None] = []
    next_call = 0
    for name in names:
        ahead = next((number for number in range(next_call, len(calls)) if calls[number].name == name), None)
        if ahead is not None:
            next_call = ahead + 1
        found.append(ahead)
    return found


def match_in_order(names: Sequence[str], calls: Sequence[KernelCall]) -> list[Layers | None]:
    """Return for each name that ran its layers: by its name, or else by its neighbours."""
    found: list[Layers | None] = [None] * len(names)
    next_call = next_name = 0
    for number, call in enumerate([*match_by_name(names, calls), len(calls)]):
        if call is None:
            continue
        if call > next_call:
            found[next_name:number] = [_together(calls[next_call:call])] * (number - next_name)
        if call < len(calls):
            found[number] = calls[call].layers
        next_call, next_name = call + 1, number + 1
    return found


def _together(calls: Sequence[KernelCall]) -> Layers:
    layers: dict[str, int] = {}
    for call in calls:
        for layer, elements in call.layers.items():
            layers[layer] = layers.get(layer, 0) + elements
    return layers
