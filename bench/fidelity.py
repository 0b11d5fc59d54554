"""Does Deepstone measure what a bare loop measures? Both, and timm's way, on one model object in one process, in turns.

    python bench/fidelity.py                         CPU: resnet50 (batch 1) and cifarnet (batch 8)
    python bench/fidelity.py --device gpu            the same on a GPU (resnet50 with batch 64)
    python bench/fidelity.py --fresh 8               deepstone run against bench/hand_written.py, in fresh processes

The ways: `bare`, a hand-written loop timed from outside; `worker`, the loop of worker/serve.py, as a whole and as the
median of its samples, which is what a record says; `timm`, the method of timm's benchmark.py: wait for the device after
every step, average. All run the same step on the same weights, in random order within each round. Ratios are to
`bare` of the same round, with a bootstrap interval over rounds. `again` is bare a second time: the method's own noise.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

ROUNDS = 120


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument("--fresh", type=int, default=0, metavar="PAIRS")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--round-s", type=float, help="length of a way's turn (CPU 0.05, GPU 0.3: filling it takes time)"
    )
    parser.add_argument("--models", default="resnet50,cifarnet")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    for model in options.models.split(","):
        batch = 8 if model == "cifarnet" else 64 if options.device == "gpu" else 1
        if options.fresh:
            results.append(fresh_processes(model, batch, options.device, options.fresh))
        else:
            round_s = options.round_s or (0.3 if options.device == "gpu" else 0.05)
            results.append(one_process(model, batch, options.device, options.rounds, round_s))
        print(json.dumps(results[-1]), flush=True)
    if options.output:
        options.output.write_text(json.dumps(results, indent=1) + "\n")


def one_process(model: str, batch: int, device: str, rounds: int, round_s: float) -> dict[str, Any]:
    import torch

    from deepstone.backends.base import Job
    from deepstone.backends.torch.backend import TorchBackend
    from deepstone.graph.weights import initial_parameters, synthetic_batch
    from deepstone.models.zoo import ZOO
    from deepstone.setups.axes import AXES
    from deepstone.worker.serve import time_steps

    graph = ZOO[model].make()
    images, labels = synthetic_batch(graph, batch, 0)
    request = {name: axis.default for name, axis in AXES.items()}
    request |= {"batch": batch, "device": "cpu" if device == "cpu" else "gpu:0", "precision": "fp32"}
    backend = TorchBackend()
    weights = initial_parameters(graph, 0)
    backend.build(
        Job(graph=graph.to_worker_json(), weights=weights, samples=images, labels=labels, request=request, scratch="")
    )
    backend.first_step()
    step = backend.step("train")

    # The same objects, driven by hand.
    steps = backend._steps
    network, optimizer = steps._model, steps._optimizer
    image_tensor, label_tensor = steps._batch.get()
    on_gpu = device == "gpu"

    def by_hand() -> None:
        optimizer.zero_grad()
        loss = network(image_tensor, label_tensor)
        loss.backward()
        optimizer.step()

    def wait() -> None:
        if on_gpu:
            torch.cuda.synchronize()

    def bare(count: int) -> float:
        wait()
        begin = time.perf_counter()
        for _ in range(count):
            by_hand()
        wait()
        return (time.perf_counter() - begin) / count

    def timm(count: int) -> float:
        wait()
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            by_hand()
            wait()
            times.append(time.perf_counter() - begin)
        return statistics.fmean(times)

    for _ in range(3):
        estimate_s = bare(5)
    shortest_s = 4e-3 if on_gpu else 1e-3
    per_sample = max(1, int(np.ceil(shortest_s / estimate_s)))
    count = max(1, round(round_s / estimate_s / per_sample)) * per_sample
    reported: list[float] = []

    def worker(count: int) -> float:
        block = time_steps(backend, step, count // per_sample, per_sample)
        reported.append(float(np.median(block["step_s"])))
        return block["total_s"] / count

    ways: dict[str, Callable[[int], float]] = {"bare": bare, "again": bare, "worker": worker, "timm": timm}
    times: dict[str, list[float]] = {name: [] for name in ways}
    order = random.Random(0)
    bare(count)  # warm
    for _ in range(rounds):
        for name in order.sample(list(ways), len(ways)):
            times[name].append(ways[name](count))
    times["worker, as reported"] = reported[-rounds:]
    return {
        "model": model,
        "batch": batch,
        "device": device,
        "torch": torch.__version__,
        "loop_cost_s": loop_cost_s(time_steps),
        "rounds": rounds,
        "steps_per_round": count,
        "bare_step_s": float(np.median(times["bare"])),
        "ratio_to_bare": {name: ratio(times[name], times["bare"]) for name in times if name != "bare"},
    }


def loop_cost_s(time_steps: Callable[..., dict[str, Any]]) -> float:
    """What the worker's loop itself takes per step, on the CPU: the loop around a step that does nothing."""
    from deepstone.backends.base import Backend

    return min(time_steps(Backend(), lambda: None, 20_000, 1)["total_s"] for _ in range(5)) / 20_000


def ratio(values: list[float], base: list[float]) -> dict[str, float]:
    """The median over rounds of value / base, with a 95 % bootstrap interval over rounds."""
    return over_rounds(np.array(values) / np.array(base))


def difference(values: list[float], base: list[float]) -> dict[str, float]:
    """As `ratio`, of value - base."""
    return over_rounds(np.array(values) - np.array(base))


def over_rounds(values: Any) -> dict[str, float]:
    random_numbers = np.random.default_rng(0)
    draws = np.median(random_numbers.choice(values, size=(4000, len(values))), axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return {"median": float(np.median(values)), "low": float(low), "high": float(high), "n": len(values)}


def fresh_processes(model: str, batch: int, device: str, pairs: int) -> dict[str, Any]:
    """`deepstone run` against the hand-written loop, each in a process of its own, order alternating."""
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(pairs):
        sides = [(_deepstone, ours), (_hand_written, theirs)]
        for measure, kept in sides if number % 2 == 0 else reversed(sides):
            kept.append(measure(model, batch, device))
    return {
        "model": model,
        "batch": batch,
        "device": device,
        "pairs": pairs,
        "hand_written_step_s": {"median": float(np.median(theirs)), "spread": spread(theirs)},
        "deepstone_step_s": {"median": float(np.median(ours)), "spread": spread(ours)},
        "ratio_to_hand_written": ratio(ours, theirs),
    }


def spread(values: list[float]) -> float:
    """(largest - smallest) / median: what launches differ by."""
    return float((max(values) - min(values)) / np.median(values))


def _deepstone(model: str, batch: int, device: str) -> float:
    command = [sys.executable, "-m", "deepstone", "run", model, f"batch={batch}", f"device={device}"]
    command += ["precision=fp32", "--budget", "8", "--json", "--store", "/tmp/deepstone-fidelity"]
    record = json.loads(subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout)
    return record["summary"]["step_s"]["median"]


def _hand_written(model: str, batch: int, device: str) -> float:
    command = [sys.executable, str(ROOT / "bench" / "hand_written.py"), model, "--batch", str(batch)]
    command += ["--device", "cuda" if device == "gpu" else "cpu"]
    output = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return batch / float(np.median(output["images_per_s"]))


if __name__ == "__main__":
    main()
