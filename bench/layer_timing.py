"""What does timing every layer cost? Plain steps, ours, torch.profiler and DeepSpeed's, on one network, in turns.

    python bench/layer_timing.py                                  CPU: resnet50, batch 4
    python bench/layer_timing.py --device gpu --rounds 12         on a GPU: resnet50, batch 64
    PYTHONPATH=FOLDER python bench/layer_timing.py                with deepspeed in FOLDER; else it is left out
    python bench/layer_timing.py --image 32 --rounds 300          the same layers on tiny images: see below

Each way runs the same number of steps in each round, in random order. The ratio is to plain steps of the same round,
with a bootstrap interval over rounds; `again` is plain a second time. A way's time is all that it takes, setting up and
reading back included, on the clock and of all CPUs: where others use the machine, the latter says more. Of ours,
`marked_steps` are the steps alone, and `explained` is the sum of all parts that were measured in them.

Timing a layer takes the same few microseconds however long the layer runs. On tiny images they show where the steps of
real ones, which vary by more than that from one to the next, hide them: `cost_s` is marked minus plain step.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

import torch  # noqa: E402

from bench.fidelity import difference, ratio  # noqa: E402
from deepstone.backends.base import Job  # noqa: E402
from deepstone.backends.torch.backend import TorchBackend  # noqa: E402
from deepstone.graph.graph import Graph  # noqa: E402
from deepstone.graph.weights import initial_parameters, synthetic_batch  # noqa: E402
from deepstone.models.zoo import ZOO  # noqa: E402
from deepstone.setups.axes import AXES  # noqa: E402

BATCH = {"cpu": 4, "gpu": 64}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=3, help="of each way in each round")
    parser.add_argument("--image", type=int, help="side of the images, instead of the network's own")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    graph = with_images(ZOO[options.model].make(), options.image)
    batch = options.batch or BATCH[options.device]
    result = measure(graph, batch, options.device, options.precision, options.rounds, options.steps)
    print(json.dumps(result, indent=1))
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def with_images(graph: Graph, side: int | None) -> Graph:
    if side is None:
        return graph
    described = graph.to_json()
    described["layers"][0]["shape"][1:] = [side, side]
    return Graph.from_json(described)


def measure(graph: Graph, batch: int, device: str, precision: str, rounds: int, steps: int) -> dict[str, Any]:
    backend = built(graph, batch, device, precision)
    step = backend.step("train")
    marked: list[float] = []
    explained: list[float] = []

    def plain() -> None:
        for _ in range(steps):
            step()
        backend.synchronize()

    def ours() -> None:
        found = backend.in_place(steps)
        marked.append(median(account.total_s for account in found.steps))
        explained.append(median(parts_s(account) for account in found.steps))

    def with_torch_profiler() -> None:
        activities = [torch.profiler.ProfilerActivity.CPU]
        activities += [torch.profiler.ProfilerActivity.CUDA] if device == "gpu" else []
        with torch.profiler.profile(activities=activities, with_modules=True):
            plain()

    ways: dict[str, Callable[[], None]] = {"plain": plain, "again": plain, "deepstone": ours}
    ways["torch.profiler"] = with_torch_profiler
    if importlib.util.find_spec("deepspeed"):
        ways["deepspeed"] = with_deepspeed(backend, step, steps)
    for way in ways.values():
        way()
    marked.clear()
    explained.clear()
    times: dict[str, list[float]] = {name: [] for name in ways}
    cpu_times: dict[str, list[float]] = {name: [] for name in ways}
    order = random.Random(0)
    for _ in range(rounds):
        for name in order.sample(list(ways), len(ways)):
            backend.synchronize()
            begin, cpu_begin = time.perf_counter(), time.process_time()
            ways[name]()
            backend.synchronize()
            times[name].append((time.perf_counter() - begin) / steps)
            cpu_times[name].append((time.process_time() - cpu_begin) / steps)
    return {
        "model": graph.name,
        "image": graph.to_json()["layers"][0]["shape"],
        "batch": batch,
        "device": torch.cuda.get_device_name() if device == "gpu" else platform.processor() or "cpu",
        "torch": torch.__version__,
        "precision": precision,
        "rounds": rounds,
        "steps_per_round": steps,
        "plain_step_s": median(times["plain"]),
        "ratio_to_plain": {name: ratio(times[name], times["plain"]) for name in ways if name != "plain"},
        "cpu_ratio_to_plain": {name: ratio(cpu_times[name], cpu_times["plain"]) for name in ways if name != "plain"},
        "marked_steps": ratio(marked, times["plain"]),
        "explained": ratio(explained, times["plain"]),
        "cost_s": difference(marked, times["plain"]),
    }


def parts_s(account: Any) -> float:
    layers, other = sum(account.layers.values()), sum(account.other.values())
    return layers + account.data_s + account.update_s + account.gaps_s + other


def built(graph: Graph, batch: int, device: str, precision: str) -> TorchBackend:
    images, labels = synthetic_batch(graph, batch, 0)
    request = {name: axis.default for name, axis in AXES.items()}
    request |= {"batch": batch, "device": "cpu" if device == "cpu" else "gpu:0", "precision": precision}
    backend = TorchBackend()
    weights = initial_parameters(graph, 0)
    backend.build(
        Job(graph=graph.to_worker_json(), weights=weights, samples=images, labels=labels, request=request, scratch="")
    )
    backend.first_step()
    return backend


def with_deepspeed(backend: TorchBackend, step: Callable[[], None], steps: int) -> Callable[[], None]:
    """Its profiler's own way: hooks on every module and patched functions, forward alone; backward is its guess."""
    from deepspeed.profiling.flops_profiler import FlopsProfiler

    def profiled() -> None:
        profiler = FlopsProfiler(backend._network)
        profiler.start_profile()
        for _ in range(steps):
            step()
        backend.synchronize()
        profiler.stop_profile()
        profiler.end_profile()

    return profiled


if __name__ == "__main__":
    main()
