"""Steps under torch's own profiler, as plain events: operators, ranges and calls of the host, kernels of the device.

The profiler starts up in a leading step, which is ignored. Ranges in the profiler's record say which step,
which phase and, in the forward function of traced steps only, which layer is running.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeGuard, TypeVar

from torch import fx, nn
from torch.autograd import DeviceType  # pyright: ignore[reportPrivateImportUsage]
from torch.profiler import ProfilerActivity, profile, record_function

from deepstone.backends.base import Unsupported
from deepstone.backends.torch.lower import LAYER
from deepstone.backends.torch.module_parts import Handlers, Part, watching
from deepstone.backends.torch.own_module import OwnModule

Label = TypeVar("Label")
Kind: TypeAlias = Literal["operator", "range", "call", "kernel", "copy", "set"]

_RUNTIME_CALL = re.compile(r"^(cuda|cu|hip)[A-Z]")  # cudaLaunchKernel, cuLaunchKernel, hipLaunchKernel
_COMPILED_KERNEL = re.compile(r"^(graph_\d+_)?(cpp|triton)_")
_WAITING = re.compile(r"^(Context|Stream|Event) (Sync|Wait)")  # CUPTI shows waiting on the device's side too

LAYER_RANGE = "deepstone layer: "
_STEP = "deepstone step"
_PHASE = "deepstone phase: "


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Something that ran. A runtime call and the kernel that it launched have the same `correlation`."""

    name: str
    kind: Kind
    start_s: float
    end_s: float
    correlation: int = 0
    sequence: int = -1  # of operators: an operator and the autograd node that it made have the same
    self_s: float = 0.0  # of operators: without the operators that it called

    @property
    def computes(self) -> bool:
        """Whether this is work itself, not a frame of the autograd engine or the compiler around work."""
        if self.kind != "operator":
            return self.is_of_device
        space, colons, _ = self.name.partition("::")
        return bool(_COMPILED_KERNEL.match(self.name) or (colons and space not in ("autograd", "torch", "profiler")))

    @property
    def is_of_device(self) -> bool:
        return self.kind in ("kernel", "copy", "set")


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval(Generic[Label]):
    start_s: float
    end_s: float
    label: Label


def innermost(intervals: Iterable[Interval[Label]], moments_s: Sequence[float]) -> list[Label | None]:
    """Return for each moment the label of the enclosing interval that began last; None outside all of them."""
    ordered = sorted(intervals, key=lambda interval: (interval.start_s, -interval.end_s))
    found: list[Label | None] = [None] * len(moments_s)
    open_: list[Interval[Label]] = []
    position = 0
    for number in sorted(range(len(moments_s)), key=lambda number: moments_s[number]):
        moment_s = moments_s[number]
        while position < len(ordered) and ordered[position].start_s <= moment_s:
            open_.append(ordered[position])
            position += 1
        open_ = [interval for interval in open_ if interval.end_s > moment_s]
        found[number] = open_[-1].label if open_ else None
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class StepWindow:
    """The interval of one step on the host, and its phases."""

    start_s: float
    end_s: float
    phases: tuple[Interval[str], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """All events, in the order of their start."""

    events: list[Event]
    lead: StepWindow
    steps: list[StepWindow]


def record_steps(
    step: Callable[[Callable[[int], None]], None],
    phases: Sequence[str],
    *,
    count: int,
    on_gpu: bool,
    synchronize: Callable[[], None],
    path: str = "",
) -> Recording:
    """Run `count` steps; `step` calls its argument at the end of each phase. Writes a Chrome trace to `path`."""
    if path:
        _check_writable(path)
    synchronize()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as profiler:
        for _ in range(count + 1):
            _ranged(step, phases)
        synchronize()
    if path:
        profiler.export_chrome_trace(path)
    events = from_profiler(profiler.events() or [])
    windows = _windows(events)
    return Recording(events=events, lead=windows[0], steps=windows[1:])


def _ranged(step: Callable[[Callable[[int], None]], None], phases: Sequence[str]) -> None:
    whole = _begin_range(_STEP)
    current = [_begin_range(_PHASE + phases[0])]

    def mark(phase: int) -> None:
        _end_range(current.pop())
        if phase + 1 < len(phases):
            current.append(_begin_range(_PHASE + phases[phase + 1]))

    step(mark)
    _end_range(whole)


def _windows(events: list[Event]) -> list[StepWindow]:
    ranges = [event for event in events if event.kind == "range"]
    windows: list[StepWindow] = []
    for step in (event for event in ranges if event.name == _STEP):
        phases = [
            Interval(start_s=event.start_s, end_s=event.end_s, label=event.name.removeprefix(_PHASE))
            for event in ranges
            if event.name.startswith(_PHASE) and step.start_s <= event.start_s < step.end_s
        ]
        windows.append(StepWindow(start_s=step.start_s, end_s=step.end_s, phases=tuple(phases)))
    return windows


def _check_writable(path: str) -> None:
    """Check that the file can be written: the profiler would only report it on standard error, after all the work."""
    try:
        with Path(path).open("ab"):
            pass
    except OSError as error:
        raise Unsupported(f"cannot write the trace to {path}: {error.strerror}") from error


def from_profiler(found: Iterable[Any]) -> list[Event]:
    """Return the events of `torch.profiler.profile.events()`, in the order of their start."""
    events = [event for each in found if (event := _event_of(each)) is not None]
    return sorted(events, key=lambda event: (event.start_s, -event.end_s))


def _event_of(found: Any) -> Event | None:
    kind = _kind(found)
    if kind is None:
        return None
    return Event(
        name=found.name,
        kind=kind,
        start_s=found.time_range.start / 1e6,
        end_s=found.time_range.end / 1e6,
        correlation=found.id if kind not in ("operator", "range") else 0,  # the others count in numbers of their own
        sequence=found.sequence_nr,
        self_s=found.self_cpu_time_total / 1e6 if kind == "operator" else 0.0,
    )


def _kind(found: Any) -> Kind | None:
    if found.device_type == DeviceType.CPU:
        if found.is_user_annotation:
            return "range"
        return "call" if _RUNTIME_CALL.match(found.name) else "operator"
    if found.is_user_annotation or _WAITING.match(found.name):  # ranges of the host are drawn on the device too
        return None
    if found.name.startswith("Memcpy"):
        return "copy"
    return "set" if found.name.startswith("Memset") else "kernel"


@contextmanager
def layer_ranges(network: nn.Module) -> Generator[None, None, None]:
    """Inside, the network's generated code opens a range around each layer's calls, and a user's own module around each
    of its submodules and the functions that they call. Not for compiled networks."""
    originals = {module: module.graph for module in network.modules() if _is_ours(module)}
    try:
        for module, graph in originals.items():
            module.graph = _with_ranges(graph)
        with ExitStack() as watched:
            for module in network.modules():
                if isinstance(module, OwnModule):
                    watched.enter_context(watching(module, _PartRanges()))
            yield
    finally:
        for module, graph in originals.items():
            module.graph = graph


class _PartRanges:
    """Opens nested ranges like forward functions: block, submodule, function."""

    def part(self, part: Part) -> Handlers:
        return _range_handlers(LAYER_RANGE + part.name)

    def container(self, path: str, module: nn.Module) -> Handlers:
        kind = type(module).__name__
        return _range_handlers(f"{path} ({kind})" if path else kind)


def _range_handlers(name: str) -> Handlers:
    opened: list[record_function] = []  # a module may call itself

    def begin(_inputs: Any) -> None:
        opened.append(_begin_range(name))

    def end(_output: Any) -> None:
        _end_range(opened.pop())

    return begin, end


def _is_ours(module: nn.Module) -> TypeGuard[fx.GraphModule]:
    """Whether generated code is ours: a user's own module may contain generated code, which must not be changed."""
    return isinstance(module, fx.GraphModule) and any(LAYER in node.meta for node in module.graph.nodes)


def _with_ranges(original: fx.Graph) -> fx.Graph:
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    current, opened = "", None
    for node in original.nodes:
        layer = node.meta.get(LAYER, "")
        if layer != current:
            if opened is not None:
                graph.call_function(_end_range, (opened,))
            opened = graph.call_function(_begin_range, (LAYER_RANGE + layer,)) if layer else None
            current = layer
        copies[node] = graph.node_copy(node, lambda argument: copies[argument])
    graph.lint()
    return graph


def _begin_range(name: str) -> record_function:
    opened = record_function(name)
    opened.__enter__()
    return opened


def _end_range(opened: record_function) -> None:
    opened.__exit__(None, None, None)
