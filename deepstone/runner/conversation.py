"""The worker protocol as the controller speaks it: one method per request, typed replies, failures as outcomes."""

from __future__ import annotations

import os
import shutil
import tempfile
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
from deepstone.records.schema import Outcome, is_absent
from deepstone.runner.job import Job
from deepstone.runner.supervise import Ending, ProtocolError, WorkerEnded, WorkerProcess, WorkerTimeout
from deepstone.setups.axes import AUTO, cpu_list
from deepstone.setups.effective import EffectiveValue

PROTOCOL = 1
_SCRATCH = "deepstone-job-"


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
class LonePrograms:
    """Of one layer by itself. `beside`: what each does that a step does not; mostly nothing."""

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

    def hello(self) -> Hello:
        affinity = str(self._job.request["affinity"])
        cpus = None if affinity == AUTO else _usable(cpu_list(affinity), affinity)
        reply = self._ask("hello", protocol=PROTOCOL, affinity=cpus)
        return Hello(pid=reply["pid"], python=reply["python"], framework=reply["framework"], import_s=reply["import_s"])

    def prepare(self, job: Job | None = None) -> Prepared:
        """Up to and including the first step; of another job in the same environment if one is given."""
        reply = self._build(job or self._job, first_step=True)
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
        reply = self._ask("block", samples=samples, steps_per_sample=steps_per_sample, lead=lead, program=program)
        return _block_times(reply)

    def phases(self, steps: int) -> dict[str, list[float]]:
        return self._ask("phases", steps=steps)["phase_s"]

    def losses(self, steps: int) -> list[float]:
        return [float(text) for text in self._ask("losses", steps=steps)["losses"]]

    def dump(self, kind: str) -> dict[str, Path]:
        """Arrays of the worker as .npy files in the job's scratch folder."""
        reply = self._ask("dump", kind=kind, folder=str(self._scratch))
        return {name: Path(path) for name, path in reply["files"].items()}

    def layer(
        self, name: str, inputs: Mapping[str, NDArray[Any]], upstream: NDArray[Any] | None
    ) -> dict[tuple[str, str], NDArray[Any]]:
        """One layer by itself: ("output", ""), ("input" | "parameter" | "buffer", NAME) to what it gave."""
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

    def lone(self, name: str) -> LonePrograms:
        """Make one layer ready to be timed by itself."""
        reply = self._ask("lone", name=name)
        return LonePrograms(names=tuple(reply["programs"]), beside=str(reply["beside"]))

    def lone_block(self, program: str, *, samples: int, steps_per_sample: int = 1, lead: int = 0) -> list[float]:
        reply = self._ask("lone_block", program=program, samples=samples, steps_per_sample=steps_per_sample, lead=lead)
        return reply["step_s"]

    def trace(self, steps: int, path: str = "") -> dict[str, Any]:
        """Steps under the framework's own profiler: kernels, calls, how busy the device was."""
        reply = self._ask("trace", steps=steps, path=path)
        return {key: value for key, value in reply.items() if key != "event"}

    def ceiling(self, **wanted: str | int) -> None:
        """Make the program ready that `lone_block` times under the name `wanted["kind"]`; see Backend.ceiling."""
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
        """Run one algorithm of the convolution once, so that `lone_block` and `lone_times` can time it."""
        reply = self._ask("convolution", algorithm=algorithm)
        return {key: value for key, value in reply.items() if key != "event"}

    def lone_times(self, program: str, *, samples: int, steps_per_sample: int = 1, lead: int = 0) -> BlockTimes:
        """As `lone_block`, with what else is known of the block."""
        reply = self._ask("lone_block", program=program, samples=samples, steps_per_sample=steps_per_sample, lead=lead)
        return _block_times(reply)

    def memory_peak(self, steps: int) -> MemoryPeak:
        reply = self._ask("memory_peak", steps=steps)
        return MemoryPeak(memory=reply["memory"], available_bytes=reply["available_bytes"])

    def memory_by_layer(self) -> dict[str, dict[str, Any]]:
        return dict(self._ask("memory_by_layer")["layers"])

    def memory(self) -> dict[str, Any]:
        return self._ask("memory")["memory"]

    def close(self) -> Ending:
        """Let the worker go by itself."""
        self._ask("close")
        try:
            return self._worker.wait(deadline_s=self._deadline_s)
        except WorkerTimeout:
            return self._worker.stop()

    def _ask(self, what: str, **content: object) -> dict[str, Any]:
        self._stage = what
        try:
            self._worker.send({"do": what, **content}, deadline_s=self._deadline_s)
            reply = cast(dict[str, Any], self._worker.receive(deadline_s=self._deadline_s))
        except WorkerTimeout:
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
        if reply["event"] == "failed":
            if reply["outcome"] == "missing":
                raise MissingError(reply["reason"])
            raise self._failed(reply["outcome"], reply["reason"])
        return reply

    def _failed(
        self, outcome: Outcome, reason: str, *, signal: str | None = None, exit_code: int | None = None
    ) -> JobFailed:
        return JobFailed(
            outcome,
            reason,
            stage=self._stage,
            stderr_tail=self._worker.output_tail(),
            signal=signal,
            exit_code=exit_code,
        )


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
    _sweep_scratch()
    prefix = f"{_SCRATCH}{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
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


def _sweep_scratch() -> None:
    """Remove the folders of controllers that were killed before they could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}[0-9]*-*"):
        owner = folder.name.removeprefix(_SCRATCH).partition("-")[0]
        if owner.isdecimal() and not Path("/proc", owner).exists():
            shutil.rmtree(folder, ignore_errors=True)


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
