"""Looks whether others use the machine before a job is measured: says so, or waits until they do not.

QuietMachine(begin) ─▶ imports, planning ─▶ before(jobs) ─▶ measure       the first look costs no time of its own
with a limit:   before(jobs) looks for a second, again and again, until nothing is found or the limit is reached
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final, TypeAlias

from deepstone.absent import Absent
from deepstone.errors import BusyMachineError
from deepstone.hardware.gpu import GpuWatch
from deepstone.hardware.noise import Noise
from deepstone.measure.noise import (
    BUSY_GPU_SHARE,
    GpuUse,
    NoiseReading,
    cpu_steal,
    gpu_shared,
    other_load,
    others_share,
)
from deepstone.runner.conversation import variables_of
from deepstone.runner.job import Job

_LOOK_S: Final = 1.0
_SHORTEST_LOOK_S: Final = 0.3  # less tells nothing: the kernel counts in ticks of 10 ms

Say: TypeAlias = Callable[[str], None]


class QuietMachine:
    """One for a command. `wait_s`: before each job wait for a quiet machine, at most so long; None: only say.

    `begin` is a reading of `Noise([])` from as early as possible. No worker of ours may run before the first look.
    """

    def __init__(self, *, begin: NoiseReading | None = None, wait_s: float | None = None) -> None:
        self._noise = Noise([])
        self._begin: NoiseReading | None = begin or self._noise.now()
        self._wait_s = wait_s
        self._said: set[str] = set()

    def before(self, jobs: Sequence[Job], say: Say) -> None:
        """BusyMachineError when there was no quiet moment within the limit."""
        if self._wait_s is None:
            self._tell(jobs, say)
        else:
            self._wait(jobs, say, self._wait_s)

    def _tell(self, jobs: Sequence[Job], say: Say) -> None:
        """Each thing once. The CPU is looked at before the first job only: later our own workers count, too."""
        begin, self._begin = self._begin, None
        found = [] if begin is None else self._load_since(begin)
        found += [doubt.detail for use in _gpus(jobs) if (doubt := gpu_shared((), before=use)) is not None]
        for text in found:
            if text not in self._said:
                say(f"before measuring: {text}")
        self._said.update(found)

    def _wait(self, jobs: Sequence[Job], say: Say, wait_s: float) -> None:
        begin_s, waited = time.monotonic(), False
        while found := "; ".join((*self._load_now(), *_busy(jobs))):
            if time.monotonic() - begin_s >= wait_s:
                raise BusyMachineError(
                    f"the machine did not become quiet within {wait_s:g} s: {found}; end what runs there, wait longer, "
                    "or measure without --wait-until-quiet and with the doubt"
                )
            if not waited:
                say(f"waiting for a quiet machine, {wait_s:g} s at most: {found}")
                waited = True
        if waited:
            say(f"the machine is quiet after {time.monotonic() - begin_s:.0f} s")

    def _load_now(self) -> list[str]:
        begin = self._noise.now()
        time.sleep(_LOOK_S)
        return self._load_since(begin)

    def _load_since(self, begin: NoiseReading) -> list[str]:
        time.sleep(max(0.0, _SHORTEST_LOOK_S - (time.perf_counter() - begin.at_s)))
        end = self._noise.now()
        found = (other_load(begin, end), cpu_steal(begin, end))
        return [doubt.detail for doubt in found if doubt is not None]


def _gpus(jobs: Sequence[Job]) -> list[GpuUse]:
    found: dict[str, GpuUse | Absent] = {}
    for job in jobs:
        device = str(job.request["device"])
        if device not in found:
            with closing(GpuWatch(device, variables_of(job))) as watch:
                found[device] = watch.look()
    return [use for use in found.values() if not isinstance(use, Absent)]


def _busy(jobs: Sequence[Job]) -> list[str]:
    """Only what may end by itself: a process that does nothing may stay for days."""
    shares = [others_share(use) for use in _gpus(jobs)]
    return [f"others keep the GPU {100 * share:.0f} % busy" for share in shares if share > BUSY_GPU_SHARE]
