"""Is a backend as fast as the fastest training loop one would write by hand? Both in one process, in turns.

    python bench/idiomatic_loops.py jax                              CPU: alexnet-owt (batch 32) and resnet50 (batch 8)
    python bench/idiomatic_loops.py torch --device gpu               the same on a GPU, with larger batches
    python bench/idiomatic_loops.py tensorflow --models resnet50 --rounds 40 -o result.json

The loops by hand are in bench/idiomatic/, without any code of Deepstone. Each way runs the same number of steps in each
round, in random order; the ratio is taken within a round, with a bootstrap interval over rounds. `again` is the loop by
hand a second time: the method's own noise. CPU time (of all threads) is compared as well: where others use the machine,
it says more than time on the clock. Started in another Python than the framework's, it finds that by itself.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import platform
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from bench.fidelity import ratio  # noqa: E402
from deepstone.backends.base import Job  # noqa: E402
from deepstone.backends.registry import BACKENDS  # noqa: E402
from deepstone.graph.weights import initial_parameters, synthetic_batch  # noqa: E402
from deepstone.models.zoo import ZOO  # noqa: E402
from deepstone.setups.axes import AXES  # noqa: E402
from deepstone.worker.serve import time_steps  # noqa: E402

Way = Callable[[int], None]  # runs so many steps
Times = dict[str, list[float]]
BATCH = {"cpu": {"alexnet-owt": 32, "resnet50": 8}, "gpu": {"alexnet-owt": 256, "resnet50": 64}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", choices=[name for name in BACKENDS if name != "fake"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument("--models", default="alexnet-owt,resnet50")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--round-s", type=float, default=1.0, help="about how long one way's turn is (1 second)")
    parser.add_argument("--axes", default="", help="more of the request, as in layout=nhwc,engine=xla")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    axes = dict(word.split("=") for word in options.axes.split(",") if word)
    enter(options.framework, options.device, axes)
    results: list[dict[str, Any]] = []
    for model in options.models.split(","):
        results.append(measure(options.framework, model, options.device, options.rounds, options.round_s, axes))
        print(json.dumps(results[-1]), flush=True)
    if options.output:
        options.output.write_text(json.dumps(results, indent=1) + "\n")


def enter(framework: str, device: str, axes: dict[str, str]) -> None:
    """Go on in the framework's own Python, with what its backend needs set before the import."""
    if os.environ.get("DEEPSTONE_BENCH_INSIDE"):
        return
    python, variables = sys.executable, {}
    if importlib.util.find_spec(BACKENDS[framework].package) is None:
        from deepstone.environments.find import find_environment

        environment = find_environment(framework)
        python, variables = str(environment.program), dict(environment.variables)
    needed = BACKENDS[framework].variables(request(framework, 1, device, axes))
    inside = {**os.environ, **variables, **needed, "DEEPSTONE_BENCH_INSIDE": "1"}
    os.execve(python, [python, str(Path(__file__).resolve()), *sys.argv[1:]], inside)


def request(framework: str, batch: int, device: str, axes: dict[str, str]) -> dict[str, Any]:
    place = "cpu" if device == "cpu" else "gpu:0"
    defaults = {name: axis.default for name, axis in AXES.items()}
    return defaults | {"framework": framework, "batch": batch, "device": place} | axes


def whole_steps(step: Callable[[], None], wait: Callable[[], None]) -> Way:
    """From a device that is idle to one that is idle again."""

    def run(count: int) -> None:
        wait()
        for _ in range(count):
            step()
        wait()

    return run


def in_turns(ways: dict[str, Way], rounds: int, round_s: float) -> tuple[int, Times, Times]:
    """Steps per round, and of each way and round the seconds of a step: on the clock, and of all threads."""
    for _ in range(2):
        estimate_s = min(timed(way, 2)[0] for way in ways.values())
    count = max(1, round(round_s / estimate_s))
    times: Times = {name: [] for name in ways}
    cpu_times: Times = {name: [] for name in ways}
    order = random.Random(0)
    for _ in range(rounds):
        for name in order.sample(list(ways), len(ways)):
            wall_s, cpu_s = timed(ways[name], count)
            times[name].append(wall_s)
            cpu_times[name].append(cpu_s)
    return count, times, cpu_times


def measure(
    framework: str, model: str, device: str, rounds: int, round_s: float, axes: dict[str, str]
) -> dict[str, Any]:
    batch = BATCH[device][model]
    graph = ZOO[model].make()
    images, labels = synthetic_batch(graph, batch, 0)
    backend = importlib.import_module(BACKENDS[framework].module).make_backend()
    weights = initial_parameters(graph, 0)
    asked = request(framework, batch, device, axes)
    backend.build(
        Job(graph=graph.to_worker_json(), weights=weights, samples=images, labels=labels, request=asked, scratch="")
    )
    backend.first_step()
    step = backend.step("train")
    by_hand, wait = importlib.import_module(f"bench.idiomatic.{framework}").make(model, batch, images, labels)

    hand_written = whole_steps(by_hand, wait)

    def deepstone(count: int) -> None:
        time_steps(backend, step, count, 1)

    ways = {"by hand": hand_written, "again": hand_written, "deepstone": deepstone}
    count, times, cpu_times = in_turns(ways, rounds, round_s)
    effective = {axis: entry["value"] for axis, entry in backend.observe().items()}
    return {
        "framework": effective["framework"],
        "python": platform.python_version(),
        "model": model,
        "batch": batch,
        "device": device,
        "setup": {axis: effective[axis] for axis in ("precision", "layout", "engine", "compile", "threads")},
        "rounds": rounds,
        "steps_per_round": count,
        "by_hand_step_s": float(np.median(times["by hand"])),
        "deepstone_step_s": float(np.median(times["deepstone"])),
        "ratio_to_by_hand": {name: ratio(times[name], times["by hand"]) for name in ("deepstone", "again")},
        "cpu_ratio_to_by_hand": {name: ratio(cpu_times[name], cpu_times["by hand"]) for name in ("deepstone", "again")},
    }


def timed(way: Callable[[int], None], count: int) -> tuple[float, float]:
    """Seconds on the clock and of all CPUs, per step."""
    wall, cpu = time.perf_counter(), time.process_time()
    way(count)
    return (time.perf_counter() - wall) / count, (time.process_time() - cpu) / count


if __name__ == "__main__":
    main()
