"""What makes the launches of one search start sooner on a GPU, where a start takes longer than the steps.

    standby      workers import their framework while another one builds (runner/standby.py)
    programs     a launch finds what earlier ones compiled: one folder for the search, another for the finals

Compilers try kernels on the GPU and keep the fastest, so a program that is compiled once may be lucky or not for a
whole search. Every finalist is compiled twice: once in the search, once in the first round of the finals. If the two
differ in speed, the answer says so (tuner/doubts.py).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from deepstone.results.tune import LookKind
from deepstone.runner.scratch import scratch_folder
from deepstone.runner.standby import Standby
from deepstone.setups.tuning import DeviceKind


class QuickStarts(Struct, frozen=True, kw_only=True):
    standby: Standby | None = None
    folder: Path | None = None

    @property
    def keeps_programs(self) -> bool:
        return self.folder is not None

    def compile_cache(self, kind: LookKind) -> str:
        """The folder of compiled programs for looks of a kind; empty where frameworks decide."""
        return "" if self.folder is None else str(self.folder / ("finals" if kind == "final" else "search"))

    def settle(self) -> None:
        """Wait until nothing imports. A launch without a worker from here does not do that by itself."""
        if self.standby is not None:
            self.standby.settle()


NO_QUICK_STARTS: Final = QuickStarts()


@contextmanager
def quick_starts(device: DeviceKind, cores: int) -> Generator[QuickStarts, None, None]:
    """Those of one call of a search. On a CPU there are none: whatever imports takes cores from what is timed, and a
    start is short."""
    if device == "cpu":
        yield NO_QUICK_STARTS
        return
    with scratch_folder() as folder, Standby.on(cores) as standby:
        yield QuickStarts(standby=standby, folder=folder)
