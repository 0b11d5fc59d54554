"""The work of a step as a profile tells it: a GPU's kernels, or on a CPU what XLA or TensorFlow ran."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from deepstone.backends.cpu_threads import pieces
from deepstone.backends.traced import Traced

_CALL = re.compile(r"cu(da)?[A-Z]\w+$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
    """A time in which one piece of work ran. On a CPU one may run on several threads, and be several of these."""

    number: int  # the same for all that are one piece of work
    name: str
    instruction: str  # what it was run for; empty if the profile does not tell
    run: int | None  # the run of the program that it was part of, if the profile tells
    kind: str  # "kernel" or "copy"
    thread: str
    start_s: float
    end_s: float
    correlation: int | None = None  # with the call that launched it


def kernels_of_xla(events: Sequence[Traced]) -> list[Kernel]:
    """What ran on the GPU or, without one, the instructions that XLA ran on the CPU."""
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
    for piece in pieces(events):
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
    """Calls of CUDA's driver or runtime, if the profile has them."""
    return [event for event in events if not event.on_device and _CALL.match(event.name)]


def step_windows(kernels: Iterable[Kernel], runs: int) -> list[tuple[float, float]]:
    """From the end of each run of a program to the end of the next, so that what lies between two is not lost.

    Which kernel belongs to which run the profile tells, or else it follows from all runs having equally many. Empty
    where neither is so.
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
