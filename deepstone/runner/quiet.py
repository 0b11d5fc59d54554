"""Checks whether others use the machine before a job is measured; reports it, or waits until they stop.

QuietMachine(begin) ─▶ imports, planning ─▶ before(jobs) ─▶ measure       the first check takes no extra time
with a limit:   before(jobs) checks for a second, again and again, until nothing is found or the limit is reached
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final, TypeAlias

from deepstone.absent import Absent
from deepstone.errors import BusyMachineError
from deepstone.hardware.gpu import GpuMonitor
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

_CHECK_S: Final = 1.0
_SHORTEST_CHECK_S: Final = 0.3  # the kernel counts in ticks of 10 ms

Say: TypeAlias = Callable[[str], None]


class QuietMachine:
    """One instance per command. `wait_s`: the longest wait for a quiet machine before each job; None: only report.

    `begin` is a reading of `Noise([])` from as early as possible. No worker of ours may run before the first check.
    """

    def __init__(self, *, begin: NoiseReading | None = None, wait_s: float | None = None) -> None:
        self._noise = Noise([])
        self._begin: NoiseReading | None = begin or self._noise.now()
        self._wait_s = wait_s
        self._reported: set[str] = set()

    def before(self, jobs: Sequence[Job], say: Say) -> None:
        """Raises BusyMachineError if there was no quiet moment within the limit."""
        if self._wait_s is None:
            self._report(jobs, say)
        else:
            self._wait(jobs, say, self._wait_s)

    def _report(self, jobs: Sequence[Job], say: Say) -> None:
        """Report each finding once. Check the CPU only before the first job: later our own workers would count too."""
        begin, self._begin = self._begin, None
        found = [] if begin is None else self._load_since(begin)
        found += [doubt.detail for use in _gpus(jobs) if (doubt := gpu_shared((), before=use)) is not None]
        for text in found:
            if text not in self._reported:
                say(f"before measuring: {text}")
        self._reported.update(found)

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
        time.sleep(_CHECK_S)
        return self._load_since(begin)

    def _load_since(self, begin: NoiseReading) -> list[str]:
        time.sleep(max(0.0, _SHORTEST_CHECK_S - (time.perf_counter() - begin.at_s)))
        end = self._noise.now()
        found = (other_load(begin, end), cpu_steal(begin, end))
        return [doubt.detail for doubt in found if doubt is not None]


def _gpus(jobs: Sequence[Job]) -> list[GpuUse]:
    found: dict[str, GpuUse | Absent] = {}
    for job in jobs:
        device = str(job.request["device"])
        if device not in found:
            with closing(GpuMonitor(device, variables_of(job))) as monitor:
                found[device] = monitor.use_by_others()
    return [use for use in found.values() if not isinstance(use, Absent)]


def _busy(jobs: Sequence[Job]) -> list[str]:
    """Return only load that may end soon: an idle process may stay for days."""
    shares = [others_share(use) for use in _gpus(jobs)]
    return [f"others keep the GPU {100 * share:.0f} % busy" for share in shares if share > BUSY_GPU_SHARE]
