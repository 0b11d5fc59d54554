"""What asking costs: CPU time of commands that measure nothing, and what a run adds to the framework's own work.

    python bench/startup.py [--no-run]

For `run`, the worker's own work (import, build, steps) is repeated by a bare script; what the controller, the keeper
and the protocol add on top is CPU time of the whole tree less that. While a worker measures, the controller's own CPU
use is read from /proc.
"""

from __future__ import annotations

import importlib.metadata
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
REPEATS = 15
RUNS = 7
# As for a user, whose Python keeps what it has compiled.
VARIABLES = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def main() -> None:
    result: dict[str, Any] = {
        "typer": importlib.metadata.version("typer"),
        "cpu_s": {
            "python -c pass": cpu_s([sys.executable, "-c", "pass"]),
            "deepstone --help": cpu_s([*DEEPSTONE, "--help"]),
            "deepstone models": cpu_s([*DEEPSTONE, "models"]),
            "deepstone axes": cpu_s([*DEEPSTONE, "axes"]),
            "deepstone run --help": cpu_s([*DEEPSTONE, "run", "--help"]),
        },
    }
    if "--no-run" not in sys.argv:
        result["run"] = run_overhead()
    print(json.dumps(result, indent=1))


def cpu_s(command: list[str]) -> dict[str, float]:
    """User and system time, the median of several runs after one that warms the caches."""
    times = [_children_cpu_s(command) for _ in range(REPEATS + 1)][1:]
    return {"median": statistics.median(times), "least": min(times), "most": max(times), "n": len(times)}


def _children_cpu_s(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT, env=VARIABLES)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_overhead() -> dict[str, Any]:
    """CPU time of everything but the worker in ordinary runs; and in a long one, which its budget ends, the
    controller's share of a core while the worker measures."""
    ordinary = [_watched("run", "cifarnet", "batch=32") for _ in range(RUNS)]
    added = [watch.controller_s + watch.keeper_s for watch in ordinary]
    long = _watched("run", "cifarnet", "batch=32", "--budget", "20", "--target", "0.01")
    return {
        "added_cpu_s": {"median": statistics.median(added), "least": min(added), "most": max(added), "n": len(added)},
        "of_it_keeper_s": statistics.median(watch.keeper_s for watch in ordinary),
        "controller_share_while_measuring": long.share,
        "measured_for_s": long.window_s,
    }


def _watched(*words: str) -> _Watch:
    with tempfile.TemporaryDirectory() as store:
        command = [*DEEPSTONE, *words, "--json", "--store", store]
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, **silent, cwd=ROOT, env=VARIABLES)
        watch = _Watch(process.pid)
        watch.start()
        process.wait()
        watch.join()
    return watch


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
