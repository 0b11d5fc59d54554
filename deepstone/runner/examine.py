"""Finds out what runs on this machine: it runs tiny jobs in separate workers, so that a crash is a result too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread

from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.backends.registry import BACKENDS
from deepstone.environments.environment import Environment
from deepstone.environments.find import installed
from deepstone.errors import MissingError
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.measure.energy.window import find_meters
from deepstone.models.load import LoadedModel
from deepstone.results import environment as results
from deepstone.results.parts import OrAbsent, Part, Table
from deepstone.runner.conversation import Conversation, JobFailed, talking_to_worker, variables_of
from deepstone.runner.job import Job, Machine
from deepstone.runner.measurement import OnProgress, no_progress
from deepstone.setups.axes import FORWARD_ONLY, Value
from deepstone.setups.request import complete

_PROBE_TIMEOUT_S = 180.0

# Features that crash or fail on some machines: (name, request, remedy).
_FEATURES: tuple[tuple[str, dict[str, Value], str], ...] = (
    (
        "bf16 on the CPU",
        {"device": "cpu", "precision": "bf16-mixed"},
        "use fp32, or isa=avx512_core_fp16, which keeps oneDNN off AMX",
    ),
    ("oneDNN", {"device": "cpu", "engine": "onednn"}, "use engine=native"),
)


class Missing(Part, frozen=True, kw_only=True):
    """Something that this machine lacks, and the remedy."""

    what: str
    why: str
    remedy: str


class CpuDevice(Part, frozen=True, kw_only=True):
    name: str
    what: OrAbsent[str] | None
    cores: int


class GpuDevice(results.Gpu, frozen=True, kw_only=True):
    """A board as the driver describes it. `name` is the name of the device, `what` that of the board."""

    what: OrAbsent[str] | None

    @staticmethod
    def of(board: results.Gpu) -> GpuDevice:
        named = replace(board, name=f"gpu:{board.index}")
        return GpuDevice(what=board.name, **{field: getattr(named, field) for field in named.__struct_fields__})


class Feature(Part, frozen=True, kw_only=True):
    works: bool
    why: str


class Framework(Part, frozen=True, kw_only=True):
    """`features` are tried only if the framework runs."""

    version: str
    runs: bool
    why: str
    features: Table[Feature] | None = None


class MeterFound(Part, frozen=True, kw_only=True):
    covers: str
    meters: list[str]
    update_period_s: float


class Examination(Part, frozen=True, kw_only=True):
    """The result of `deepstone doctor`."""

    machine: results.Machine
    devices: list[CpuDevice | GpuDevice]
    frameworks: Table[Framework]
    meters: Table[OrAbsent[MeterFound]]
    missing: list[Missing]


def examine(on_progress: OnProgress = no_progress, *, at_once: int | None = None) -> Examination:
    """Tries as many things at once as there are cores, or `at_once`: most of a try is waiting for a framework."""
    machine = Machine.here()
    missing: list[Missing] = []
    found = installed()
    tries = [one for name, environment in found.items() if environment for one in _tries(name, environment, machine)]
    answers = dict(zip(tries, _all_tried(tries, machine, at_once or machine.usable_cores, on_progress), strict=True))
    frameworks = {
        name: _framework(name, environment, {one: why for one, why in answers.items() if one.name == name}, missing)
        for name, environment in found.items()
    }
    missing += [Missing(what=each.what, why=each.why, remedy=each.remedy) for each in BACKENDS.broken()]
    return Examination(
        machine=machine.description,
        devices=_devices(machine, missing),
        frameworks=frameworks,
        meters=_meters(machine, missing),
        missing=missing,
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Try:
    """Of a feature, or of the framework itself where that is empty."""

    name: str
    environment: Environment
    request: dict[str, Value]
    feature: str = ""
    remedy: str = ""

    @property
    def title(self) -> str:
        return f"{self.name}, {self.feature}" if self.feature else self.name


def _tries(name: str, environment: Environment, machine: Machine) -> Iterator[_Try]:
    asked: dict[str, Value] = {"framework": environment.framework}
    # On the CPU, where every framework runs: a GPU is a feature, and takes seconds to set up for each process.
    yield _Try(name=name, environment=environment, request={**asked, "device": "cpu"})
    for feature, request, remedy in _features(machine):
        both = {**asked, **request}
        yield _Try(name=name, environment=environment, request=both, feature=feature, remedy=remedy)


def _all_tried(tries: Sequence[_Try], machine: Machine, at_once: int, on_progress: OnProgress) -> list[str]:
    """Why each failed, in their order, or nothing. Those that may share a process do: most of a try is its import.

    Threads die with this process, whatever they wait for, and their workers with it: nothing outlives an interrupt.
    """
    answers: dict[int, str | BaseException] = {}
    to_do: SimpleQueue[list[int]] = SimpleQueue()
    done: SimpleQueue[tuple[int, str | BaseException]] = SimpleQueue()
    groups = _sharing_a_process(tries, machine)
    for numbers in groups:
        to_do.put(numbers)

    def work() -> None:
        with suppress(Empty):
            while True:
                numbers = to_do.get_nowait()
                asked = [tries[number].request for number in numbers]
                try:
                    told = try_requests(tries[numbers[0]].environment, machine, asked)
                except BaseException as error:  # noqa: BLE001 - raised again by who waits for it
                    for number in numbers:
                        done.put((number, error))
                else:
                    for number, answer in zip(numbers, told, strict=True):
                        done.put((number, answer))

    for _ in range(min(at_once, len(groups))):
        Thread(target=work, daemon=True).start()
    while len(answers) < len(tries):
        on_progress(f"tried {len(answers)} of {len(tries)}", len(answers) / len(tries))
        number, answer = done.get()
        answers[number] = answer
        on_progress(f"tried {tries[number].title}", len(answers) / len(tries))
    return [_answered(answers[number]) for number in range(len(tries))]


def _sharing_a_process(tries: Sequence[_Try], machine: Machine) -> list[list[int]]:
    """Numbers of tries: of one framework, on one kind of device, with the same variables."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for number, one in enumerate(tries):
        job = probe_job(one.environment, machine, one.request)
        key = one.name, str(one.request.get("device")), str(sorted(variables_of(job).items()))
        groups.setdefault(key, []).append(number)
    return list(groups.values())


def _answered(answer: str | BaseException) -> str:
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _framework(
    name: str, environment: Environment | None, answers: Mapping[_Try, str], missing: list[Missing]
) -> Framework:
    if environment is None:
        missing.append(Missing(what=f"framework {name}", why="not installed", remedy=BACKENDS[name].remedy))
        return Framework(version="", runs=False, why="not installed")
    why = next(why for one, why in answers.items() if not one.feature)
    if why:
        missing.append(Missing(what=f"framework {name}", why=why, remedy=_remedy(environment)))
        return Framework(version=environment.version, runs=False, why=why)
    features: dict[str, Feature] = {}
    for one, why in answers.items():
        if not one.feature:
            continue
        features[one.feature] = Feature(works=not why, why=why)
        if why and not why.startswith("unsupported"):  # a limitation of the framework, not of this machine
            missing.append(Missing(what=f"{name}: {one.feature}", why=why, remedy=one.remedy))
    return Framework(version=environment.version, runs=True, why="", features=features)


def _remedy(environment: Environment) -> str:
    own = environment.kind == "own"
    return BACKENDS[environment.framework].remedy if own else f"see deepstone env doctor {environment.name}"


def _features(machine: Machine) -> Iterable[tuple[str, dict[str, Value], str]]:
    yield from _FEATURES
    if machine.gpus:
        remedy = "install a build of the framework for this GPU and driver"
        yield "GPU", {"device": "gpu:0"}, remedy


def try_request(environment: Environment, machine: Machine, request: dict[str, Value]) -> str:
    """Run one step of a tiny network, a training step if the framework can train. Return why it failed, or ""."""
    return try_requests(environment, machine, [request])[0]


def try_requests(environment: Environment, machine: Machine, requests: Sequence[dict[str, Value]]) -> list[str]:
    """Try one after the other in one process, and in another one after each that ends it. Return why each failed, or
    ""."""
    answers: list[str] = []
    while len(answers) < len(requests):
        jobs = [probe_job(environment, machine, request) for request in requests[len(answers) :]]
        _try_in_one_process(jobs, answers)
    return answers


def _try_in_one_process(jobs: Sequence[Job], answers: list[str]) -> None:
    """Add the answers up to the first job that ends the process."""
    if jobs[0].broken_rule:
        answers.append(f"unsupported: {jobs[0].broken_rule}")
        return
    try:
        with talking_to_worker(jobs[0], timeout_s=_PROBE_TIMEOUT_S) as conversation:
            conversation.hello()
            for job in jobs:
                reason = job.broken_rule or _unsupported(conversation, job)
                if job is jobs[-1]:  # a crash at the end of the process is the answer of the last one
                    conversation.close()
                answers.append(f"unsupported: {reason}" if reason else "")
    except JobFailed as failure:
        answers.append(f"{failure.outcome}: {failure.reason}")
    except MissingError as error:
        answers.append(str(error))


def _unsupported(conversation: Conversation, job: Job) -> str | None:
    try:
        return conversation.prepare(job).contradiction(job.request)
    except JobFailed as failure:
        if failure.outcome != "unsupported":
            raise
        return failure.reason


def probe_job(environment: Environment, machine: Machine, request: dict[str, Value]) -> Job:
    """Return a job with a tiny network, for callers that need a worker and no particular model."""
    able: dict[str, Value] = {"phase": "forward"} if environment.framework in FORWARD_ONLY else {}
    return Job(
        model=probe_model(),
        request=complete({"batch": 16, **able, **request}),
        environment=environment,
        machine=machine,
        command=("deepstone", "doctor"),
    )


def probe_model() -> LoadedModel:
    graph = _tiny()
    return LoadedModel(graph=graph, name=graph.name, source="zoo", file_sha256="")


def _tiny() -> Graph:
    """Return a network wide enough that libraries take their fast paths, AMX included."""
    b = Builder("probe")
    x = b.input("data", (32, 16, 16))
    x = b.relu("relu", b.conv("conv", x, channels=64, kernel=3, pad=1))
    x = b.dense("dense", b.flatten("flatten", b.global_pool("pool", x)), features=16)
    b.softmax_cross_entropy("loss", x)
    return b.build()


def _devices(machine: Machine, missing: list[Missing]) -> list[CpuDevice | GpuDevice]:
    cpu = CpuDevice(name="cpu", what=machine.cpu.model, cores=machine.usable_cores)
    if not machine.gpus:
        listed = machine.description.gpus
        why = listed.reason if isinstance(listed, Absent) else "the driver lists none"
        missing.append(Missing(what="GPU", why=why, remedy="none needed; everything runs on the CPU"))
    return [cpu, *map(GpuDevice.of, machine.gpus)]


def _meters(machine: Machine, missing: list[Missing]) -> dict[str, MeterFound | Absent]:
    found: dict[str, MeterFound | Absent] = {}
    for device in ("cpu", *(("gpu",) if machine.gpus else ())):
        meters = find_meters("gpu" if device == "gpu" else "cpu")
        if isinstance(meters, Absent):
            found[device] = meters
            missing.append(Missing(what=f"energy of the {device}", why=meters.reason, remedy="run on bare metal"))
            continue
        found[device] = MeterFound(
            covers=", ".join(meter.covers for meter in meters),
            meters=[meter.name for meter in meters],
            update_period_s=max(meter.update_period_s for meter in meters),
        )
        for meter in meters:
            meter.close()
    return found
