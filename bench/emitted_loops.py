"""Is a script of `tune --emit` as fast as the step that was measured? Both in one process, in turns.

    python bench/emitted_loops.py torch --axes layout=nhwc,precision=bf16-mixed          CPU: alexnet-owt, batch 8
    python bench/emitted_loops.py jax --rounds 40 -o result.json
    python bench/emitted_loops.py torch --device gpu --model resnet50 --batch 256 --axes precision=bf16-mixed

The script is written by Deepstone and loaded as a module: the network is the one that it prints, which has no code of
Deepstone. Its weights are its own random ones. Each way runs the same number of steps in each round, in
random order; the ratio is taken within a round, with a bootstrap interval over rounds. `again` is Deepstone's step a
second time: the method's own noise. CPU time is compared as well: where others use the machine, it says more.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from bench.fidelity import ratio  # noqa: E402
from bench.idiomatic_loops import in_turns, request, whole_steps  # noqa: E402
from deepstone.backends.base import Job  # noqa: E402
from deepstone.backends.registry import BACKENDS  # noqa: E402
from deepstone.graph.weights import initial_parameters, synthetic_batch  # noqa: E402
from deepstone.models.zoo import ZOO  # noqa: E402
from deepstone.worker.serve import time_steps  # noqa: E402

INSIDE = "DEEPSTONE_BENCH_SCRIPT"  # the emitted script, for the process of the framework


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", choices=["torch", "jax", "tensorflow"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument("--model", default="alexnet-owt")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--round-s", type=float, default=1.0, help="about how long one way's turn is (1 second)")
    parser.add_argument("--axes", default="", help="more of the request, as in layout=nhwc,accumulate=2")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    axes: dict[str, Any] = dict(word.split("=") for word in options.axes.split(",") if word)
    axes = {name: int(value) if value.isdigit() else value for name, value in axes.items()}
    asked = request(options.framework, options.batch, options.device, axes)
    if INSIDE not in os.environ:
        enter(options.framework, options.model, asked)
    result = measure(options.framework, options.model, asked, options.rounds, options.round_s)
    result["axes"] = axes
    print(json.dumps(result), flush=True)
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def enter(framework: str, model: str, asked: dict[str, Any]) -> None:
    """Write the script, and go on in the framework's own Python."""
    from deepstone.environments.find import find_environment
    from deepstone.exchange.load import load_model
    from deepstone.runner.job import Machine
    from deepstone.runner.new_job import make_job
    from deepstone.tuner.emit import emit

    environment = find_environment(framework)
    job = make_job(load_model(model), asked, Machine.here(), ("deepstone",), environment=environment)
    path = Path(tempfile.mkdtemp()) / "emitted.py"
    path.write_text(emit(job, "To be compared with Deepstone's own step."))
    needed = BACKENDS[framework].variables(asked)
    inside = {**os.environ, **environment.variables, **needed, INSIDE: str(path)}
    python = environment.command[0]
    os.execve(python, [*environment.command, str(Path(__file__).resolve()), *sys.argv[1:]], inside)


def measure(framework: str, model: str, asked: dict[str, Any], rounds: int, round_s: float) -> dict[str, Any]:
    script = loaded(Path(os.environ[INSIDE]))
    graph = ZOO[model].make()
    images, labels = synthetic_batch(graph, asked["batch"], 0)
    by_script, wait = EMITTED[framework](script, images, labels, asked)
    backend = importlib.import_module(BACKENDS[framework].module).make_backend()
    weights = initial_parameters(graph, 0)
    backend.build(
        Job(graph=graph.to_worker_json(), weights=weights, samples=images, labels=labels, request=asked, scratch="")
    )
    backend.first_step()
    step = backend.step("train")

    def deepstone(count: int) -> None:
        time_steps(backend, step, count, 1)

    ways = {"deepstone": deepstone, "again": deepstone, "emitted": whole_steps(by_script, wait)}
    count, times, cpu_times = in_turns(ways, rounds, round_s)
    return {
        "framework": framework,
        "model": model,
        "batch": asked["batch"],
        "rounds": rounds,
        "steps_per_round": count,
        "deepstone_step_s": float(np.median(times["deepstone"])),
        "ratio_to_deepstone": {name: ratio(times[name], times["deepstone"]) for name in ("emitted", "again")},
        "cpu_ratio_to_deepstone": {
            name: ratio(cpu_times[name], cpu_times["deepstone"]) for name in ("emitted", "again")
        },
    }


def loaded(path: Path) -> ModuleType:
    """Its switches are set by this, before our backend sets the same ones."""
    spec = importlib.util.spec_from_file_location("emitted", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


Step = tuple[Callable[[], Any], Callable[[], Any]]  # a step that does not wait, and the wait


def in_torch(script: Any, images: Any, labels: Any, asked: dict[str, Any]) -> Step:
    import torch

    step = script.make_step(script.make_model())
    batch = script.place(torch.from_numpy(images), torch.from_numpy(labels))
    return lambda: step(*batch), torch.cuda.synchronize if torch.cuda.is_available() else lambda: None


def in_jax(script: Any, images: Any, labels: Any, asked: dict[str, Any]) -> Step:
    import jax

    step = script.make_step(script.init_network(np.random.default_rng(0)))
    batch = script.place(_in_order(images, asked), labels)
    return lambda: step(*batch), lambda: jax.block_until_ready(step.state)


def in_tensorflow(script: Any, images: Any, labels: Any, asked: dict[str, Any]) -> Step:
    batch = script.place(_in_order(images, asked), labels)
    step, last = script.make_step(script.Network()), []

    def one() -> None:
        last[:] = [step(*batch)]

    return one, lambda: [loss.numpy() for loss in last]


def _in_order(images: Any, asked: dict[str, Any]) -> Any:
    return images if asked["layout"] == "nchw" else np.ascontiguousarray(images.transpose(0, 2, 3, 1))


EMITTED: dict[str, Callable[..., Step]] = {"torch": in_torch, "jax": in_jax, "tensorflow": in_tensorflow}

if __name__ == "__main__":
    main()
