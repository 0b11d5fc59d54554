"""Is the backend of an old framework as fast as a training loop written by hand in it? Both in one process, in turns.

    python bench/legacy_loops.py                                     all of them, about two minutes each
    python bench/legacy_loops.py torch@1.1.0 mxnet --rounds 40 --seconds 300 -o result.json

alexnet-owt with batch 32 and two threads. The loops by hand are in bench/idiomatic/legacy/, without any code of
Deepstone; both begin with the same weights on the same batch, and must compute the same losses. They take turns within
each round, the one and the other first; the ratio is taken within a round, with a bootstrap interval over rounds.
`again` is the loop by hand in one round over the same in the round before: the machine's own noise. CPU time (of all
threads) is compared as well: where others use the machine, it says more than time on the clock. A framework that is
not there or fails is told so, and the others go on; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from bench.fidelity import ratio  # noqa: E402
from deepstone.backends.registry import BACKENDS, backend_of  # noqa: E402
from deepstone.environments.environment import Environment  # noqa: E402
from deepstone.environments.find import find_environment  # noqa: E402
from deepstone.errors import DeepstoneError, MissingError  # noqa: E402
from deepstone.graph.weights import cached_weights, parameter_slices, synthetic_batch  # noqa: E402
from deepstone.launchers.local import worker_argv, worker_variables  # noqa: E402
from deepstone.models.zoo import ZOO  # noqa: E402
from deepstone.runner.conversation import PROTOCOL, cache_folder  # noqa: E402
from deepstone.runner.worker_process import WorkerEnded, WorkerProcess  # noqa: E402
from deepstone.setups.axes import AXES  # noqa: E402
from deepstone.supervise import ProcessTimeout  # noqa: E402

WORKERS = {"python": Path(__file__).with_name("legacy_worker.py"), "lua": Path(__file__).with_name("legacy_worker.lua")}
SUFFIXES = {"python": ".py", "lua": ".lua"}
LOOPS = Path(__file__).parent / "idiomatic" / "legacy"

FRAMEWORKS = (
    "torch@1.1.0",
    "tensorflow@1.12.0-intel",
    "tensorflow@1.12.0",
    "tensorflow@1.2.1",
    "mxnet",
    "chainer",
    "chainer@7.8.1-ideep",
    "theano",
    "cntk",
    "caffe",
    "neon",
    "torch7",
)
MODEL, THREADS = "alexnet-owt", 2
FEWEST_ROUNDS = 5
BOUND = 1.10
# How far losses may lie apart, relatively. The first tells that forward is the same, the second gradients and update,
# the third momentum. After that rounding grows too much: at this rate the network jumps about before it settles.
SAME_LOSS = (1e-4, 1e-3, 1e-2)


class LoopFailed(DeepstoneError):
    """The framework is there, and one of the loops did not run or did not compute what the other did."""


class Worker:
    """One process in the framework's environment that has both loops."""

    def __init__(self, process: WorkerProcess, deadline_s: float) -> None:
        self._process = process
        self._deadline_s = deadline_s

    def ask(self, what: str, **content: object) -> dict[str, Any]:
        try:
            self._process.send({"do": what, **content}, deadline_s=self._deadline_s)
            reply = cast(dict[str, Any], self._process.receive(deadline_s=self._deadline_s))
        except ProcessTimeout:
            raise LoopFailed(f"no answer to {what} within the time limit") from None
        except WorkerEnded as gone:
            raise LoopFailed(f"{what}: {gone.ending}; {last_line(self._process.output_tail())}") from None
        if reply["event"] == "failed":
            raise LoopFailed(f"{what}: {reply['outcome']}: {reply['reason']}")
        return reply

    def take_turn(self, way: str, steps: int) -> tuple[float, float]:
        """Seconds on the clock and of all CPUs, per step."""
        if way == "deepstone":
            reply = self.ask("block", samples=steps, steps_per_sample=1)
        else:
            reply = self.ask("by_hand", steps=steps)
        return reply["total_s"] / steps, reply["cpu_used_s"] / steps

    def losses(self) -> dict[str, float]:
        """Of the last step of each."""
        deepstone = self.ask("losses", steps=0)["losses"][-1]
        return {"by hand": float(self.ask("by_hand", steps=0)["loss"]), "deepstone": float(deepstone)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("frameworks", nargs="*", default=FRAMEWORKS, metavar="FRAMEWORK")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=40, help="at most (40)")
    parser.add_argument("--seconds", type=float, default=120.0, help="no round begins after this long (120)")
    parser.add_argument("--round-s", type=float, default=1.0, help="about how long one turn is, or one step (1)")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds after which a framework is given up")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    for wanted in options.frameworks:
        print(f"{wanted} …", file=sys.stderr, flush=True)
        try:
            result = measure(wanted, options)
        except DeepstoneError as error:
            kind = "missing" if isinstance(error, MissingError) else "failed"
            result = {"framework": wanted, kind: str(error)}
        print(json.dumps(result), file=sys.stderr, flush=True)
        results.append(result)
        if options.output:  # after each, so that an interruption loses one at most
            options.output.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))
    return 0 if all("ratio_to_by_hand" in result for result in results) else 1


def measure(wanted: str, options: argparse.Namespace) -> dict[str, Any]:
    if wanted.partition("@")[0] not in {name.partition("@")[0] for name in FRAMEWORKS}:
        raise LoopFailed(f"there is no loop by hand for {wanted}; there is for {', '.join(FRAMEWORKS)}")
    if wanted.partition("@")[0] not in BACKENDS:
        raise MissingError(f"this version of Deepstone has no backend for {wanted}")
    begun_s = time.monotonic()
    environment = find_environment(wanted)
    module = backend_of(environment.framework, environment.version).module
    *_, serve_path, backend = worker_argv(environment.command, environment.framework, environment.version)
    worker_path = WORKERS[environment.language]
    loop = LOOPS / f"{module.rpartition('.')[2]}{SUFFIXES[environment.language]}"
    if not loop.exists():
        raise LoopFailed(f"its backend is {module}, for which there is no loop by hand in {LOOPS.relative_to(ROOT)}")
    with tempfile.TemporaryDirectory(prefix="deepstone-bench-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        for path in (worker_path, loop):  # an environment with a root of its own sees this folder, not ours
            shutil.copy(path, scratch)
        request = the_request(wanted, options.batch)
        process = WorkerProcess.start(
            [*environment.command, str(scratch / worker_path.name), serve_path, backend, str(scratch / loop.name)],
            env=variables(environment, request),
            cwd=scratch,
            output_path=scratch / "output.txt",
        )
        with process:
            worker = Worker(process, begun_s + options.timeout)
            return in_turns(worker, environment, request, scratch, options, begun_s)


def the_request(wanted: str, batch: int) -> dict[str, Any]:
    defaults = {name: axis.default for name, axis in AXES.items()}
    return defaults | {"framework": wanted, "batch": batch, "device": "cpu", "threads": THREADS}


def variables(environment: Environment, request: dict[str, Any]) -> dict[str, str]:
    given = environment.variables_over(os.environ)
    return worker_variables(given, environment.framework, environment.version, request)


def in_turns(
    worker: Worker,
    environment: Environment,
    request: dict[str, Any],
    scratch: Path,
    options: argparse.Namespace,
    begun_s: float,
) -> dict[str, Any]:
    hello = worker.ask("hello", protocol=PROTOCOL, affinity=None)
    task = the_task(request, scratch)
    effective = worker.ask("prepare", **task)["effective"]
    worker.ask("make_by_hand", **task)
    worker.take_turn("by hand", 1)  # the first step of the backend was part of `prepare`
    losses = [worker.losses()]
    ways = ("by hand", "deepstone")
    step_s = math.inf
    for _ in SAME_LOSS[1:]:
        step_s = min(step_s, *(worker.take_turn(way, 1)[0] for way in ways))
        losses.append(worker.losses())
    for number, (both, allowed) in enumerate(zip(losses, SAME_LOSS, strict=True), start=1):
        if not abs(both["by hand"] / both["deepstone"] - 1) <= allowed:
            raise LoopFailed(f"the two do not compute the same: in step {number} their losses are {both}")
    steps = max(1, round(options.round_s / step_s))
    times: dict[str, list[float]] = {way: [] for way in ways}
    cpu_times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(options.rounds):
        late = time.monotonic() > begun_s + options.seconds
        if late and number >= min(FEWEST_ROUNDS, options.rounds):
            break
        for way in ways if number % 2 == 0 else reversed(ways):
            wall_s, cpu_s = worker.take_turn(way, steps)
            times[way].append(wall_s)
            cpu_times[way].append(cpu_s)
    losses.append(worker.losses())
    for way in ways:
        first, last = losses[0][way], losses[-1][way]
        if not math.isfinite(last) or last > first:
            raise LoopFailed(f"the loss {way} went from {first} to {last}")
    return {
        "framework": environment.name,
        "versions": hello["framework"],
        "runtime": hello.get("runtime") or f"Python {hello['python']}",
        "model": MODEL,
        "batch": options.batch,
        "setup": {axis: effective[axis]["value"] for axis in ("precision", "layout", "engine", "compile", "threads")},
        "rounds": len(times["by hand"]),
        "steps_per_round": steps,
        "by_hand_step_s": float(np.median(times["by hand"])),
        "deepstone_step_s": float(np.median(times["deepstone"])),
        "ratio_to_by_hand": ratios(times),
        "cpu_ratio_to_by_hand": ratios(cpu_times),
        "losses": losses,  # of steps 1, 2 and 3, and of the last
        "took_s": time.monotonic() - begun_s,
        "rounds_s": times,
        "rounds_cpu_s": cpu_times,
    }


def the_task(request: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """What `prepare` takes, and `make_by_hand` too."""
    graph = ZOO[MODEL].make()
    batch: dict[str, str] = {}  # as files too, for a worker without NumPy
    for name, array in zip(
        ("samples", "labels"), synthetic_batch(graph, request["batch"], request["seed"]), strict=True
    ):
        batch[name] = str(scratch / f"{name}.npy")
        np.save(batch[name], array)
    return {
        "batch": batch,
        "graph": graph.to_worker_json(),
        "weights": {
            "path": str(cached_weights(graph, request["seed"], cache_folder() / "weights")),
            "slices": parameter_slices(graph),
        },
        "input_shape": list(graph.shapes[graph.input.name]),
        "classes": graph.classes,
        "request": request,
        "scratch": str(scratch),
    }


def ratios(times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    by_hand = times["by hand"]
    found = {"deepstone": ratio(times["deepstone"], by_hand)}
    if len(by_hand) > 1:
        found["again"] = ratio(by_hand[1:], by_hand[:-1])
    return found


def table(results: list[dict[str, Any]]) -> str:
    lines = [
        "| | by hand, a step | deepstone | in CPU time | by hand, again | within 10 % |",
        "|---|---|---|---|---|---|",
    ]
    for result in results:
        if "ratio_to_by_hand" not in result:
            lines.append(f"| {result['framework']} | {result.get('missing') or result.get('failed')} | | | | |")
            continue
        clock, cpu = result["ratio_to_by_hand"], result["cpu_ratio_to_by_hand"]
        cells = [
            f"{result['framework']}, {result['rounds']} rounds",
            f"{result['by_hand_step_s']:.2f} s",
            shown(clock["deepstone"]),
            shown(cpu["deepstone"]),
            shown(clock["again"]) if "again" in clock else "",
            verdict(clock["deepstone"]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def shown(found: dict[str, float]) -> str:
    return f"{found['median']:.3f} ({found['low']:.3f} – {found['high']:.3f})"


def verdict(found: dict[str, float]) -> str:
    """Judged by the interval: where it holds the bound, or rests on too few rounds, neither is shown."""
    if found["n"] < FEWEST_ROUNDS:
        return "not shown"
    if found["high"] <= BOUND:
        return "yes"
    return "no" if found["low"] > BOUND else "not shown"


def last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "it wrote nothing")


if __name__ == "__main__":
    sys.exit(main())
