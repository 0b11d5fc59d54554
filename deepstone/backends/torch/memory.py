"""The memory of each layer, from one separate step: arrays kept for backward, and workspace on a GPU.

Kept arrays are those that autograd saves in forward, each storage once, at the layer that made it. Workspace is what
torch's allocator had beyond both ends of a layer's call or autograd node; the CPU's allocator does not count it. In a
user's own module its parts are the layers, and their parameters are reported too, because the graph lacks them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.autograd.graph import saved_tensors_hooks

from deepstone.backends.torch.lower import LAYER
from deepstone.backends.torch.module_parts import Handlers, Part, tensors_in, watching
from deepstone.backends.torch.own_module import OwnModule
from deepstone.backends.torch.training import Steps
from deepstone.graph.graph import Graph

_NOTHING = {"parameters_bytes": 0, "gradients_bytes": 0, "optimizer_bytes": 0}
_NO_WORKSPACE = {"absent": "torch keeps no account of its workspaces on the CPU"}


def memory_by_layer(
    network: fx.GraphModule, graph: Graph, steps: Steps, device: torch.device
) -> list[tuple[str, dict[str, Any]]]:
    """Run one step and return the memory by layer. It resets the allocator's peak."""
    account = _Account(network, graph)
    watch = _Watch(device)
    opaque = {layer.name for layer in graph.opaque}
    watched = _Watched(network, account, watch, opaque)
    with _counting_gradients(network) as gradients:
        steps.step_in_phases(lambda _phase: None, model=watched)

    def taken(name: str) -> dict[str, Any]:
        return {
            "kept_bytes": account.kept_bytes.get(name, 0),
            "workspace_bytes": watch.workspace_bytes.get(name, 0) if watch.active else _NO_WORKSPACE,
        }

    rows: list[tuple[str, dict[str, Any]]] = []
    for layer in graph.layers:
        if layer.name not in opaque or account.kept_bytes.get(layer.name):  # the latter: kept outside its parts
            rows.append((layer.name, taken(layer.name)))
        if layer.name in opaque:
            own = next(module for module in network.modules() if isinstance(module, OwnModule))
            holding = _held(own, gradients, steps.optimizer_bytes)
            for name, part in watched.parts.items():
                sizes = _NOTHING if part.module is None else holding.pop(part.path, _NOTHING)
                rows.append((name, {**taken(name), "op": part.op, **sizes}))
            # The rest have parameters of their own and parts besides, or others use their parameters.
            rows += [(path or sizes["op"], {**taken(path), **sizes}) for path, sizes in holding.items()]
    return rows


class _Account:
    """Finds the owners of the arrays that autograd saves."""

    def __init__(self, network: nn.Module, graph: Graph) -> None:
        self.kept_bytes: dict[str, int] = {}
        self._makers: dict[int, str] = {}  # the layer that made what lies at an address
        self._counted = {_address(tensor) for tensor in (*network.parameters(), *network.buffers())}
        self._image = graph.input.name
        self._saved: list[Tensor] = []  # while one node runs

    def save(self, tensor: Tensor) -> Tensor:
        self._saved.append(tensor)
        return tensor

    def arrived(self, tensor: Tensor) -> None:
        self._makers[_address(tensor)] = self._image

    def ran(self, layer: str, inputs: Iterable[Tensor], outputs: Iterable[Tensor]) -> None:
        """Record that one node of a layer ran: its saved arrays are its inputs or its own."""
        taken = {_address(tensor) for tensor in inputs}
        for output in outputs:
            if _address(output) not in taken:  # else it wrote over an input, or views one
                self._makers[_address(output)] = layer
        for tensor in self._saved:
            address = _address(tensor)
            if address in self._counted:
                continue
            self._counted.add(address)  # stays true: what is saved is not freed before backward
            maker = self._makers.get(address, layer) if address in taken else layer
            self.kept_bytes[maker] = self.kept_bytes.get(maker, 0) + tensor.untyped_storage().nbytes()
        self._saved.clear()


class _Watch:
    """The peak of torch's CUDA allocator while a layer ran, beyond the memory before or after it."""

    def __init__(self, device: torch.device) -> None:
        self.active = device.type == "cuda"
        self.workspace_bytes: dict[str, int] = {}
        self._before_bytes = 0

    def begin(self, *_: object) -> None:
        if self.active:
            torch.cuda.reset_peak_memory_stats()
            self._before_bytes = torch.cuda.memory_allocated()

    def end(self, layer: str) -> None:
        if self.active:
            around = max(self._before_bytes, torch.cuda.memory_allocated())
            beyond = torch.cuda.max_memory_allocated() - around
            self.workspace_bytes[layer] = max(beyond, self.workspace_bytes.get(layer, 0))

    def ender(self, layer: str) -> Callable[..., None]:
        return lambda *_: self.end(layer)


class _Watched(nn.Module):
    """Runs the network's own nodes one by one and records memory around each."""

    def __init__(self, network: fx.GraphModule, account: _Account, watch: _Watch, opaque: set[str]) -> None:
        super().__init__()
        self._interpreter = _Interpreter(network, account, watch, opaque)

    @property
    def parts(self) -> dict[str, Part]:
        """Return the parts of a user's own module, in the order in which they ran."""
        return self._interpreter.parts

    def forward(self, samples: Any, labels: Any) -> Tensor:
        return cast(Tensor, self._interpreter.run(samples, labels))


class _Interpreter(fx.Interpreter):
    def __init__(self, network: fx.GraphModule, account: _Account, watch: _Watch, opaque: set[str]) -> None:
        super().__init__(network)
        self.parts: dict[str, Part] = {}
        self._account = account
        self._watch = watch
        self._opaque = opaque
        self._around = ""  # the layer that is a user's own module, while it runs
        self._known: set[Any] = set()  # autograd nodes that have their hooks

    def run_node(self, n: fx.Node) -> Any:
        layer = str(n.meta.get(LAYER, ""))
        if n.op == "placeholder":
            arriving = super().run_node(n)
            for tensor in tensors_in(arriving):
                self._account.arrived(tensor)
            return arriving
        if not layer:
            return super().run_node(n)
        with saved_tensors_hooks(self._account.save, lambda tensor: tensor):
            return self._run_parts(n, layer) if layer in self._opaque else self._run_layer(n, layer)

    def _run_layer(self, n: fx.Node, layer: str) -> Any:
        self._watch.begin()
        output = super().run_node(n)
        self._watch.end(layer)
        self._ran(layer, self._inputs(n), output)
        return output

    def _run_parts(self, n: fx.Node, layer: str) -> Any:
        self._around = layer
        with ExitStack() as watched:
            for module in self.module.modules():
                if isinstance(module, OwnModule):
                    watched.enter_context(watching(module, self))
            output = super().run_node(n)
        self._ran(layer, self._inputs(n), ())
        return output

    def _inputs(self, n: fx.Node) -> Iterator[Tensor]:
        return tensors_in([self.env[source] for source in n.all_input_nodes])

    def part(self, part: Part) -> Handlers:
        """As a Watcher."""
        name, given = part.name, list[Any]()

        def begin(inputs: Any) -> None:
            self._account.ran(self._around, (), ())  # what was saved since the part before
            self.parts.setdefault(name, part)
            given.append(inputs)
            self._watch.begin()

        def end(output: Any) -> None:
            self._watch.end(name)
            self._ran(name, tensors_in(given.pop()), output)

        return begin, end

    def container(self, path: str, module: nn.Module) -> None:
        """A container's memory is that of its parts."""

    def _ran(self, layer: str, inputs: Iterable[Tensor], output: Any) -> None:
        outputs = list(tensors_in(output))
        self._account.ran(layer, inputs, outputs)
        if self._watch.active:
            for tensor in outputs:
                self._follow(tensor, layer)

    def _follow(self, output: Tensor, layer: str) -> None:
        """Record the autograd nodes that the layer just created when backward reaches them."""
        new = [output.grad_fn]
        while new:
            node = new.pop()
            if node is None or node in self._known:
                continue
            self._known.add(node)
            node.register_prehook(self._watch.begin)
            node.register_hook(self._watch.ender(layer))
            new += [before for before, _ in node.next_functions]


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@contextmanager
def _counting_gradients(network: nn.Module) -> Generator[dict[Tensor, int], None, None]:
    """Record the bytes of each gradient that a step inside stores."""
    found: dict[Tensor, int] = {}

    def stored(parameter: Tensor) -> None:
        assert parameter.grad is not None
        found[parameter] = _size(parameter.grad)

    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    handles = [parameter.register_post_accumulate_grad_hook(stored) for parameter in trained]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _held(
    own: OwnModule, gradients: dict[Tensor, int], optimizer_bytes: Callable[[Tensor], int]
) -> dict[str, dict[str, Any]]:
    """Return bytes by the path of each submodule with its own parameters. Shared parameters count for the first."""
    found: dict[str, dict[str, Any]] = {}
    for name, parameter in own.inner.named_parameters():  # tells each of them once
        path = name.rpartition(".")[0]
        sizes = found.setdefault(path, {"op": type(own.inner.get_submodule(path)).__name__, **_NOTHING})
        sizes["parameters_bytes"] += _size(parameter)
        sizes["gradients_bytes"] += gradients.get(parameter, 0)
        sizes["optimizer_bytes"] += optimizer_bytes(parameter)
    return found


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
