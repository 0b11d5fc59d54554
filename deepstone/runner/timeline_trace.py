"""Traced steps of several processes as a trace for Chrome and Perfetto: a track for each rank, all by one clock.

rank 0 on a   1 computing   ├────────────────── step 1 ─────────────────┤
                            ├ forward ┼─ backward ─┤ waiting ┤   update ┤
              2 reduce             ├── bucket 1 ──┤
                                       ├── bucket 2 ───────────┤          on a line of its own if it overlaps
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from deepstone.runner.timeline import StepOfJob, WorkerSpan, with_waiting
from deepstone.trace.events import Event

_COMPUTING: Final = "1 computing"
_CATEGORIES: Final = {
    "waiting": "waiting",
    "buffers": "communication",
    "pack": "communication",
    "reduce": "communication",
    "unpack": "communication",
}


def trace_events(steps: Sequence[StepOfJob], hosts: Sequence[str]) -> list[Event]:
    """`hosts`: that of every rank."""
    names = [f"rank {rank} on {host}" if host else f"rank {rank}" for rank, host in enumerate(hosts)]
    found: list[Event] = []
    for number, step in enumerate(steps, start=1):
        for process, rank, spans in zip(names, step, with_waiting(step), strict=True):
            found.append(_event(process, _COMPUTING, f"step {number}", "step", rank.begin_s, rank.end_s))
            found += _computing(process, spans)
            found += _reductions(process, spans)
    return found


def _computing(process: str, spans: Sequence[WorkerSpan]) -> Iterator[Event]:
    for kind, begin_s, end_s, _ in spans:
        if kind != "reduce":
            yield _event(process, _COMPUTING, kind, _CATEGORIES.get(kind, "computing"), begin_s, end_s)


def _reductions(process: str, spans: Sequence[WorkerSpan]) -> Iterator[Event]:
    """Events of one line must not overlap, so a bucket takes the first line that is free."""
    free_s: list[float] = []
    buckets = (span for span in spans if span[0] == "reduce")
    for number, (_, begin_s, end_s, size) in enumerate(buckets, start=1):
        line = next((at for at, until_s in enumerate(free_s) if until_s <= begin_s), len(free_s))
        free_s[line : line + 1] = [end_s]
        thread, name = f"{line + 2} reduce", f"bucket {number}"
        yield _event(process, thread, name, "communication", begin_s, end_s, bytes=size)


def _event(process: str, thread: str, name: str, category: str, begin_s: float, end_s: float, **args: int) -> Event:
    return Event(
        name=name,
        category=category,
        thread=thread,
        start_s=begin_s,
        duration_s=end_s - begin_s,
        process=process,
        args=args,
    )
