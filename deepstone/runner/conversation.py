"""The worker protocol as the controller speaks it: one method per request, typed replies, failures as outcomes."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from deepstone.absent import Absent
from deepstone.errors import MissingError
from deepstone.graph.weights import cached_weights, parameter_slices
from deepstone.launchers.local import worker_argv, worker_variables
from deepstone.measure.doubts import RoundTrip
from deepstone.records.schema import Outcome, is_absent
from deepstone.runner.job import Job
from deepstone.runner.scratch import scratch_folder
from deepstone.runner.worker_process import ProtocolError, WorkerEnded, WorkerProcess
from deepstone.setups.axes import AUTO, cpu_list
from deepstone.setups.effective import EffectiveValue, contradiction
from deepstone.supervise import Ending, ProcessTimeout

PROTOCOL = 1


class JobFailed(Exception):
    """A job that did not end well: an outcome other than ok, and what is known about it."""

    def __init__(
        self,
        outcome: Outcome,
        reason: str,
        *,
        stage: str,
        stderr_tail: str = "",
        signal: str | None = None,
        exit_code: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.outcome: Outcome = outcome
        self.reason = reason
        self.stage = stage
        self.stderr_tail = stderr_tail
        self.signal = signal
        self.exit_code = exit_code


@dataclass(frozen=True, kw_only=True, slots=True)
class Hello:
    pid: int
    python: str
    framework: dict[str, Any]
    import_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    build_s: float
    first_step_s: float
    effective: dict[str, EffectiveValue]
    details: dict[str, Any]
    phases: tuple[str, ...] | None  # None: a step is one program, phases come by difference


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockTimes:
    start_s: float
    steps_per_sample: int
    step_s: list[float]
    enqueue_s: float
    total_s: float

    @property
    def steps(self) -> int:
        return self.steps_per_sample * len(self.step_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class InPlaceTimes:
    """What layers took inside whole steps; each list has one entry per step."""

    method: str
    rule: str
    total_s: list[float]
    data_s: list[float]
    update_s: list[float]
    gaps_s: list[float]
    other_s: dict[str, list[float]]
    layers_s: dict[tuple[str, str], list[float]]  # by layer and "forward" or "backward"


@dataclass(frozen=True, kw_only=True, slots=True)
class IsolatedPrograms:
    """Of one isolated layer. `beside`: what each does that a step does not; mostly nothing."""

    names: tuple[str, ...]
    beside: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPeak:
    """The most memory that a few steps had; `available_bytes` is what they could have had, or absent."""

    memory: dict[str, Any]
    available_bytes: Any

    @property
    def step_bytes(self) -> int | Absent:
        """What the step took by itself: on its device, or on the host beyond what there was before the build."""
        return first_known(self.memory, "device_allocated_bytes", "host_growth_bytes")

    @property
    def whole_bytes(self) -> int | Absent:
        """What counts against a limit: on the host, everything that the process has."""
        return first_known(self.memory, "device_allocated_bytes", "host_peak_bytes")


def first_known(memory: Mapping[str, Any], *names: str) -> int | Absent:
    """The first of these that is known; where none is, why not the last."""
    known = [memory[name] for name in names if not is_absent(memory[name])]
    return int(known[0]) if known else Absent(str(memory[names[-1]]["absent"]))


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvolutionFacts:
    """What can be tried on one pass of a convolution, and how it is set up."""

    algorithms: dict[str, str]  # name -> the formula by which its operations are counted
    picked: str | Absent
    device: str
    precision: str
    layout: str


class Conversation:
    """Talks to one worker about one job. Any failure raises JobFailed, or MissingError for what is not there."""

    def __init__(self, worker: WorkerProcess, job: Job, *, scratch: Path, deadline_s: float) -> None:
        self._worker = worker
        self._job = job
        self._scratch = scratch
        self._deadline_s = deadline_s
        self._stage = "hello"
        self._scripted_clock = False
        self._ready = set[str]()  # programs that ran before
        self.round_trips: list[RoundTrip] = []  # every timed block so far, by both clocks
        self.steps = 0  # asked for so far, of the network that was prepared last

    def hello(self) -> Hello:
        affinity = str(self._job.request["affinity"])
        cpus = None if affinity == AUTO else _usable(cpu_list(affinity), affinity)
        reply = self._ask("hello", protocol=PROTOCOL, affinity=cpus)
        self._scripted_clock = reply["framework"].get("clock") == "scripted"
        return Hello(pid=reply["pid"], python=reply["python"], framework=reply["framework"], import_s=reply["import_s"])

    def prepare(self, job: Job | None = None) -> Prepared:
        """Up to and including the first step; of another job in the same environment if one is given."""
        reply = self._build(job or self._job, first_step=True)
        self.steps = 1
        return Prepared(
            build_s=reply["build_s"],
            first_step_s=reply["first_step_s"],
            effective=reply["effective"],
            details=reply["details"],
            phases=None if reply["phases"] is False else tuple(reply["phases"]),
        )

    def build(self) -> None:
        """Prepare without a first step, for those who want its layers and not the network."""
        self._build(self._job, first_step=False)

    def _build(self, job: Job, *, first_step: bool) -> dict[str, Any]:
        graph, seed = job.model.graph, int(job.request["seed"])
        weights = cached_weights(graph, seed, cache_folder() / "weights", generic=job.generic_weights)
        return self._ask(
            "prepare",
            graph=graph.to_worker_json(),
            weights={"path": str(weights), "slices": parameter_slices(graph)},
            input_shape=list(graph.shapes[graph.input.name]),
            classes=graph.classes,
            request=dict(job.request),
            scratch=str(self._scratch),
            first_step=first_step,
        )

    def block(self, *, samples: int, steps_per_sample: int = 1, lead: int = 0, program: str = "") -> BlockTimes:
        reply = self._ask_timed("block", program, samples, steps_per_sample, lead)
        self.steps += lead + samples * steps_per_sample
        return _block_times(reply)

    def phases(self, steps: int) -> dict[str, list[float]]:
        return self._ask("phases", steps=steps)["phase_s"]

    def losses(self, steps: int) -> list[float]:
        return [float(text) for text in self._ask("losses", steps=steps)["losses"]]

    def contradiction(self) -> str | None:
        """How what is in effect by now is not what the job asks for."""
        return contradiction(self._job.request, self._ask("observe")["effective"])

    def dump(self, kind: str) -> dict[str, Path]:
        """Arrays of the worker as .npy files in the job's scratch folder."""
        reply = self._ask("dump", kind=kind, folder=str(self._scratch))
        return {name: Path(path) for name, path in reply["files"].items()}

    def sample(self, kind: str, *, most: int) -> dict[str, NDArray[np.float64]]:
        """At most so many values of each of the worker's arrays, the same ones in every worker of the model."""
        reply = self._ask("sample", kind=kind, most=most, folder=str(self._scratch))
        values = np.load(reply["path"])
        ends = np.cumsum(reply["sizes"], dtype=np.int64)
        return dict(zip(reply["names"], np.split(values, ends[:-1]), strict=True)) if reply["names"] else {}

    def layer(
        self, name: str, inputs: Mapping[str, NDArray[Any]], upstream: NDArray[Any] | None
    ) -> dict[tuple[str, str], NDArray[Any]]:
        """One isolated layer: ("output", ""), ("input" | "parameter" | "buffer", NAME) to what it gave."""
        paths: dict[str, str] = {}
        for number, (source, array) in enumerate(inputs.items()):
            paths[source] = self._saved(f"given-{number}", array)
        reply = self._ask(
            "layer",
            name=name,
            inputs=paths,
            upstream=None if upstream is None else self._saved("given-upstream", upstream),
            folder=str(self._scratch),
        )
        return {(kind, what): np.load(path) for kind, what, path in reply["files"]}

    def _saved(self, name: str, array: NDArray[Any]) -> str:
        path = self._scratch / f"{name}.npy"
        np.save(path, array)
        return str(path)

    def layers(self, steps: int) -> InPlaceTimes:
        reply = self._ask("layers", steps=steps)
        return InPlaceTimes(
            method=reply["method"],
            rule=reply["rule"],
            total_s=reply["total_s"],
            data_s=reply["data_s"],
            update_s=reply["update_s"],
            gaps_s=reply["gaps_s"],
            other_s=reply["other"],
            layers_s={(name, direction): times for name, direction, times in reply["layers"]},
        )

    def isolated(self, name: str) -> IsolatedPrograms:
        """Make one layer ready to be timed in isolation."""
        reply = self._ask("isolated", name=name)
        return IsolatedPrograms(names=tuple(reply["programs"]), beside=str(reply["beside"]))

    def isolated_block(self, program: str, *, samples: int, steps_per_sample: int = 1, lead: int = 0) -> list[float]:
        return self._ask_timed("isolated_block", program, samples, steps_per_sample, lead)["step_s"]

    def trace(self, steps: int, path: str = "") -> dict[str, Any]:
        """Steps under the framework's own profiler: kernels, calls, how busy the device was."""
        reply = self._ask("trace", steps=steps, path=path)
        return {key: value for key, value in reply.items() if key != "event"}

    def ceiling(self, **wanted: str | int) -> None:
        """Make the program ready that `isolated_block` times under the name `wanted["kind"]`; see Backend.ceiling."""
        self._ask("ceiling", wanted=wanted)

    def convolution(self, name: str, direction: str) -> ConvolutionFacts:
        """Make one pass of a convolution ready to be tried; which algorithms there are."""
        reply = self._ask("convolution", name=name, direction=direction)
        return ConvolutionFacts(
            algorithms=dict(reply["algorithms"]),
            picked=reply["picked"] if isinstance(reply["picked"], str) else Absent(reply["picked"]["absent"]),
            device=reply["device"],
            precision=reply["precision"],
            layout=reply["layout"],
        )

    def attempt(self, algorithm: str) -> dict[str, Any]:
        """Run one algorithm of the convolution once, so that `isolated_block` and `isolated_times` can time it."""
        reply = self._ask("convolution", algorithm=algorithm)
        return {key: value for key, value in reply.items() if key != "event"}

    def isolated_times(self, program: str, *, samples: int, steps_per_sample: int = 1, lead: int = 0) -> BlockTimes:
        """As `isolated_block`, with what else is known of the block."""
        return _block_times(self._ask_timed("isolated_block", program, samples, steps_per_sample, lead))

    def memory_peak(self, steps: int) -> MemoryPeak:
        reply = self._ask("memory_peak", steps=steps)
        return MemoryPeak(memory=reply["memory"], available_bytes=reply["available_bytes"])

    def memory_by_layer(self) -> dict[str, dict[str, Any]]:
        return dict(self._ask("memory_by_layer")["layers"])

    def memory(self) -> dict[str, Any]:
        return self._ask("memory")["memory"]

    def close(self) -> Ending:
        """Let the worker exit."""
        self._ask("close")
        try:
            return self._worker.wait(deadline_s=self._deadline_s)
        except ProcessTimeout:
            return self._worker.stop()

    def _ask_timed(self, what: str, program: str, samples: int, steps_per_sample: int, lead: int) -> dict[str, Any]:
        """A block, with a look at our own clock before and after it."""
        begin_s = time.perf_counter()
        reply = self._ask(what, program=program, samples=samples, steps_per_sample=steps_per_sample, lead=lead)
        seen_s = time.perf_counter() - begin_s
        makes_it_ready = bool(program) and program not in self._ready  # it may compile before it is timed
        self._ready.add(program)
        if not self._scripted_clock and not makes_it_ready:
            claimed_s, lead_s = sum(reply["step_s"]) * steps_per_sample, sum(reply["step_s"]) * lead / samples
            self.round_trips.append(RoundTrip(claimed_s=claimed_s, lead_s=lead_s, seen_s=seen_s))
        return reply

    def _ask(self, what: str, **content: object) -> dict[str, Any]:
        self._stage = what
        try:
            self._worker.send({"do": what, **content}, deadline_s=self._deadline_s)
            reply = cast(dict[str, Any], self._worker.receive(deadline_s=self._deadline_s))
        except ProcessTimeout:
            self._worker.stop()
            raise self._failed(
                "timeout", f"no answer to {what} within the time limit; raise it with --timeout"
            ) from None
        except WorkerEnded as gone:
            ending = gone.ending
            outcome: Outcome = "oom" if ending.oom_killed else "crashed"
            raise self._failed(outcome, str(ending), signal=ending.signal, exit_code=ending.exit_code) from None
        except ProtocolError as error:
            self._worker.stop()
            raise self._failed("crashed", str(error)) from None
        self._worker.trim_output()
        if reply["event"] == "failed":
            if reply["outcome"] == "missing":
                raise MissingError(f"{reply['reason']}{self._whose()}")
            raise self._failed(reply["outcome"], reply["reason"])
        return reply

    def _failed(
        self, outcome: Outcome, reason: str, *, signal: str | None = None, exit_code: int | None = None
    ) -> JobFailed:
        return JobFailed(
            outcome,
            reason + (self._whose() if self._stage == "hello" else ""),
            stage=self._stage,
            stderr_tail=self._worker.output_tail(),
            signal=signal,
            exit_code=exit_code,
        )

    def _whose(self) -> str:
        """Which interpreter it was, unless it is Deepstone's own: look there for what keeps a worker from starting."""
        environment = self._job.environment
        return "" if environment.kind == "own" else f" (environment {environment.name}: {environment.python})"


def _block_times(reply: Mapping[str, Any]) -> BlockTimes:
    return BlockTimes(
        start_s=reply["start_s"],
        steps_per_sample=reply["steps_per_sample"],
        step_s=reply["step_s"],
        enqueue_s=reply["enqueue_s"],
        total_s=reply["total_s"],
    )


@contextmanager
def talking_to_worker(job: Job, *, timeout_s: float) -> Generator[Conversation, None, None]:
    """A worker for the job, ended with its whole tree when the context is left."""
    with scratch_folder() as scratch:
        worker = WorkerProcess.start(
            worker_argv(job.environment.command, job.environment.framework, job.environment.version),
            env=variables_of(job),
            cwd=scratch,
            output_path=scratch / "output.txt",
        )
        with worker:
            yield Conversation(worker, job, scratch=scratch, deadline_s=time.monotonic() + timeout_s)


def variables_of(job: Job) -> dict[str, str]:
    """The user's own variables, then those of the environment, then those of the request: the later overrides."""
    environment = job.environment
    given = environment.variables_over(os.environ)
    return worker_variables(given, environment.framework, environment.version, job.request)


def cache_folder() -> Path:
    """Where initial weights are kept: DEEPSTONE_CACHE, else the user's cache folder."""
    named = os.environ.get("DEEPSTONE_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deepstone"


def _usable(cpus: Sequence[int], text: str) -> list[int]:
    usable = os.sched_getaffinity(0)
    if not set(cpus) <= usable:
        raise MissingError(f"affinity={text}: this process may use CPUs {sorted(usable)} only")
    return list(cpus)
