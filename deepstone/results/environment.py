"""The environment of a measurement: the machine, the framework, and the variables that configure them."""

from __future__ import annotations

from deepstone.absent import Absent
from deepstone.results.parts import Json, Number, OrAbsent, Part, Table


class Cache(Part, frozen=True, kw_only=True):
    level: int
    type: str
    bytes: int
    shared_by_cores: OrAbsent[int]


class Cpu(Part, frozen=True, kw_only=True):
    model: OrAbsent[str] | None = None
    vendor: OrAbsent[str] | None = None
    microarchitecture: OrAbsent[str] | None = None
    physical_cores: OrAbsent[int] | None = None
    logical_cores: OrAbsent[int] | None = None
    usable_cores: OrAbsent[int] | None = None
    quota_cores: OrAbsent[Number] | None = None
    flags: OrAbsent[list[str]] | None = None
    max_mhz: OrAbsent[Number] | None = None
    caches: OrAbsent[list[Cache]] | None = None
    numa_nodes: OrAbsent[int] | None = None
    governor: OrAbsent[str] | None = None
    turbo: OrAbsent[bool] | None = None
    smt: OrAbsent[bool] | None = None


class Gpu(Part, frozen=True, kw_only=True):
    """The driver's description of a board."""

    index: int
    name: OrAbsent[str] | None = None
    uuid: OrAbsent[str] | None = None
    memory_bytes: OrAbsent[int] | None = None
    driver: OrAbsent[str] | None = None
    cuda_cores: OrAbsent[int] | None = None
    compute_capability: OrAbsent[str] | None = None
    max_sm_clock_mhz: OrAbsent[Number] | None = None
    mig: OrAbsent[bool] | None = None
    mps: OrAbsent[bool] | None = None


class OperatingSystem(Part, frozen=True, kw_only=True):
    kernel: OrAbsent[str] | None = None
    distribution: OrAbsent[str] | None = None


class Machine(Part, frozen=True, kw_only=True):
    hostname: OrAbsent[str] | None = None
    os: OrAbsent[OperatingSystem] | None = None
    virtualized: OrAbsent[str] | None = None
    cpu: OrAbsent[Cpu] | None = None
    memory_bytes: OrAbsent[int] | None = None
    memory_limit_bytes: OrAbsent[int] | None = None
    gpus: OrAbsent[list[Gpu]] | None = None


class Environment(Part, frozen=True, kw_only=True):
    """`framework`: the versions of all its packages, and its own description. `details`: how the framework ran the job.
    Both are in the framework's own terms, so their keys are open."""

    machine: OrAbsent[Machine]
    framework: OrAbsent[Table[Json]]
    details: OrAbsent[Table[Json]] | None = None
    variables: OrAbsent[Table[str]] | None = None
    year: OrAbsent[int] | None = None
    deepstone: OrAbsent[str] | None = None

    def framework_text(self, key: str) -> str:
        """Return the framework's text under this key; empty if there is none."""
        value = None if isinstance(self.framework, Absent) else self.framework.get(key)
        return value if isinstance(value, str) else ""

    @property
    def cpu_model(self) -> str:
        cpu = self.machine.cpu if isinstance(self.machine, Machine) else None
        return cpu.model if isinstance(cpu, Cpu) and isinstance(cpu.model, str) else ""
