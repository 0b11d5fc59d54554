"""The controller's side of the worker protocol: one method per request, typed replies, failures as outcomes."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from msgspec import Struct, structs
from msgspec.structs import replace
from numpy.typing import NDArray

from deepstone.absent import Absent
from deepstone.environments.environment import Environment
from deepstone.errors import MissingError, RefusedInputError
from deepstone.graph.batch import perturbed
from deepstone.graph.weights import cached_weights, parameter_slices, synthetic_batch
from deepstone.hardware.gpu import uuid_of_board
from deepstone.keeper import POWER_LIMIT
from deepstone.launchers.local import worker_argv, worker_variables
from deepstone.measure.clocks import Ping
from deepstone.measure.doubts import RoundTrip
from deepstone.results import codec
from deepstone.results.findings import FindingFailure
from deepstone.results.layers import KernelTrace
from deepstone.results.parts import Json, Part
from deepstone.results.plain import shown
from deepstone.results.record import Failure, Outcome
from deepstone.runner.job import Job
from deepstone.runner.replies import (
    Assignment,
    Attempt,
    Beside,
    BlockTimes,
    Buckets,
    ClockShows,
    ConvolutionFacts,
    DumpedFiles,
    Failed,
    Hello,
    InPlaceTimes,
    IsolatedPrograms,
    Joined,
    KnownDetails,
    LayerFiles,
    LoggedTimes,
    Losses,
    MemoryByLayer,
    MemoryOfLayer,
    MemoryPeak,
    MemoryReply,
    Network,
    Observed,
    PhaseTimes,
    Prepared,
    Rendezvous,
    Reply,
    SampledValues,
    TimelinePrograms,
    TracedStep,
    TracedSteps,
    Transferred,
)
from deepstone.runner.scratch import scratch_folder
from deepstone.runner.worker_process import ProtocolError, WorkerEnded, WorkerProcess
from deepstone.setups.axes import AUTO, PLACEMENTS, Value, cpu_list
from deepstone.setups.request import Request
from deepstone.setups.world import World, placed_on
from deepstone.supervise import Ending, ProcessTimeout

R = TypeVar("R", bound=Part)

PROTOCOL = 1
FROZEN = "it is stopped: a signal or a debugger holds its process"


class JobFailed(Exception):
    """A job failed: its outcome, which is not ok, and the details of the failure."""

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
        self.details = Failure(reason=reason, stage=stage, stderr_tail=stderr_tail, signal=signal, exit_code=exit_code)

    @property
    def reason(self) -> str:
        return self.details.reason

    @property
    def stage(self) -> str:
        return self.details.stage

    @property
    def in_finding(self) -> FindingFailure:
        return FindingFailure(reason=self.reason, stderr_tail=self.details.stderr_tail)

    def because(self, reason: str) -> JobFailed:
        """Return the same failure with another reason."""
        rest = {name: value for name, value in structs.asdict(self.details).items() if name != "reason"}
        return JobFailed(self.outcome, reason, **rest)


class BuildOptions(Struct, frozen=True, kw_only=True):
    """How a network is built for a check. `data_seed`: that of the batch, if it is another than that of the weights.
    `perturbation`: change every weight by this share of itself. `like_photographs`: samples with the structure of
    images instead of noise."""

    keep_gradients: bool = False
    data_seed: int | None = None
    perturbation: float = 0.0
    like_photographs: bool = False


_AS_THE_JOB_SAYS: Final = BuildOptions()


class Conversation:
    """Sends requests for one job to one worker. A failure raises JobFailed, or MissingError if something is missing."""

    def __init__(self, worker: WorkerProcess, job: Job, *, scratch: Path, deadline_s: float) -> None:
        self._worker = worker
        self._job = job
        self._scratch = scratch
        self._deadline_s = deadline_s
        self._stage = "hello"
        self._scripted_clock = False
        self._limit_s: float | None = None  # of the request that is under way
        self._sent_s = self._received_s = 0.0  # the latest request and its reply
        self._ready = set[str]()  # programs that have run
        self.round_trips: list[RoundTrip] = []  # every timed block so far, by both clocks
        self.steps = 0  # requested so far of the network that was prepared last

    def hello(self) -> Hello:
        hello = self._request("hello", Hello, protocol=PROTOCOL, affinity=chosen_cpus(self._job.request))
        self._scripted_clock = hello.framework.get("clock") == "scripted"
        return hello

    def excuse(self, waited_s: float) -> None:
        """Do not count time against its limit in which nothing was asked of it, since another worker was awaited."""
        self._deadline_s += waited_s

    @property
    def request(self) -> Request:
        return self._job.request

    @property
    def fewest_samples(self) -> int:
        """How many a block should have at the least."""
        return 1

    @property
    def has_scripted_clock(self) -> bool:
        return self._scripted_clock

    def rendezvous(self, address: str, *, rank: int, world: int) -> int:
        """Have the worker be ready for the others; the port at which they find it, 0 if they do not look for it."""
        return self._request("rendezvous", Rendezvous, address=address, rank=rank, world=world).port

    def join(self, *, rank: int, world: int, addresses: Sequence[str]) -> Joined:
        """Have the worker meet the others of its group."""
        of_job = World.of(self._job.request)
        return self._request(
            "group",
            Joined,
            rank=rank,
            world=world,
            local_rank=rank % of_job.per_node,
            role=of_job.role(rank),
            share=of_job.data_rank(rank),
            shares=1 if rank == of_job.driver else of_job.data_ranks,  # it sends every worker its part
            addresses=list(addresses),
            request=dict(self._job.request),
        )

    def ping(self) -> Ping:
        """Ask what the worker's clock shows."""
        shows = self._request("clock", ClockShows)
        return Ping(sent_s=self._sent_s, answered_s=shows.clock_s, received_s=self._received_s)

    def buckets(self) -> list[int]:
        """The bytes of each group of gradients that the processes exchange together."""
        return self._request("buckets", Buckets).bytes

    def assignment(self) -> Assignment:
        """What this process has and must send, where processes differ."""
        return self._request("assignment", Assignment)

    def network(self) -> dict[str, int]:
        """Bytes that each network interface has sent, as the worker's host counts them."""
        return dict(self._request("network", Network).sent_bytes)

    def transfer(self, operation: str, size: int) -> Transferred:
        """Make ready to send so many bytes, and do it once with numbers whose result is known."""
        return self._request("transfer", Transferred, operation=operation, bytes=size)

    def beside(self, transfer: str, transfers: int, program: str, steps: int) -> Beside:
        """Transfers and steps of a program in two threads; `steps` -1: until the transfers are done."""
        return self._request("beside", Beside, transfer=transfer, transfers=transfers, program=program, steps=steps)

    def open_timeline(self) -> tuple[str, ...] | Absent:
        """Get ready for `timeline`; the programs that it knows."""
        return self._request("open_timeline", TimelinePrograms).programs

    def timeline(self, program: str, steps: int, *, untimed: int, patience_s: float) -> list[TracedStep]:
        """Steps that tell when their parts begin and end. Their time is never reported as speed."""
        self._limit_s = time.monotonic() + patience_s
        found = self._request("timeline", TracedSteps, program=program, steps=steps, lead=untimed).steps
        self._limit_s = None
        self.steps += steps + untimed
        return found

    def logged_times(self, steps: int) -> Mapping[str, list[float]] | Absent:
        """What the framework itself logs of some plain steps."""
        return self._request("logged_times", LoggedTimes, steps=steps).logged

    def close_timeline(self) -> None:
        self._request("close_timeline", Reply)

    def attend(self, released_fd: int) -> None:
        """Wait, while others are asked, until a descriptor can be read; a worker that ends meanwhile is told at
        once."""
        self._stage = "attend"
        try:
            self._worker.attend(released_fd)
        except WorkerEnded as gone:
            raise self._ended(gone.ending) from None

    def restore(self) -> None:
        """Have the worker take the parameters of rank 0."""
        self._request("restore", Reply)

    @property
    def is_frozen(self) -> bool:
        """Any thread may ask."""
        state = self._worker.state()
        return state is not None and state.is_stopped

    def frozen(self) -> JobFailed:
        """The failure of a worker whose process something holds."""
        return self._failed("timeout", FROZEN)

    def ask_to_stop(self) -> None:
        """Have the worker ended, without waiting for it. Another thread may be waiting for its answer."""
        self._worker.ask_to_stop()

    def prepare(self, job: Job | None = None) -> Prepared:
        """Build the network and run its first step. `job`: another job in the same environment."""
        prepared = self._build(job or self._job, Prepared)
        self._typed(prepared.details, KnownDetails)  # fail now if they are malformed
        self.steps = 1
        return prepared

    def build(self, changed: Mapping[str, Value] = {}, options: BuildOptions = _AS_THE_JOB_SAYS) -> None:
        """Build without a first step, for callers that need single layers, or the gradients of every step.

        `changed`: axes that differ from those of the job.
        """
        self._build(replace(self._job, request={**self._job.request, **changed}), Reply, options)

    def _build(self, job: Job, kind: type[R], options: BuildOptions | None = None) -> R:
        """Without options, build it as it is measured, and run its first step."""
        graph, given = job.model.graph, options or _AS_THE_JOB_SAYS
        data_seed = int(job.request["seed"]) if given.data_seed is None else given.data_seed
        weights = self._weights(job, given.perturbation)
        return self._request(
            "prepare",
            kind,
            graph=graph.to_worker_json(),
            weights={"path": str(weights), "slices": parameter_slices(graph)},
            input_shape=[]
            if graph.own_step
            else list(graph.shapes[graph.input.name]),  # []: the backend makes the batch
            classes=graph.classes,
            request=dict(job.request),
            scratch=str(self._scratch),
            first_step=options is None,
            compile_cache=job.compile_cache,
            **({} if options is None else {**structs.asdict(options), "data_seed": data_seed}),
            **self._batch(job, data_seed, given.like_photographs),
        )

    def _batch(self, job: Job, seed: int, like_photographs: bool) -> dict[str, object]:
        """Write the batch as files for a worker that is no Python: it has no NumPy to make it with."""
        graph = job.model.graph
        if job.environment.language == "python" or graph.own_step:
            return {}
        batch = int(job.request["batch"])
        samples, labels = synthetic_batch(graph, batch, seed, like_photographs=like_photographs)
        return {"batch": {"samples": self._saved("samples", samples), "labels": self._saved("labels", labels)}}

    def _weights(self, job: Job, perturbation: float) -> Path:
        """Return the file of initial weights. For a worker that is no Python, weights are changed here if at all."""
        graph, seed = job.model.graph, int(job.request["seed"])
        path = cached_weights(graph, seed, cache_folder() / "weights", generic=job.generic_weights)
        if job.environment.language == "python" or not perturbation:
            return path
        flat: NDArray[np.float32] = np.array(np.load(path, mmap_mode="r"))
        for layer, _, offset, shape in parameter_slices(graph):
            values = flat[offset : offset + math.prod(shape)].reshape(shape)
            values[...] = perturbed(values, perturbation, layer)
        return Path(self._saved("weights", flat))

    def block(
        self,
        *,
        samples: int,
        steps_per_sample: int = 1,
        lead: int = 0,
        program: str = "",
        patience_s: float | None = None,
    ) -> BlockTimes:
        """`patience_s`: how long this block may take, where that is known better than for the whole job."""
        self._limit_s = None if patience_s is None else time.monotonic() + patience_s
        times = self._request_block("block", program, samples, steps_per_sample, lead)
        self._limit_s = None
        self.steps += lead + samples * steps_per_sample
        return times

    def phases(self, steps: int) -> Mapping[str, list[float]]:
        return self._request("phases", PhaseTimes, steps=steps).phase_s

    def losses(self, steps: int) -> list[float]:
        return self._request("losses", Losses, steps=steps).numbers

    def contradiction(self) -> str | None:
        """Describe how the effective setup contradicts the requested one; None if it does not."""
        return self._request("observe", Observed).contradiction(self._job.request)

    def dump(self, kind: str) -> dict[str, Path]:
        """Write arrays of the worker as .npy files into the job's scratch folder."""
        reply = self._request("dump", DumpedFiles, kind=kind, folder=str(self._scratch))
        return {name: Path(path) for name, path in reply.files.items()}

    def sample(self, kind: str, *, most: int) -> dict[str, NDArray[np.float64]]:
        """Return at most `most` values of each of the worker's arrays, the same ones in every worker of the model."""
        reply = self._request("sample", SampledValues, kind=kind, most=most, folder=str(self._scratch))
        values = np.load(reply.path)
        ends = np.cumsum(reply.sizes, dtype=np.int64)
        return dict(zip(reply.names, np.split(values, ends[:-1]), strict=True)) if reply.names else {}

    def layer(
        self, name: str, inputs: Mapping[str, NDArray[Any]], upstream: NDArray[Any] | None
    ) -> dict[tuple[str, str], NDArray[Any]]:
        """Run one isolated layer. The keys are ("output", "") and ("input" | "parameter" | "buffer", NAME)."""
        paths: dict[str, str] = {}
        for number, (source, array) in enumerate(inputs.items()):
            paths[source] = self._saved(f"given-{number}", array)
        reply = self._request(
            "layer",
            LayerFiles,
            name=name,
            inputs=paths,
            upstream=None if upstream is None else self._saved("given-upstream", upstream),
            folder=str(self._scratch),
        )
        return {(kind, what): np.load(path) for kind, what, path in reply.files}

    def _saved(self, name: str, array: NDArray[Any]) -> str:
        path = self._scratch / f"{name}.npy"
        np.save(path, array)
        return str(path)

    def layers(self, steps: int) -> InPlaceTimes:
        return self._request("layers", InPlaceTimes, steps=steps)

    def isolated(self, name: str) -> IsolatedPrograms:
        """Prepare one layer so that `isolated_block` can time it."""
        return self._request("isolated", IsolatedPrograms, name=name)

    def isolated_block(self, program: str, *, samples: int, steps_per_sample: int = 1, lead: int = 0) -> BlockTimes:
        return self._request_block("isolated_block", program, samples, steps_per_sample, lead)

    def trace(self, steps: int, path: str = "") -> KernelTrace:
        """Run steps under the framework's own profiler: kernels, calls, device utilization."""
        return self._typed({**self._reply("trace", steps=steps, path=path), "steps": steps}, KernelTrace)

    def ceiling(self, **wanted: str | int) -> None:
        """Prepare the program that `isolated_block` times under the name `wanted["kind"]`; see Backend.ceiling."""
        self._request("ceiling", Reply, wanted=wanted)

    def convolution(self, name: str, direction: str) -> ConvolutionFacts:
        """Prepare one pass of a convolution and list its algorithms."""
        return self._request("convolution", ConvolutionFacts, name=name, direction=direction)

    def attempt(self, algorithm: str) -> Attempt:
        """Run one algorithm of the convolution once, so that `isolated_block` can time it."""
        return self._request("convolution", Attempt, algorithm=algorithm)

    def memory_peak(self, steps: int) -> MemoryPeak:
        return self._request("memory_peak", MemoryPeak, steps=steps)

    def memory_by_layer(self) -> dict[str, MemoryOfLayer]:
        return dict(self._request("memory_by_layer", MemoryByLayer).layers)

    def memory(self) -> Mapping[str, int | Absent]:
        return self._request("memory", MemoryReply).memory

    def close(self) -> Ending:
        """Let the worker exit."""
        self._request("close", Reply)
        try:
            return self._worker.wait(deadline_s=self._deadline_s)
        except ProcessTimeout:
            return self._worker.stop()

    def _request_block(self, what: str, program: str, samples: int, steps_per_sample: int, lead: int) -> BlockTimes:
        """Request a block and time the round trip with the controller's clock."""
        begin_s = time.perf_counter()
        reply = self._reply(what, program=program, samples=samples, steps_per_sample=steps_per_sample, lead=lead)
        waited_s = time.perf_counter() - begin_s
        times = self._typed(reply, BlockTimes)
        may_have_compiled = bool(program) and program not in self._ready
        self._ready.add(program)
        if not self._scripted_clock and not may_have_compiled:
            claimed_s, lead_s = sum(times.step_s) * steps_per_sample, sum(times.step_s) * lead / samples
            self.round_trips.append(RoundTrip(claimed_s=claimed_s, lead_s=lead_s, waited_s=waited_s))
        return times

    def _request(self, what: str, kind: type[R], /, **content: object) -> R:
        return self._typed(self._reply(what, **content), kind)

    def _reply(self, what: str, /, **content: object) -> Mapping[str, Json]:
        """Send a request and return the reply. Raises if the worker failed."""
        self._stage = what
        try:
            deadline_s = self._deadline_s if self._limit_s is None else min(self._deadline_s, self._limit_s)
            self._sent_s = time.perf_counter()
            self._worker.send({"do": what, **content}, deadline_s=deadline_s)
            reply = self._worker.receive(deadline_s=deadline_s)
            self._received_s = time.perf_counter()
        except ProcessTimeout:
            state = self._worker.state()
            self._worker.stop()
            if state is not None and state.is_stopped:
                raise self.frozen() from None
            remedy = "within the time limit; raise it with --timeout"
            if self._limit_s is not None and self._limit_s < self._deadline_s:
                remedy = "in many times what it took before"
            doing = "" if state is None else f" ({state})"
            raise self._failed("timeout", f"no answer to {what} {remedy}{doing}") from None
        except WorkerEnded as gone:
            raise self._ended(gone.ending) from None
        except ProtocolError as error:
            raise self._violated(str(error)) from None
        self._worker.trim_output()
        event = reply.get("event")
        if event == "failed":
            failed = self._typed(reply, Failed)
            if failed.outcome == "missing":
                raise MissingError(f"{failed.reason}{self._environment_note()}")
            raise self._failed(failed.outcome, failed.reason)
        if event != what:
            raise self._violated(f"the worker replied {shown(event)} to {what}")
        return reply

    def _ended(self, ending: Ending) -> JobFailed:
        outcome: Outcome = "oom" if ending.oom_killed else "crashed"
        return self._failed(outcome, str(ending), signal=ending.signal, exit_code=ending.exit_code)

    def _typed(self, reply: Mapping[str, Json], kind: type[R]) -> R:
        try:
            return codec.convert(reply, kind)
        except RefusedInputError as error:
            raise self._violated(f"the worker's reply to {self._stage} is not as the protocol says: {error}") from None

    def _violated(self, reason: str) -> JobFailed:
        """Stop a worker that violates the protocol, since its further replies are unreliable."""
        self._worker.stop()
        return self._failed("crashed", reason)

    def _failed(
        self, outcome: Outcome, reason: str, *, signal: str | None = None, exit_code: int | None = None
    ) -> JobFailed:
        return JobFailed(
            outcome,
            reason + (self._environment_note() if self._stage == "hello" else ""),
            stage=self._stage,
            stderr_tail=self._worker.output_tail(),
            signal=signal,
            exit_code=exit_code,
        )

    def _environment_note(self) -> str:
        return environment_note(self._job.environment)


class Started(Struct, frozen=True, kw_only=True):
    """A worker that nobody has talked to yet, and its scratch folder."""

    worker: WorkerProcess
    scratch: Path


class Spares(Protocol):
    """As runner/standby.py: workers that wait for a job."""

    def take(self, job: Job) -> tuple[Started, ExitStack] | None: ...


@contextmanager
def started_worker(job: Job) -> Generator[Started, None, None]:
    """Start a worker for the job. Leaving the context ends it and every process it started."""
    with scratch_folder() as scratch:
        worker = WorkerProcess.start(
            command_of(job), env=variables_of(job), cwd=scratch, output_path=scratch / "output.txt"
        )
        with worker:
            yield Started(worker=worker, scratch=scratch)


@contextmanager
def talking_to_worker(
    job: Job, *, timeout_s: float, spares: Spares | None = None
) -> Generator[Conversation, None, None]:
    """Talk to a worker for the job: one of the spares, or a new one. Leaving the context ends it and every process it
    started."""
    with ExitStack() as stack:
        taken = None if spares is None else spares.take(job)
        if taken is None:
            started = stack.enter_context(started_worker(job))
        else:
            started = taken[0]
            stack.enter_context(taken[1])
        deadline_s = time.monotonic() + timeout_s
        yield Conversation(started.worker, job, scratch=started.scratch, deadline_s=deadline_s)


def command_of(job: Job) -> list[str]:
    """The worker's command line."""
    return worker_argv(job.environment.command, job.environment.framework, job.environment.version)


def variables_of(job: Job) -> dict[str, str]:
    """Merge the variables of the user, of the environment and of the request; later ones override."""
    environment = job.environment
    given = environment.variables_over(os.environ)
    found = worker_variables(given, environment.framework, environment.version, job.request)
    watts = job.request["power_limit"]
    return found if watts == AUTO else {**found, POWER_LIMIT.decode(): f"{_board(job, found)} {watts}"}


def _board(job: Job, variables: Mapping[str, str]) -> str:
    """The GPU whose power is to be limited, by its UUID."""
    found = uuid_of_board(str(job.request["device"]), variables)
    if isinstance(found, Absent):
        raise MissingError(f"power_limit={job.request['power_limit']}: {found.reason}; leave power_limit out")
    return found


def cache_folder() -> Path:
    """Return the folder for initial weights: DEEPSTONE_CACHE, else the user's cache folder."""
    named = os.environ.get("DEEPSTONE_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deepstone"


def chosen_cpus(request: Request) -> list[int] | None:
    """The CPUs that a process is bound to, None for all. MissingError where this process may not use one of them."""
    affinity, usable = str(request["affinity"]), sorted(os.sched_getaffinity(0))
    if affinity == AUTO:
        return None
    if affinity in PLACEMENTS:
        asked = request["threads"]
        return placed_on(affinity, usable, len(usable) if asked == AUTO else int(asked))
    cpus = cpu_list(affinity)
    if not set(cpus) <= set(usable):
        raise MissingError(f"affinity={affinity}: this process may use CPUs {usable} only")
    return cpus


def environment_note(environment: Environment) -> str:
    """Name the environment, unless it is Deepstone's own, since it may be why the worker does not start."""
    return "" if environment.kind == "own" else f" (environment {environment.name}: {environment.program})"
