"""Plays a script: how long steps take, how they vary, which fault happens when. Tests do not wait for its clock.

The script is JSON in DEEPSTONE_FAKE; every key is optional:

    step_s        seconds of a steady step (0.01)          sleep     really sleep that long as well (false)
    claims        with sleep: how much of it the clock shows (1.0), so that a clock can be wrong
    clock         with sleep: {"offset_s": 0, "drift": 0}: real time as the clock of another machine shows it
    warmup        factors of the first steps ([5, 2])      drift     relative change per step (0)
    noise         relative standard deviation (0.01)       launch_noise   the same, drawn once per process (0)
    seed          of all noise (the process's number)      launches  a file in which the processes count themselves, so
                  that each has noise of its own and a run of all of them can be repeated
    phases        factor of step_s for steps with a timestamp after each phase (1.0)
    one_program   true: phases only by difference          programs  factor of step_s for forward, gradient, train
    effective     overrides of what is observed            loss      the first (1.0), then falling; "nan" diverges
    later         further overrides, from the second step on ({})
    updates       how many are made before they stop (all) update_size   how far one goes (1.0)
    details       what else the first step showed ({})
    gpus          how many it finds; a process that would take another one is refused
    timeline      of a step in a group: {"train" | "local" | "pack": [[kind, begin, end, bytes], …]}, in seconds from
                  its begin; {"absent": reason}: not told (what `programs` says, as a tail)
    logged        {name: seconds} that the framework itself logs of a step in a group ({}: none)
    ranks         {"1": {…}} more keys for one process of a group       world     how many it finds there (all)
    library       what moves data between processes, as it names itself ("")
    by            {"axis=value": {…}} more keys when the request has that value; "a=x b=y": when it has both
    faster        divides step_s (1.0); several from `by` multiply
    layers        {"NAME": [forward, backward]} shares of step_s; {"absent": reason}: not timed in place (equal shares)
    timestamps    how much longer a step with timestamps at layers takes (1.0)
    isolated      how much longer an isolated layer takes (1.5); by_difference: true, backward runs with forward only
    ceilings      what is reached per second: {"fp32": FLOPs, …, "copy": bytes, "link": bytes}; the rest is refused
    algorithms    of a convolution: {"NAME": seconds of a run, or text: why it cannot}; the first is picked
    network       between processes: {"alpha_s": 1e-4, "beta_s_per_byte": 1e-9, "wrong": {"OPERATION": why},
                  "compute_slowdown": 1.5, "communication_slowdown": 2.0}
    buckets       bytes of each bucket of gradients ([])
    memory        {"base": bytes, "per_sample": bytes, "limit": bytes} of a device; a batch beyond the limit fails
    fault         {"at": "join" | "build" | "step" | "loss" | "timeline" | "transfer" | "ceiling NAME" |
                  "attempt NAME" | "timing NAME", "step": n, "kind": …}, kind one of _FAULTS; attempts and timings
                  are of a convolution's algorithm
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from deepstone.backends import base
from deepstone.backends.before_import import FAKE_SCRIPT
from deepstone.setups.axes import AUTO
from deepstone.setups.transfers import TRANSFERS, program_name

_PROGRAM_SHARE = {"forward": 0.3, "gradient": 0.9, "train": 1.0}
_SHARE_IN_GROUP = {"local": 0.7, "meet": 0.75, "exchange": 0.5}
_EFFECTIVE_FOR_AUTO: dict[str, Any] = {
    "framework": "fake@1",
    "device": "cpu",
    "precision": "fp32",
    "layout": "nchw",
    "engine": "native",
    "algorithm": "heuristic",
    "compile": "off",
    "threads": 1,
    "inter_threads": 1,
    "affinity": "0",
    "allocator": "glibc",
    "wait": "passive",
    "power_limit": "the board's own",
    "isa": "avx2",
    "processes": 1,
    "launcher": "local",
    "scheme": "data",
    "servers": "none",
    "pipeline": "none",
    "microbatches": "none",
    "schedule": "none",
    "library": "none",
    "transport": "gloo",
    "collective": "allreduce",
    "interface": "lo",
    "overlap": "on",
    "bucket": 25,
}


def _seed(script: dict[str, Any]) -> int:
    if "launches" not in script:
        return int(script.get("seed", os.getpid()))
    with Path(script["launches"]).open("ab") as counted:  # one byte for each process; what is appended is never torn
        counted.write(b".")
        counted.flush()
        return int(script.get("seed", 1)) * 1000 + counted.tell()


class FakeBackend(base.Backend):
    def __init__(self, script: dict[str, Any]) -> None:
        self._script = script
        self._now_s = 0.0
        self._steps = 0
        self._updates = 0
        self._random = random.Random()
        self._job: base.Job | None = None
        self._group: base.Group | None = None
        self._traced_steps = 0

    def versions(self) -> dict[str, Any]:
        # A scripted clock cannot be compared with real time.
        clock = {} if self._script.get("sleep", False) else {"clock": "scripted"}
        return {"name": "fake", "version": "1", **clock}

    def open_rendezvous(self, address: str, rank: int, world: int) -> int:
        return rank + 1

    def join(self, group: base.Group) -> dict[str, Any]:
        self._group = group
        keys = self._script.get("ranks", {}).get(str(group.rank), {})
        self._script = {**self._script, **keys}
        self._maybe_fail("join")
        found = {"world": self._script.get("world", group.world), "rank": group.rank, "transport": "none"}
        return {**found, "library": self._script.get("library", "")}

    def buckets(self) -> list[int]:
        return list(self._script.get("buckets", []))

    def transfer(self, operation: str, size: int) -> dict[str, Any]:
        self._maybe_fail("transfer")
        return {"program": program_name(operation, size), "wrong": self._network.get("wrong", {}).get(operation, "")}

    def beside(self, transfer: str, transfers: int, program: str, steps: int) -> dict[str, Any]:
        taken_s, both = self._transfer_s(transfer), steps < 0
        slower = self._network if both else {}
        step_s = self._steady_s * _SHARE_IN_GROUP[program] * slower.get("compute_slowdown", 1.0)
        taken_s *= slower.get("communication_slowdown", 1.0)
        count = int(taken_s * transfers / step_s) if both else steps
        return {"transfer_s": self._noisy(taken_s, transfers), "step_s": self._noisy(step_s, count)}

    def _noisy(self, each_s: float, count: int) -> list[float]:
        return [each_s * max(0.1, 1 + self._random.gauss(0, 1) * self._script.get("noise", 0.01)) for _ in range(count)]

    @property
    def _network(self) -> dict[str, Any]:
        return {"alpha_s": 1e-4, "beta_s_per_byte": 1e-9, **self._script.get("network", {})}

    def _transfer_s(self, program: str) -> float:
        """Of one program; a message goes there and back."""
        operation, _, size = program.partition(" ")
        once_s = self._network["alpha_s"] + self._network["beta_s_per_byte"] * int(size)
        return 2 * once_s if operation == "p2p" else once_s

    def build(self, job: base.Job) -> None:
        faster = self._script.get("faster", 1.0)
        for condition, keys in self._script.get("by", {}).items():
            wanted = [word.partition("=") for word in condition.split()]
            if all(str(job.request[axis]) == value for axis, _, value in wanted):
                faster *= keys.get("faster", 1.0)
                self._script = {**self._script, **keys}
        self._job = job
        self._random = random.Random(_seed(self._script))
        launch_noise = self._script.get("launch_noise", 0.0)
        self._steady_s = self._script.get("step_s", 0.01) * (1 + self._random.gauss(0, 1) * launch_noise) / faster
        self._maybe_fail("build")
        if "gpus" in self._script and job.request["device"] != "cpu":
            base.own_gpu(str(job.request["device"]), job.group, self._script["gpus"])
        limit = self._script.get("memory", {}).get("limit")
        if limit is not None and self._allocated_bytes() > limit:
            raise MemoryError("scripted: the device is full")

    def phase(self) -> str:
        assert self._job is not None
        return str(self._job.request["phase"])

    def step(self, program: str) -> Callable[[], None]:
        if program.partition(" ")[0] in TRANSFERS:
            taken_s = self._transfer_s(program)
            return lambda: self._pass(taken_s)
        shares = {**_PROGRAM_SHARE, **_SHARE_IN_GROUP, **self._script.get("programs", {})}
        share = shares[program] / self._share_of_job()
        return lambda: self._step(share, program)

    def _step(self, share: float, program: str) -> None:
        self._advance(share)
        self._update(program)

    def _update(self, program: str) -> None:
        if program == "train" and self._updates < self._script.get("updates", math.inf):
            self._updates += 1

    def _share_of_job(self) -> float:
        return self._script.get("programs", _PROGRAM_SHARE)[self.phase()]

    def _advance(self, share: float) -> None:
        self._maybe_fail("step")
        warmup = self._script.get("warmup", [5, 2])
        factor = warmup[self._steps] if self._steps < len(warmup) else 1.0
        factor *= 1 + self._script.get("drift", 0.0) * self._steps
        factor *= max(0.1, 1 + self._random.gauss(0, 1) * self._script.get("noise", 0.01))
        duration_s = self._steady_s * factor * share
        self._spend(duration_s)
        self._steps += 1

    def _spend(self, duration_s: float) -> None:
        if self._script.get("sleep", False):
            time.sleep(duration_s)
            duration_s *= self._script.get("claims", 1.0)
        self._now_s += duration_s

    def open_timeline(self) -> Sequence[str]:
        scripted = self._timeline()
        if "absent" in scripted:
            raise base.Unsupported(scripted["absent"])
        return list(scripted)

    def timeline_step(self, program: str) -> Callable[[], base.TracedStep]:
        return lambda: self._traced_step(self._timeline()[program])

    def _traced_step(self, spans: Sequence[Sequence[Any]]) -> base.TracedStep:
        """Every rank begins its steps at the same moments: scripted clocks know nothing of each other."""
        self._maybe_fail("timeline")
        begin_s = self._traced_steps * 2 * max(end_s for _, _, end_s, *_ in spans)
        self._traced_steps += 1
        moved = [(kind, begin_s + from_s, begin_s + to_s, *(size or [0])) for kind, from_s, to_s, *size in spans]
        return base.TracedStep(begin_s, max(end_s for _, _, end_s, _ in moved), moved)

    def _timeline(self) -> dict[str, Any]:
        """By default: a bucket that is ready in the middle of backward, and ends as late as the programs say."""
        if "timeline" in self._script:
            return self._script["timeline"]
        shares = {**_PROGRAM_SHARE, **_SHARE_IN_GROUP, **self._script.get("programs", {})}
        local_s, train_s = (self._steady_s * shares[name] / self._share_of_job() for name in ("local", "train"))
        tail_s = max(0.0, train_s - local_s)
        forward = ["forward", 0.0, 0.3 * local_s]
        backward = ["backward", 0.3 * local_s, 0.9 * local_s]
        reduce = ["reduce", 0.6 * local_s, 0.9 * local_s + tail_s, 1000]
        return {
            "train": [forward, backward, reduce, ["update", 0.9 * local_s + tail_s, local_s + tail_s]],
            "local": [forward, backward, ["update", 0.9 * local_s, local_s]],
        }

    def logged_times(self, steps: int) -> dict[str, list[float]]:
        if not self._script.get("logged"):
            return super().logged_times(steps)
        return {name: [seconds] * steps for name, seconds in self._script["logged"].items()}

    def phases(self) -> Sequence[str] | None:
        if self._script.get("one_program", False):
            return None
        return base.phases_of(self.phase())

    def step_in_phases(self, set_timestamp: Callable[[int], None]) -> None:
        names = self.phases() or ()
        shares = {"data": 0.0, "forward": 0.3, "backward": 0.6, "update": 0.1}
        whole = sum(shares[name] for name in names)
        for position, name in enumerate(names):
            together = 1.0 if self._group is None else _SHARE_IN_GROUP["local"]  # phases are those of computing
            self._advance(self._script.get("phases", together) * shares[name] / whole)
            set_timestamp(position)
        self._update(self.phase())

    def clock(self) -> float:
        if "clock" not in self._script:
            return self._now_s
        shown = self._script["clock"]
        return time.perf_counter() * (1 + shown.get("drift", 0.0)) + shown.get("offset_s", 0.0)

    def observe(self) -> dict[str, dict[str, Any]]:
        assert self._job is not None
        effective: dict[str, dict[str, Any]] = {}
        changed: dict[str, Any] = {
            **self._script.get("effective", {}),
            **(self._script.get("later", {}) if self._steps > 1 else {}),
        }
        for axis, asked in self._job.request.items():
            value = _EFFECTIVE_FOR_AUTO[axis] if asked == AUTO or axis == "framework" else asked
            effective[axis] = {"value": changed.get(axis, value), "source": "set"}
        return effective

    def details(self) -> dict[str, Any]:
        return self._script.get("details", {})

    def loss(self) -> float:
        self._maybe_fail("loss")
        return float(self._script.get("loss", 1.0)) * 0.9999**self._updates

    def arrays(self, kind: str) -> dict[str, Any]:
        assert self._job is not None
        moved = 1e-4 * self._script.get("update_size", 1.0) * self._updates if kind == "parameters" else 0.0
        return {
            f"{layer}/{name}": np.asarray(array) + moved
            for layer, parameters in self._job.weights.items()
            for name, array in parameters.items()
        }

    def in_place(self, steps: int) -> base.InPlace:
        shares = self._layer_shares()
        if "absent" in shares:
            raise base.Unsupported(shares["absent"])
        return base.InPlace("scripted", "nothing is shared", [self._account(shares) for _ in range(steps)])

    def _account(self, shares: dict[str, Sequence[float]]) -> base.StepAccount:
        before = self._now_s
        self._advance(self._script.get("timestamps", 1.0))
        total_s = self._now_s - before
        update_s = 0.1 * total_s if self.phase() == "train" else 0.0
        whole = sum(map(sum, shares.values())) / (total_s - update_s - 0.05 * total_s)
        layers = {
            (name, direction): share / whole
            for name, both in shares.items()
            for direction, share in zip(("forward", "backward"), both, strict=False)
        }
        return base.StepAccount(total_s, layers, update_s=update_s, gaps_s=0.05 * total_s)

    def _layer_shares(self) -> dict[str, Any]:
        assert self._job is not None
        passes = 1 if self.phase() == "forward" else 2
        working = [layer["name"] for layer in self._job.graph["layers"] if layer["op"] not in ("input", "flatten")]
        return self._script.get("layers", {name: [1.0] * passes for name in working})

    def isolated_layer(self, name: str) -> base.IsolatedLayer:
        shares = self._layer_shares().get(name, [])
        taken_s = [share * self._steady_s * self._script.get("isolated", 1.5) for share in shares]
        if self._script.get("by_difference", False) and len(taken_s) > 1:
            durations = {"forward": taken_s[0], "forward+backward": sum(taken_s)}
        else:
            durations = dict(zip(("forward", "backward"), taken_s, strict=False))
        programs = {program: partial(self._pass, duration_s) for program, duration_s in durations.items()}
        return base.IsolatedLayer(dict[str, Callable[[], None]](programs), self, beside=self._script.get("beside", ""))

    def ceiling(self, wanted: dict[str, Any]) -> base.IsolatedLayer:
        kind = str(wanted["kind"])
        name = str(wanted["precision"]) if kind == "product" else kind
        self._maybe_fail(f"ceiling {name}")
        rates = self._script.get("ceilings", {})
        if name not in rates:
            raise base.Unsupported(f"scripted: no {name}")
        work = 2 * wanted["size"] ** 3 if kind == "product" else wanted["bytes"] * (2 if kind == "copy" else 1)
        return base.IsolatedLayer({kind: lambda: self._pass(work / rates[name])}, self)

    def convolution(self, name: str, direction: str) -> base.ConvolutionTrial:
        if "algorithms" not in self._script:
            return super().convolution(name, direction)
        algorithms: dict[str, Any] = self._script["algorithms"]
        facts = {
            "algorithms": [[each, "direct"] for each in algorithms],
            "picked": next(iter(algorithms)),
            "device": "cpu",
            "precision": "fp32",
            "layout": "nchw",
        }
        return base.ConvolutionTrial(facts, self._attempt, self)

    def _attempt(self, algorithm: str) -> tuple[Callable[[], None], dict[str, Any]]:
        self._maybe_fail(f"attempt {algorithm}")
        run_s = self._script["algorithms"][algorithm]
        if isinstance(run_s, str):
            raise base.Unsupported(run_s)

        def run() -> None:
            self._maybe_fail(f"timing {algorithm}")
            self._pass(run_s)

        return run, {"workspace_bytes": 1000, "relative_error": 1e-7}

    def _pass(self, duration_s: float) -> None:
        self._spend(duration_s * max(0.1, 1 + self._random.gauss(0, 1) * self._script.get("noise", 0.01)))

    def memory(self) -> dict[str, Any]:
        if "memory" not in self._script:
            reason = {"absent": "the fake backend has no device"}
            return {"device_allocated_bytes": reason, "device_reserved_bytes": reason}
        allocated = self._allocated_bytes()
        return {"device_allocated_bytes": allocated, "device_reserved_bytes": allocated}

    def available_bytes(self) -> Any:
        return self._script.get("memory", {}).get("limit", {"absent": "the script sets no limit"})

    def _allocated_bytes(self) -> int:
        assert self._job is not None
        sizes = self._script["memory"]
        return int(sizes["base"] + sizes["per_sample"] * int(self._job.request["batch"]))

    def _maybe_fail(self, where: str) -> None:
        fault = self._script.get("fault", {})
        if fault.get("at") == where and (where not in ("step", "loss") or self._steps >= fault.get("step", 0)):
            _FAULTS[fault["kind"]]()


def _segfault() -> NoReturn:
    ctypes.string_at(0)
    raise AssertionError("still alive after reading address 0")


def _illegal_instruction() -> None:
    os.kill(os.getpid(), signal.SIGILL)


def _ignore_term_and_hang() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(3600)


def _leave_a_daemon() -> None:
    """Start a grandchild in its own session that ignores TERM; then the worker continues."""
    code = "import os,signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.setsid(); time.sleep(3600)"
    subprocess.Popen([sys.executable, "-c", code, "deepstone-fake-daemon"])


def _eat_memory() -> None:
    hoard: list[bytearray] = []
    while True:
        hoard.append(bytearray(b"x" * (16 * 2**20)))


def _fail_with(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


_FAULTS: dict[str, Callable[[], None]] = {
    "segfault": _segfault,
    "illegal_instruction": _illegal_instruction,
    "exit": lambda: os._exit(7),
    "hang": _ignore_term_and_hang,
    "daemon": _leave_a_daemon,
    "eat_memory": _eat_memory,
    "memory_error": _fail_with(MemoryError("scripted")),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "peer": _fail_with(ConnectionError("scripted: connection closed by peer")),
    "error": _fail_with(RuntimeError("scripted failure")),
    "unsupported": _fail_with(base.Unsupported("scripted: cannot be done")),
    "missing": _fail_with(base.Missing("scripted: not there; install it")),
}


def make_backend() -> FakeBackend:
    return FakeBackend(json.loads(os.environ.get(FAKE_SCRIPT, "{}")))
