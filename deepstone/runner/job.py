"""A job: one model with one complete request, in one environment, on this machine."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import get_args

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.backends.missing import knows_gpus
from deepstone.backends.registry import BACKENDS, backend_of
from deepstone.environments.environment import Environment
from deepstone.graph.cost import COST_UNKNOWN, step_bytes, step_flops
from deepstone.graph.memory import StepMemory, step_memory
from deepstone.graph.space_to_depth import why_not
from deepstone.graph.stages import most_stages
from deepstone.hardware.gpu import may_have_gpu
from deepstone.hardware.machine import describe_machine, machine_sha
from deepstone.models.load import LoadedModel
from deepstone.results import environment as results
from deepstone.results.identity import job_id, without_defaults
from deepstone.results.record import Identity, IdentityWorkload, Workload, WorkloadPhase
from deepstone.setups.axes import AUTO, FAKE, OWN, Value
from deepstone.setups.refusals import MOST_LAYERS_IN_PARTS
from deepstone.setups.request import Request
from deepstone.setups.rules import broken_rule
from deepstone.setups.schemes import stages_per_process
from deepstone.setups.widths import master_bytes, optimizer_slots, value_bytes
from deepstone.setups.world import Parts, World


class Machine(Struct, frozen=True, kw_only=True):
    """The machine that runs jobs: its description in records, and the hash that identifies it."""

    description: results.Machine
    sha: str

    @property
    def gpus(self) -> list[results.Gpu]:
        """Return the GPUs that the driver lists."""
        return self.description.gpus if isinstance(self.description.gpus, list) else []

    @property
    def gpu_memory_bytes(self) -> list[int]:
        """Return the memory of each board for which it is known."""
        return [gpu.memory_bytes for gpu in self.gpus if isinstance(gpu.memory_bytes, int)]

    @property
    def cpu(self) -> results.Cpu:
        assert isinstance(self.description.cpu, results.Cpu), "this machine's own is always described"
        return self.description.cpu

    @property
    def usable_cores(self) -> int:
        assert isinstance(self.cpu.usable_cores, int), "this machine's own are always counted"
        return self.cpu.usable_cores

    @staticmethod
    def here() -> Machine:
        description = describe_machine()
        return Machine(description=description, sha=machine_sha(description))


@cache
def has_unlisted_gpu() -> bool:
    """As `may_have_gpu`, looked for once: a search asks it of thousands of jobs."""
    return may_have_gpu()


class Job(Struct, frozen=True, kw_only=True):
    model: LoadedModel
    request: Request
    environment: Environment
    machine: Machine
    command: tuple[str, ...]
    repetition: int = 1
    mpi: str = ""  # the library by which processes communicate, if that is MPI, as it names itself
    hosts: tuple[str, ...] = ()  # where a launcher is to start the processes; empty: it decides
    compile_cache: str = ""  # the folder of compiled programs that several launches share; empty: the framework's own
    generic_weights: bool = False  # for checks: no weight is 0 or 1, which could hide that a backend ignores it

    @property
    def batch(self) -> int:
        return int(self.request["batch"])

    @property
    def phase(self) -> WorkloadPhase:
        phases: tuple[WorkloadPhase, ...] = get_args(WorkloadPhase)
        return next(phase for phase in phases if phase == self.request["phase"])

    @property
    def identity(self) -> Identity:
        workload = self.workload
        return Identity(
            graph_sha=self.model.graph.sha,
            workload=IdentityWorkload(
                model=workload.model, batch=workload.batch, phase=workload.phase, input=workload.input
            ),
            requested=without_defaults(self.request),
            environment_sha=self.environment.sha,
            machine_sha=self.machine.sha,
            repetition=self.repetition,
            mpi=self.mpi or None,
        )

    @property
    def id(self) -> str:
        return job_id(self.identity)

    @property
    def workload(self) -> Workload:
        step = self.model.graph.own_step
        return Workload(
            model=self.model.name,
            batch=self.batch,
            phase=self.phase,
            input=str(self.request["input"]),
            source=self.model.source,
            file_sha256=self.model.file_sha256,
            sample=None if step is None else "sample",
            unit=step.unit or None if step else None,
            units_per_sample=step.units_per_sample or None if step else None,
        )

    @property
    def flops(self) -> int | Absent:
        if self.model.graph.opaque:
            return COST_UNKNOWN
        input_grad = self.request["input_grad"] == "on"
        return step_flops(self.model.graph, batch=self.batch, phase=self.phase, input_grad=input_grad)

    @property
    def bytes(self) -> int | Absent:
        if self.model.graph.opaque:
            return COST_UNKNOWN
        return step_bytes(self.model.graph, batch=self.batch, phase=self.phase)

    @property
    def memory(self) -> StepMemory:
        """Return the analytic need of a step, layer by layer, without the framework's own memory and workspaces."""
        return self.memory_of(self.batch)

    def memory_of(self, batch: int) -> StepMemory:
        """The same with another batch."""
        precision = str(self.request["precision"])
        return step_memory(
            self.model.graph,
            batch=batch,
            phase=self.phase,
            value_bytes=value_bytes(precision),
            master_bytes=master_bytes(precision),
            optimizer_slots=optimizer_slots(str(self.request["optimizer"])),
            checkpointing=self.request["checkpointing"] == "on",
        )

    @property
    def need_bytes(self) -> int | Absent:
        return COST_UNKNOWN if self.model.graph.opaque else self.memory.total_bytes

    @property
    def broken_rule(self) -> str | None:
        """Return why this job cannot run, as far as the rules can tell without running it."""
        opaque, step = self.model.graph.opaque, self.model.graph.own_step
        framework = self.environment.framework
        if opaque and framework != FAKE and not backend_of(framework, self.environment.version).own_modules:
            able = [name for name, backend in BACKENDS.items() if backend.own_modules]
            frameworks, old = " or ".join(able), f", and {framework} {self.environment.version} is too old for it"
            reason = (
                f"layer {opaque[0].name!r} is a {frameworks} module of your own; only framework={frameworks} runs it"
            )
            return reason + old if framework in able else reason
        if self.request["optimizer"] == OWN and framework != FAKE and not (step and step.own_optimizer):
            return "optimizer=own needs a function optimizer(parameters) in the file of a torch module with INPUTS"
        installed = f"{framework}@{self.environment.version}" if self.environment.version else framework
        of_model = self._no_pipeline or self._no_parts or self._nothing_to_rewrite
        return of_model or broken_rule({**self.request, "framework": installed, "device": self._device})

    @property
    def _device(self) -> Value:
        """The device, where `auto` can only be the CPU: no build for a GPU, or no GPU."""
        asked, framework = self.request["device"], self.environment.framework
        if asked != AUTO or not knows_gpus(framework):
            return asked
        has_gpu = self.environment.can_use_gpu and (self.machine.gpus or has_unlisted_gpu())
        return AUTO if has_gpu else "cpu"

    @property
    def _no_parts(self) -> str | None:
        """Why the network cannot be computed in parts, by its layers or by those of its batch."""
        graph, framework = self.model.graph, self.environment.framework
        if graph.opaque and self.request["checkpointing"] == "on":
            return "checkpointing cuts a network between its layers, and a module of your own is only one"
        most = MOST_LAYERS_IN_PARTS.get(framework)
        if most is not None and len(graph) > most and Parts.of(self.request).count > 1:
            return f"{len(graph)} layers: {framework} computes a network of more than {most} in one process and at once"
        return None

    @property
    def _nothing_to_rewrite(self) -> str | None:
        return None if self.request["space_to_depth"] == "off" else why_not(self.model.graph) or None

    @property
    def _no_pipeline(self) -> str | None:
        """Why the network cannot be cut into the stages of a pipeline."""
        world, parts = World.of(self.request), Parts.of(self.request)
        if world.stages == 1:
            return None
        if self.model.graph.opaque:
            return "a pipeline cuts a network between its layers, and a module of your own is only one"
        asked, most = world.stages * stages_per_process(parts.schedule), most_stages(self.model.graph)
        return f"{asked} stages: {self.model.name} has only {most} layers to cut between" if asked > most else None


def storable(text: str) -> str:
    """Escape characters that no record may contain: surrogates from undecodable bytes, and NUL."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def title(job: Job) -> str:
    """Return a short name of the job for progress and messages."""
    return f"{Path(job.model.name).name} batch={job.batch} {job.phase}"
