"""Reads the profile of JAX or TensorFlow: its events, and the kernels of a step.

On a GPU, kernels are the work of its streams. On a CPU they are XLA's instructions. An instruction runs in the thread
that calls it, and in the pool's threads to which it passes work:

    thread 1   ▓▓conv.1▓▓ ▓▓▓▓▓dot.2▓▓▓▓▓       conv.1 passes work to the pool and continues
                  ┆ Record 7
    thread 2          ┆StartRegion 7 ▓▓▓▓▓▓ StopRegion┆      belongs to conv.1 too
    conv.1        ▓▓▓▓  ▓▓▓▓▓▓▓▓▓▓▓▓▓           without the time between, in which it may wait for a thread

Of nested events the innermost counts. Time inside the executor of instructions, or outside of all, has no owner.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from deepstone.backends.base import Unsupported

_DEVICE_PLANE = "/device:GPU"
_STREAM = re.compile(r"Stream\b")  # the other lines of a device's plane are derived from these
_COPY = re.compile(r"Mem(cpy|set)|memcpy|memset")
_CALL = re.compile(r"cu(da)?[A-Z]\w+$")
_RECORD, _START, _STOP = (f"ThreadpoolListener::{what}" for what in ("Record", "StartRegion", "StopRegion"))
_EXECUTOR = "ThunkExecutor::Execute"
_END, _POINT, _BEGIN = range(3)  # the order of events at the same moment


@dataclass(frozen=True, kw_only=True, slots=True)
class Traced:
    """One event of a profile. Its clock is the profile's own."""

    plane: str
    line: str
    name: str
    start_s: float
    end_s: float
    stats: Mapping[str, Any]

    @property
    def on_device(self) -> bool:
        return self.plane.startswith(_DEVICE_PLANE) and _STREAM.match(self.line) is not None

    @property
    def is_copy(self) -> bool:
        return _COPY.search(self.name) is not None


def profile_files(folder: str, framework: str) -> list[Path]:
    """Return the files that the framework's profiler has written."""
    files = list(Path(folder).rglob("*.xplane.pb"))
    if not files:
        raise Unsupported(f"{framework}'s profiler left no profile")
    return files


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
    """A period in which one piece of work ran. On a CPU, one piece may run on several threads and have several
    periods."""

    number: int  # the same for all periods of one piece of work
    name: str
    instruction: str  # empty if the profile does not have it
    run: int | None  # the run of the program, if the profile has it
    kind: str  # "kernel" or "copy"
    thread: str
    start_s: float
    end_s: float
    correlation: int | None = None  # with the call that launched it


def kernels_of_xla(events: Sequence[Traced]) -> list[Kernel]:
    """Return the kernels of the GPU or, without one, the instructions that XLA ran on the CPU."""
    on_device = [_on_device(number, event) for number, event in enumerate(events) if event.on_device]
    return on_device or _on_cpu(events)


def _on_device(number: int, event: Traced) -> Kernel:
    return Kernel(
        number=number,
        name=event.name,
        instruction=str(event.stats.get("hlo_op", "")),
        run=None,
        kind="copy" if event.is_copy else "kernel",
        thread=event.line,
        start_s=event.start_s,
        end_s=event.end_s,
        correlation=event.stats.get("correlation_id"),
    )


def _on_cpu(events: Sequence[Traced]) -> list[Kernel]:
    kernels: list[Kernel] = []
    for piece in _pieces(events):
        stats = piece.event.stats
        run = stats.get("run_id", -1)
        kernels.append(
            Kernel(
                number=id(piece.event),
                name=piece.event.name,
                instruction=str(stats["hlo_op"]),
                run=None if run == -1 else int(run),
                kind="kernel",
                thread=piece.line,
                start_s=piece.start_s,
                end_s=piece.end_s,
            )
        )
    return kernels


def calls_of_cuda(events: Iterable[Traced]) -> list[Traced]:
    """Return the calls of CUDA's driver or runtime, if the profile has them."""
    return [event for event in events if not event.on_device and _CALL.match(event.name)]


def step_windows(kernels: Iterable[Kernel], runs: int) -> list[tuple[float, float]]:
    """Return windows from the end of each run of a program to the end of the next, so that no time is lost.

    The profile names the run of each kernel, or all runs have equally many kernels. Empty if neither is true.
    """
    ordered = sorted(kernels, key=lambda kernel: kernel.start_s)
    ends_s: dict[int, float] = {}
    if all(kernel.run is not None for kernel in ordered):
        for kernel in ordered:
            assert kernel.run is not None
            ends_s[kernel.run] = max(ends_s.get(kernel.run, kernel.end_s), kernel.end_s)
    elif len(ordered) % runs == 0:
        for number, kernel in enumerate(ordered):
            run = number // (len(ordered) // runs)
            ends_s[run] = max(ends_s.get(run, kernel.end_s), kernel.end_s)
    return list(pairwise(sorted(ends_s.values()))) if len(ends_s) == runs else []


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """A period in which a thread worked for one instruction, which may have several."""

    event: Traced  # the instruction's call
    line: str
    start_s: float
    end_s: float


class _Line:
    """The state of one thread: the innermost running event, and its start."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: list[tuple[object, Traced | None]] = []
        self._since_s = 0.0

    @property
    def current(self) -> Traced | None:
        return self._open[-1][1] if self._open else None

    def begin(self, key: object, owner: Traced | None, moment_s: float) -> Iterator[_Piece]:
        yield from self._until(moment_s)
        self._open.append((key, owner))

    def end(self, key: object, moment_s: float) -> Iterator[_Piece]:
        yield from self._until(moment_s)
        self._open = [(other, owner) for other, owner in self._open if other != key]

    def _until(self, moment_s: float) -> Iterator[_Piece]:
        if self.current is not None and moment_s > self._since_s:
            yield _Piece(event=self.current, line=self._name, start_s=self._since_s, end_s=moment_s)
        self._since_s = moment_s


def _pieces(events: Iterable[Traced]) -> list[_Piece]:
    """Return the periods from all events of a CPU profile."""
    found: list[_Piece] = []
    lines: dict[tuple[str, str], _Line] = {}
    handed_over: dict[object, Traced | None] = {}  # by the number of the record
    for moment_s, _, event in sorted(_moments(events), key=lambda moment: moment[:2]):
        line = lines.setdefault((event.plane, event.line), _Line(event.line))
        if event.name == _RECORD:
            handed_over[event.stats.get("_p")] = line.current
        elif event.name == _START:
            found += line.begin(_START, handed_over.pop(event.stats.get("_c"), None), moment_s)
        elif event.name == _STOP:
            found += line.end(_START, moment_s)
        elif moment_s == event.start_s:
            found += line.begin(id(event), None if event.name == _EXECUTOR else event, moment_s)
        else:
            found += line.end(id(event), moment_s)
    return found


def _moments(events: Iterable[Traced]) -> Iterator[tuple[float, int, Traced]]:
    for event in events:
        if event.name in (_RECORD, _START, _STOP):
            yield event.start_s, {_RECORD: _POINT, _START: _BEGIN, _STOP: _END}[event.name], event
        elif (event.name == _EXECUTOR or "hlo_op" in event.stats) and event.end_s > event.start_s:
            yield event.start_s, _BEGIN, event
            yield event.end_s, _END, event
