"""What asking costs: CPU time of commands that measure nothing, and what a run adds to the framework's own work.

    python bench/startup.py

For `run`, the worker's own work (import, build, steps) is repeated by a bare script; what the controller, the keeper
and the protocol add on top is CPU time of the whole tree less that. While a worker measures, the controller's own CPU
use is read from /proc.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DEEPSTONE = [sys.executable, "-m", "deepstone"]
REPEATS = 7


def main() -> None:
    result: dict[str, Any] = {
        "cpu_s": {
            "python -c pass": cpu_s([sys.executable, "-c", "pass"]),
            "deepstone --help": cpu_s([*DEEPSTONE, "--help"]),
            "deepstone models": cpu_s([*DEEPSTONE, "models"]),
            "deepstone axes": cpu_s([*DEEPSTONE, "axes"]),
        },
        "run": run_overhead(),
    }
    print(json.dumps(result, indent=1))


def cpu_s(command: list[str]) -> dict[str, float]:
    """User and system time, the median of several runs after one that warms the caches."""
    times = [_children_cpu_s(command) for _ in range(REPEATS + 1)][1:]
    return {"median": statistics.median(times), "least": min(times), "most": max(times), "n": len(times)}


def _children_cpu_s(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_overhead() -> dict[str, float]:
    """CPU time of everything but the worker during one real run, and the controller's share of a core meanwhile."""
    with tempfile.TemporaryDirectory() as store:
        command = [*DEEPSTONE, "run", "cifarnet", "batch=32", "--budget", "10", "--target", "0.01", "--json"]
        subprocess.run([*command, "--store", store], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        process = subprocess.Popen([*command, "--store", store], stdout=subprocess.DEVNULL, cwd=ROOT)
        watch = _Watch(process.pid)
        watch.start()
        process.wait()
        watch.join()
    return {
        "controller_cpu_s": watch.controller_s,
        "keeper_cpu_s": watch.keeper_s,
        "added_cpu_s": watch.controller_s + watch.keeper_s,
        "controller_share_while_measuring": watch.share,
        "measured_for_s": watch.window_s,
    }


class _Watch(threading.Thread):
    """Reads the CPU time of the controller and of its keeper from /proc until they end."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self.controller_s = self.keeper_s = self.share = self.window_s = 0.0

    def run(self) -> None:
        readings: list[tuple[float, float]] = []
        while (used := _cpu_of(self._pid)) is not None:
            self.controller_s = used
            readings.append((time.monotonic(), used))
            for child in _children(self._pid):
                self.keeper_s = max(self.keeper_s, _cpu_of(child) or 0.0)
            time.sleep(0.05)
        # The middle of the run is all measuring: start-up lies before it, phases and statistics after it.
        inner = readings[len(readings) // 3 : 2 * len(readings) // 3]
        if len(inner) > 1:
            self.window_s = inner[-1][0] - inner[0][0]
            self.share = (inner[-1][1] - inner[0][1]) / self.window_s


def _cpu_of(pid: int) -> float | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] == "Z":
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


if __name__ == "__main__":
    main()
