"""What is tuned: a model, the facts about this machine that shape the space, and how to look at one of its points."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, get_args

import psutil
from msgspec import Struct
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.backends.registry import BEST_FIRST, backend_of
from deepstone.environments.environment import Environment
from deepstone.environments.find import find_environment, installed
from deepstone.errors import MissingError, UsageError
from deepstone.exchange.load import load_model
from deepstone.graph.ops import BatchNorm
from deepstone.launchers.allocators import installed_allocators
from deepstone.measure.training import disagreement, fault_in_record, same_training
from deepstone.models.load import LoadedModel
from deepstone.results.advice import Facts as AdviceFacts
from deepstone.results.findings import Finding
from deepstone.results.identity import task_id
from deepstone.results.layers import LayerTable
from deepstone.results.parallel import Parallel, RankFacts
from deepstone.results.record import Draft, Energy, WorkloadPhase
from deepstone.results.tune import SameLevel
from deepstone.runner.assemble import now
from deepstone.runner.findings import layers_finding, storable_finding
from deepstone.runner.job import Job, Machine
from deepstone.runner.layers.measure import LayersEffort
from deepstone.runner.look import TOO_SLOW, look_at
from deepstone.runner.measurement import OnProgress, no_progress
from deepstone.runner.new_job import make_job
from deepstone.runner.rank_memory import planned_bytes
from deepstone.runner.standby import Standby
from deepstone.setups.axes import AUTO, AXES, FAKE, FORWARD_ONLY, ISA_ORDER, Value
from deepstone.setups.request import Choices, Request, as_words, complete, parse_words
from deepstone.setups.tuning import DeviceKind, Facts, Tuning
from deepstone.setups.world import OF_SEVERAL, Parts, World
from deepstone.tuner.advice import Setup, starts
from deepstone.tuner.facts import facts_of, units_of_cpu, units_of_gpu
from deepstone.tuner.space import Point, Space, make_space
from deepstone.tuner.words import expand_ranges
from deepstone.units import bytes_

_NEED_MARGIN: Final = 1.5  # of the analytic need: workspaces, fragmentation
_NO_ROOM: Final = "1.5 x the analytic need does not fit the memory"
_BEYOND: Final = "1.5 x the analytic need is more than the limit of memory, {} allowed"
_NARROW: Final = ("bf16-mixed", "fp16-mixed", "bf16", "fp16")
# Axes of a CPU that take a setup away from the code for narrow numbers, which is many times slower without it.
_WITHOUT_NARROW: Final = {
    "isa": "an older isa has no instructions for narrow numbers, and is many times slower",
    "engine": "a framework's own kernels have no fast code for narrow numbers on a CPU, and are many times slower",
}
_DECIDE_THE_NEED: Final = ("framework", "precision", "optimizer", "checkpointing", "batch", *OF_SEVERAL)
_ISA_OF_FLAG: Final = {
    "avx": "avx",
    "avx2": "avx2",
    "avx512f": "avx512_core",
    "avx512_vnni": "avx512_core_vnni",
    "avx512_bf16": "avx512_core_bf16",
    "avx512_fp16": "avx512_core_fp16",
    "amx_tile": "avx512_core_amx",
}
_ON_GPU_S: Final = 8.0  # what a GPU adds to a start
_AROUND_S: Final = 1.0


class Looked(Struct, frozen=True, kw_only=True):
    """One launch. `reason`: why it has no speed."""

    outcome: str
    reason: str
    samples_per_s: float | None
    samples_per_j: float | Absent
    peak_bytes: int | Absent
    took_s: float
    draft: Draft

    @property
    def first_step_s(self) -> float:
        """With what it compiled; 0 if there was none."""
        if isinstance(self.draft.startup, Absent):
            return 0.0
        first_s = self.draft.startup.get("first_step_s", 0.0)
        return 0.0 if isinstance(first_s, Absent) else first_s

    @property
    def is_too_slow(self) -> bool:
        """Whether the look ended early, because a step took too long."""
        return not isinstance(self.draft.failure, Absent) and self.draft.failure.stage == TOO_SLOW


@dataclass(frozen=True, kw_only=True)
class Workload:
    model: LoadedModel
    reference: str  # the model as the user gave it
    machine: Machine
    space: Space
    options: tuple[str, ...] = ()  # of the command that repeats a look
    environments: Mapping[str, Environment]
    advised: Sequence[Setup] = ()  # the best setup of each framework, by the rules of advice

    @staticmethod
    def of(
        reference: str,
        words: Sequence[str],
        *,
        level: SameLevel = "close",
        limit_bytes: int | None = None,
        saves_memory: bool = False,
        image: tuple[int, int, int] | None = None,
        options: Sequence[str] = (),
        timeout_s: float | None = None,
        seed: int = 0,
    ) -> Workload:
        """Raises UsageError for words that mean no space, MissingError if no framework is installed."""
        choices = _at_batch_of_job(parse_words(expand_ranges(words)))
        named = choices.get("framework", [])
        loaded = load_model(reference, frameworks=named, timeout_s=timeout_s, image=image)
        machine = Machine.here()
        environments = _environments(named, opaque=bool(loaded.graph.opaque))
        facts = _facts(loaded, machine, environments, choices, saves_memory=saves_memory or limit_bytes is not None)
        refusal = _refusal(loaded, machine, facts, environments, limit_bytes, free={*_WITHOUT_NARROW} - {*choices})
        space = make_space(choices, facts, level=level, refusal=refusal, seed=seed)
        if not space.points:
            reason = next(iter(space.excluded), "no framework that is installed runs it")
            raise UsageError(f"no setup of this space can run: {reason}")
        return Workload(
            model=loaded,
            reference=reference,
            machine=machine,
            space=space,
            options=tuple(options),
            environments=environments,
            advised=starts(_facts_for_advice(loaded, machine, facts, choices), model=loaded.name),
        )

    @property
    def machine_name(self) -> str:
        gpu = next(iter(self.machine.gpus), None)
        cpu = f"{self.machine.cpu.model}, {self.machine.usable_cores} cores"
        return f"{gpu.name}, {cpu}" if gpu is not None and self.space.facts.device == "gpu" else cpu

    def job(self, point: Point, repetition: int = 1) -> Job:
        request = self.space.request(point)
        command = ("deepstone", "run", self.reference, *as_words(request), *self.options)
        environment = self.environments.get(self.space.framework(point))
        return make_job(self.model, request, self.machine, command, environment=environment, repetition=repetition)

    def expected_s(self, point: Point, timed_s: float) -> float:
        """A guess of what a look takes; a search learns how far it is off."""
        framework = self.space.framework(point)
        environment = self.environments.get(framework)
        version = "" if environment is None else environment.version
        seconds = _AROUND_S + backend_of(framework.partition("@")[0], version).startup_s + 2 * timed_s
        seconds += _ON_GPU_S if self.space.facts.device == "gpu" else 0.0
        # What a framework does by itself is part of its start.
        for axis, value in zip(self.space.axes, point, strict=True):
            tuning = AXES[axis.name].tuning
            seconds += tuning.startup_s.get(value, 0.0) if isinstance(tuning, Tuning) else 0.0
        return seconds

    def look(
        self,
        point: Point,
        *,
        timed_s: float,
        timeout_s: float,
        slowest_step_s: float = math.inf,
        energy_s: float = 0.0,
        repetition: int = 1,
        standby: Standby | None = None,
        compile_cache: str = "",
        on_progress: OnProgress = no_progress,
    ) -> Looked:
        """One fresh process. Raises MissingError if its framework went away."""
        begin = time.monotonic()
        job = replace(self.job(point, repetition), compile_cache=compile_cache)
        draft = look_at(
            job,
            timed_s=timed_s,
            timeout_s=timeout_s,
            slowest_step_s=slowest_step_s,
            energy_s=energy_s,
            standby=standby,
            on_progress=on_progress,
        )
        return looked(draft, took_s=time.monotonic() - begin)

    def layers(
        self,
        point: Point,
        *,
        budget_s: float,
        timeout_s: float,
        compile_cache: str = "",
        on_progress: OnProgress = no_progress,
    ) -> Finding:
        """Time its layers inside whole steps; it can be stored. Raises MissingError if its framework went away."""
        job, method = self.job(point), "in-place"
        options = (*self.options, "--method", method, "--budget", f"{budget_s:g}")
        command = ("deepstone", "layers", self.reference, *as_words(job.request), *options)
        job = replace(job, command=command, compile_cache=compile_cache)
        effort = LayersEffort(budget_s=budget_s, timeout_s=timeout_s, isolated=False)
        started_at = now()
        found = layers_finding(job, effort, on_progress)
        task = task_id(LayerTable.KIND, job.identity, method)
        return storable_finding(found, job, task=task, started_at=started_at)


def _at_batch_of_job(choices: Choices) -> Choices:
    """With `batch=8/process` as the batch of the whole job, which all setups of a search share. Raises UsageError where
    it would change from setup to setup."""
    batches = choices.get("batch", [])
    if not any(isinstance(batch, str) for batch in batches):
        return choices
    if len(choices.get("processes", [])) != 1:
        raise UsageError(
            "batch: tune searches over processes too, so give the batch of the whole job, as batch=32, or one value of "
            "processes"
        )
    others = {name: values[0] for name, values in choices.items() if name != "batch"}
    of_job = [complete({**others, "batch": batch})["batch"] for batch in batches]
    if len(set(of_job)) < len(of_job):
        raise UsageError(f"batch={','.join(map(str, batches))}: a batch of the whole job is listed twice")
    return {**choices, "batch": of_job}


def looked(draft: Draft, *, took_s: float) -> Looked:
    summary, reason = draft.summary, ""
    speed = None if isinstance(summary, Absent) else summary.samples_per_s.median
    if draft.outcome != "ok":
        speed, reason = None, draft.outcome if isinstance(draft.failure, Absent) else draft.failure.reason
    elif (training := draft.training) is not None and not isinstance(training, Absent):
        phase, precision = draft.workload.phase, draft.setup.value("precision")
        reason = fault_in_record(training, phase=phase, precision=precision) or _not_training(draft)
        speed = None if reason else speed
    return Looked(
        outcome=draft.outcome,
        reason=reason,
        samples_per_s=speed,
        samples_per_j=draft.energy.samples_per_j if isinstance(draft.energy, Energy) else draft.energy,
        peak_bytes=peak_bytes(draft),
        took_s=took_s,
        draft=draft,
    )


def _not_training(draft: Draft) -> str:
    """Why the steps that were timed are not shown to train; empty if they are."""
    return next((doubt.detail for doubt in draft.doubts if doubt.code == "not_training"), "")


def other_training(reference: Draft, draft: Draft) -> str:
    """Why the first steps of a launch are not the training of the reference; empty if there is no sign of it."""
    if draft.outcome != "ok" or not same_training(reference.setup.requested, draft.setup.requested):
        return ""
    precisions = (reference.setup.value("precision"), draft.setup.value("precision"))
    return disagreement(reference.training, draft.training, precisions, ("the default", "this setup"))


def peak_bytes(draft: Draft) -> int | Absent:
    """What counts against the memory of the machine. On GPUs, one for each process, it is what arrays and
    workspaces took in the process that had most. All frameworks tell it; what they reserve beside it says how they
    allocate. On the host it is what all processes of a node took together; pages that they share count for each."""
    if isinstance(draft.memory, Absent):
        return draft.memory
    on_device = draft.memory.get("device_allocated_bytes", Absent("the framework does not tell its memory on the GPU"))
    if isinstance(on_device, int) or draft.setup.value("device").startswith("gpu"):
        return on_device
    if isinstance(draft.parallel, Parallel) and draft.parallel.ranks:
        return _host_bytes_of_node(draft.parallel.ranks)
    value = draft.memory.get("host_peak_bytes")
    return value if isinstance(value, int) else Absent("the framework does not tell its memory")


def _host_bytes_of_node(ranks: Sequence[RankFacts]) -> int | Absent:
    """Of the node whose processes took most."""
    by_node: dict[int, int] = {}
    for rank in ranks:
        if isinstance(rank.host_peak_bytes, Absent):
            return Absent(f"rank {rank.rank}: {rank.host_peak_bytes.reason}")
        by_node[rank.node] = by_node.get(rank.node, 0) + rank.host_peak_bytes
    return max(by_node.values())


def _environments(named: Sequence[Value], *, opaque: bool) -> dict[str, Environment]:
    """By name, those that are searched: the ones that the user names, else every current one; the best first."""
    if named and named != [AUTO]:
        return {str(name): find_environment(str(name)) for name in named}
    auto = find_environment(AUTO)
    there = installed()
    names = [auto.framework, *(name for name in BEST_FIRST if name != auto.framework)]
    found = {name: environment for name in names if (environment := there.get(name)) is not None}
    usable = {name: environment for name, environment in found.items() if environment.program.exists()}
    if opaque:
        usable = {name: each for name, each in usable.items() if backend_of(name, each.version).own_modules}
        if not usable:
            raise MissingError("a torch module of your own needs torch; from the clone: pip install -e '.[torch]'")
    return usable


def _facts(
    model: LoadedModel,
    machine: Machine,
    environments: Mapping[str, Environment],
    choices: Choices,
    *,
    saves_memory: bool,
) -> Facts:
    first = next(iter(environments.values()))
    batch = choices.get("batch", [AXES["batch"].default])
    smallest = min(map(int, batch))
    return Facts(
        device=_device(machine, first, choices),
        cores=machine.usable_cores,
        gpus=len(machine.gpus),
        frameworks=tuple(name for name in environments if _trains(name, choices)),
        isa=_isa(machine),
        allocators=installed_allocators(os.environ),
        batch=smallest,
        has_batch_norm=bool(model.graph.opaque) or any(isinstance(each.op, BatchNorm) for each in model.graph.layers),
        saves_memory=saves_memory,
    )


def _facts_for_advice(model: LoadedModel, machine: Machine, facts: Facts, choices: Choices) -> AdviceFacts:
    phase = choices.get("phase", [AXES["phase"].default])[0]
    return facts_of(
        model.graph,
        device=facts.device,
        phase=next(each for each in get_args(WorkloadPhase) if each == phase),
        batch=facts.batch,
        cores=facts.cores,
        matrix_units=units_of_cpu(machine.cpu) if facts.device == "cpu" else units_of_gpu(machine.gpus),
    )


def _trains(framework: str, choices: Choices) -> bool:
    return framework.partition("@")[0] not in FORWARD_ONLY or choices.get("phase") == ["forward"]


def _device(machine: Machine, environment: Environment, choices: Choices) -> DeviceKind:
    asked = choices.get("device", [AUTO])
    if len(asked) > 1:
        raise UsageError("device: tune takes one device; call it once for each")
    if asked[0] == AUTO:
        uses_gpu = bool(machine.gpus) and environment.can_use_gpu and environment.framework != FAKE
        return "gpu" if uses_gpu else "cpu"
    return "cpu" if asked[0] == "cpu" else "gpu"


def _isa(machine: Machine) -> tuple[str, ...]:
    flags = machine.cpu.flags if isinstance(machine.cpu.flags, list) else []
    found = {_ISA_OF_FLAG[flag] for flag in flags if flag in _ISA_OF_FLAG}
    return tuple(isa for isa in ISA_ORDER if isa in found)


def _refusal(
    model: LoadedModel,
    machine: Machine,
    facts: Facts,
    environments: Mapping[str, Environment],
    limit_bytes: int | None,
    *,
    free: Collection[str],
) -> Callable[[Request], str | None]:
    """Refuses what the rules refuse, requests whose need, with a margin, exceeds the memory or the limit, and what
    nobody asked for and takes minutes to say that it is slow. `free`: the axes whose values the user did not give."""
    room = _room_bytes(machine, facts)
    beyond_limit = "" if limit_bytes is None else _BEYOND.format(bytes_(limit_bytes))

    def job_of(request: Request) -> Job:
        environment = environments[str(request["framework"])]
        return Job(model=model, request=request, environment=environment, machine=machine, command=())

    @cache
    def need(chosen: tuple[tuple[str, Value], ...]) -> int:
        request = complete(dict(chosen))
        job, world = job_of(request), World.of(request)
        if not world.is_parallel:
            return job.memory_of(job.batch // Parts.of(request).count).total_bytes
        ranks = [each for each in planned_bytes(job) if isinstance(each, int)]
        return sum(ranks) // world.nodes if facts.device == "cpu" else max(ranks, default=0)

    def refusal(request: Request) -> str | None:
        broken = job_of(request).broken_rule
        if broken is None and facts.device == "cpu" and request["precision"] in _NARROW:
            broken = next((_WITHOUT_NARROW[name] for name in sorted(free) if request[name] != AUTO), None)
        if broken is not None or model.graph.opaque:
            return broken
        here = need(tuple((name, request[name]) for name in _DECIDE_THE_NEED))
        if limit_bytes is not None and _NEED_MARGIN * here > limit_bytes:
            return beyond_limit
        return _NO_ROOM if _NEED_MARGIN * here > room else None

    return refusal


def _room_bytes(machine: Machine, facts: Facts) -> int:
    if facts.device == "gpu":
        return min(machine.gpu_memory_bytes, default=2**62)
    return psutil.virtual_memory().available
