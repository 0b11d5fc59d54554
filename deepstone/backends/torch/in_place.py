"""Layers timed inside whole eager steps: a timestamp where a layer begins and ends, forward and backward.

    forward   ┆conv1┆ ┆relu1┆ ┆pool1┆ …       timestamps in the generated forward function
    backward  … ┆pool1┆ ┆relu1┆ ┆conv1┆       timestamps before and after each autograd node that the layer made
    between   gaps: the host, the autograd engine, storing gradients; where it adds them up, that is named

Timestamps are times of the host's clock on the CPU and events in the stream on a GPU, so nothing waits for anything. An
event takes the device's time, some 2 µs, so on a GPU a layer begins where what came before it ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, fx, nn

from deepstone.backends.base import InPlace, StepAccount
from deepstone.backends.torch.lower import LAYER
from deepstone.backends.torch.module_parts import Handlers, Part, tensors_in, watching
from deepstone.backends.torch.own_module import OwnModule
from deepstone.backends.torch.training import Steps
from deepstone.graph.graph import Graph

METHOD = "timestamps at the ends of each layer's forward call and autograd nodes"
_SUMS_AND_UPDATE = (
    "sums are of the gradients that meet where one output feeds several layers; "
    "update includes forgetting the gradients"
)
RULE_CPU = f"nothing is shared: each layer has the time between its own timestamps; {_SUMS_AND_UPDATE}"
RULE_GPU = (
    "nothing is shared: each layer has the time since the one before it ended, waiting for the host included; "
    f"{_SUMS_AND_UPDATE}"
)
RULE_PARTS = (
    "nothing is shared: each innermost submodule, and each function() that is called outside of these, has the time "
    "between its own timestamps; gaps include sums of gradients; update includes forgetting the gradients"
)
SUMS = "sums of gradients"
BETWEEN = "Python between the module's parts"
HOOKS = "Deepstone's own hooks"

_START, _DATA, _FORWARD, _BACKWARD, _UPDATE = range(-1, 4)  # the ends of phases, as step_in_phases numbers them
_HOOKED = 4  # autograd nodes of a part have their hooks


class Timestamps:
    """Timestamps: (layer, pass, whether it begins) or the number of a finished phase, each with its time."""

    def __init__(self, device: torch.device, *, sparse: bool, clock: Callable[[], float] | None = None) -> None:
        self.on_gpu = device.type == "cuda" and clock is None
        self._clock = clock or time.perf_counter
        self.sparse = sparse  # no timestamp where a layer begins
        self.sums_pending = False  # gradients have been added up since the last timestamp
        self._pool: list[torch.cuda.Event] = []
        self.what: list[Any] = []
        self._when: list[Any] = []

    def stamper(self, what: Any) -> Callable[..., None]:
        """Return a function that timestamps `what` and ignores its arguments."""
        add_what, add_when = self.what.append, self._when.append
        if not self.on_gpu:
            clock = self._clock

            def stamp(*_: Any) -> None:
                add_when(clock())
                add_what(what)

            return stamp

        def record(*_: Any) -> None:
            if len(self._when) == len(self._pool):
                self._pool.append(torch.cuda.Event(enable_timing=True))
            event = self._pool[len(self._when)]
            event.record()
            add_when(event)
            add_what(what)

        return record

    def times_s(self) -> list[float]:
        """Return the times. Call it after synchronizing."""
        if not self.on_gpu:
            return list(self._when)
        first = self._when[0]
        return [first.elapsed_time(event) / 1e3 for event in self._when]

    def clear(self) -> None:
        self.what.clear()
        self._when.clear()


class _Begin(nn.Module):
    """The start of a layer in the stamped network."""

    def __init__(self, stamp: Callable[..., None]) -> None:
        super().__init__()
        self._stamp = stamp

    def forward(self) -> None:
        self._stamp()


class _End(nn.Module):
    """The end of a layer; it puts timestamps around the autograd nodes that the layer just created."""

    def __init__(self, layer: str, timestamps: Timestamps, owned: set[Any], *, adds_up: bool = False) -> None:
        super().__init__()
        self._stamp = timestamps.stamper((layer, "forward", False))
        begin, end = (timestamps.stamper((layer, "backward", begins)) for begins in (True, False))
        self._begin_backward = _after_sums(timestamps, begin) if timestamps.sparse else begin
        self._end_backward = _before_sums(timestamps, end) if timestamps.sparse and adds_up else end
        self._hooked = timestamps.stamper(_HOOKED)
        self._owned = owned

    def forward(self, output: Tensor) -> Tensor:
        self._stamp()
        self.own(output)
        return output

    def own(self, output: Tensor) -> None:
        owned = self._owned
        new = [output.grad_fn]
        while new:
            node = new.pop()
            # A node that stores a weight's gradient outlives the step, and so would its timestamps.
            if node is None or node in owned or not node.next_functions:
                continue
            owned.add(node)
            node.register_prehook(self._begin_backward)
            node.register_hook(self._end_backward)
            new += [before for before, _ in node.next_functions]

    def after(self, output: Any) -> None:
        """End a part of a user's module, which may return several tensors, or none."""
        self._stamp()
        for tensor in tensors_in(output):
            self.own(tensor)
        self._hooked()


def _before_sums(timestamps: Timestamps, stamp: Callable[..., None]) -> Callable[..., None]:
    def ended(*_: Any) -> None:
        stamp()
        timestamps.sums_pending = True

    return ended


def _after_sums(timestamps: Timestamps, stamp: Callable[..., None]) -> Callable[..., None]:
    def begun(*_: Any) -> None:
        if timestamps.sums_pending:
            stamp()
            timestamps.sums_pending = False

    return begun


class StampedNetwork:
    """A second forward function over the same modules and weights, with timestamps."""

    def __init__(
        self, network: fx.GraphModule, graph: Graph, device: torch.device, clock: Callable[[], float] | None
    ) -> None:
        # What lies between the parts of a user's own module is no part of them, so there both ends have one.
        self.timestamps = Timestamps(device, sparse=device.type == "cuda" and not graph.opaque, clock=clock)
        self.parts: dict[str, Part] = {}  # of users' own modules, in the order in which they first ran
        self._graph = graph
        self._owned: set[Any] = set()
        self.module = self._stamped(network)

    def _stamped(self, network: fx.GraphModule) -> fx.GraphModule:
        root = nn.Module()
        for name, module in network.named_children():
            root.add_module(name, module)
        graph, copies, current = fx.Graph(), dict[fx.Node, fx.Node](), ""
        last: fx.Node | None = None

        def close() -> None:
            if current and last is not None:
                name = f"end_{len(copies)}"
                adds_up = any(len(self._graph.consumers[source]) > 1 for source in self._graph.layer(current).inputs)
                root.add_module(name, _End(current, self.timestamps, self._owned, adds_up=adds_up))
                copies[last] = graph.call_module(name, (copies[last],))

        opaque = {layer.name for layer in self._graph.opaque}
        for node in network.graph.nodes:
            layer = node.meta.get(LAYER, "")
            layer = "" if layer in opaque else layer  # its parts have timestamps of their own
            if layer != current:
                close()
                current = layer
                if layer and not self.timestamps.sparse:
                    name = f"begin_{len(copies)}"
                    root.add_module(name, _Begin(self.timestamps.stamper((layer, "forward", True))))
                    graph.call_module(name)
            copies[node] = graph.node_copy(node, lambda original: copies[original])
            last = node
        graph.lint()
        return fx.GraphModule(root, graph, class_name="StampedNetwork")

    @contextmanager
    def watching_parts(self) -> Generator[None]:
        """Put timestamps at the parts of users' own modules while it is entered."""
        with ExitStack() as watched:
            for module in self.module.modules():
                if isinstance(module, OwnModule):
                    watched.enter_context(watching(module, self))
            yield

    def part(self, part: Part) -> Handlers:
        """As a Watcher."""
        name = part.name
        self.parts[name] = part
        return self.timestamps.stamper((name, "forward", True)), _End(name, self.timestamps, self._owned).after

    def container(self, path: str, module: nn.Module) -> None:
        """A container's time is that of its parts."""

    def forget(self) -> None:
        """Release the last step's autograd nodes."""
        self._owned.clear()


class InPlaceTimer:
    """Runs stamped steps of one job."""

    def __init__(
        self,
        network: fx.GraphModule,
        graph: Graph,
        steps: Steps,
        device: torch.device,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`clock` may count something other than seconds."""
        self._graph = graph
        self._steps = steps
        self._stamped = StampedNetwork(network, graph, device, clock)
        self._stamped.module.train(network.training)
        self._warm = False
        self._start = self._stamped.timestamps.stamper(_START)
        self._phase_ends = [self._stamped.timestamps.stamper(phase) for phase in range(4)]
        self.stamped = self._stamped.timestamps.what

    @property
    def parts(self) -> dict[str, Part]:
        return self._stamped.parts

    def run(self, count: int, synchronize: Callable[[], None]) -> InPlace:
        """Run `count` steps; the first call also runs one step that is ignored."""
        timestamps = self._stamped.timestamps
        if not self._warm:
            self.look(1, synchronize)
            self._warm = True
        found = list(accounts(*self.look(count, synchronize), self._graph))
        rule = RULE_PARTS if self._graph.opaque else RULE_GPU if timestamps.sparse else RULE_CPU
        return InPlace(METHOD, rule, found)

    def look(self, count: int, synchronize: Callable[[], None]) -> tuple[list[Any], list[float]]:
        """Return the timestamps of this many steps."""
        timestamps = self._stamped.timestamps
        synchronize()
        with self._stamped.watching_parts():
            for _ in range(count):
                self._step()
        synchronize()
        found = list(timestamps.what), timestamps.times_s()
        timestamps.clear()
        return found

    def _step(self) -> None:
        self._start()
        self._steps.step_in_phases(self._end_phase, model=self._stamped.module)
        self._stamped.forget()

    def _end_phase(self, phase: int) -> None:
        self._phase_ends[phase]()


def accounts(what: list[Any], times_s: list[float], graph: Graph) -> Iterator[StepAccount]:
    """Convert timestamps to the parts of each step."""
    starts = [number for number, stamped in enumerate(what) if stamped == _START]
    for begin, end in zip(starts, [*starts[1:], len(what)], strict=True):
        yield _account(what[begin:end], times_s[begin:end], graph)


def _account(what: list[Any], times_s: list[float], graph: Graph) -> StepAccount:
    layers: dict[tuple[str, str], float] = {}
    other: dict[str, float] = {}
    phases = {"data": 0.0, "update": 0.0}
    gaps_s = 0.0
    met: set[str] = set()  # outputs that have received a gradient
    for (before, after), (start_s, end_s) in zip(pairwise(what), pairwise(times_s), strict=True):
        passed = end_s - start_s
        if after == _DATA:
            phases["data"] += passed
        elif after == _UPDATE:
            phases["update"] += passed
        elif after == _HOOKED:
            other[HOOKS] = other.get(HOOKS, 0.0) + passed
        elif isinstance(after, tuple) and not after[2]:
            key = after[:2]
            layers[key] = layers.get(key, 0.0) + passed
        elif (
            isinstance(before, tuple)
            and before[1] == "backward"
            and not graph.opaque
            and _adds_up(graph, before[0], met)
        ):
            other[SUMS] = other.get(SUMS, 0.0) + passed
        elif before == _HOOKED:
            other[BETWEEN] = other.get(BETWEEN, 0.0) + passed
        else:
            gaps_s += passed
    return StepAccount(times_s[-1] - times_s[0], layers, phases["data"], phases["update"], gaps_s, other)


def _adds_up(graph: Graph, layer: str, met: set[str]) -> bool:
    """Whether the gradients that this layer just returned are added to earlier ones."""
    adds = False
    for source in graph.layer(layer).inputs:
        if len(graph.consumers[source]) > 1:
            adds = adds or source in met
            met.add(source)
    return adds
