"""What a record tells about its run: the value of each axis, the release of its framework, the name of its machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from deepstone.absent import Absent
from deepstone.results.environment import Cpu, Environment, Gpu, Machine
from deepstone.results.parts import Json
from deepstone.results.record import Record
from deepstone.setups.axes import AUTO, FRAMEWORKS
from deepstone.setups.request import Request, complete

DeviceKind: TypeAlias = Literal["cpu", "gpu"]

MACHINE: Final = "machine"
ENVIRONMENT: Final = "environment"
_SHA_SHOWN: Final = 4
_NOISE: Final = ("(R)", "(TM)", "(r)", "(tm)", "CPU ", "Processor")


def full_request(record: Record) -> Request:
    """What was asked for, with the axes too that did not exist when the record was written."""
    asked = record.setup.requested
    return {**complete(asked), **asked}


def value_of(record: Record, axis: str) -> str | int | float | bool:
    """What was asked for; where that was `auto`, what came of it, if the run came so far. A framework by its name."""
    asked = full_request(record).get(axis, "")
    effect = record.setup.effective.get(axis)
    value = asked if asked != AUTO or effect is None else effect.value
    if axis != "framework":
        return value
    return _installed(record) if value == AUTO else str(value).partition("@")[0]


def version_of(record: Record) -> str:
    """Of the framework, without the name of its build (2.11.0+cpu and 2.11.0+cu130 are one version)."""
    framework = _framework_facts(record.environment)
    version = framework.get("version") or framework.get(str(value_of(record, "framework")), "")
    return str(version).partition("+")[0]


def asked_framework(record: Record) -> str:
    """As one types it: torch, or torch@1.1.0 where a version was asked for."""
    asked = str(record.setup.requested.get("framework", AUTO))
    return asked if "@" in asked else str(value_of(record, "framework"))


def release_of(record: Record) -> str:
    """What tells releases of one framework apart: its version, and the variant where one was asked for."""
    label = asked_framework(record).partition("@")[2].partition("+")[0]
    return label or version_of(record)


def year_of(record: Record) -> int | Absent:
    """Of the release of the framework."""
    year = record.environment.year
    return Absent("its record was written before records told the year") if year is None else year


def machine_names(records: Iterable[Record]) -> dict[tuple[str, str], str]:
    """The name of every machine and kind of device, by `machine_key`; where two would be called the same, numbered."""
    names: dict[tuple[str, str], str] = {}
    for record in records:
        key = machine_key(record)
        if key not in names:
            names[key] = machine_name(record)
    taken = list(names.values())
    return {key: name if taken.count(name) == 1 else f"{name} [{key[0][:_SHA_SHOWN]}]" for key, name in names.items()}


def machine_key(record: Record) -> tuple[str, DeviceKind]:
    return record.identity.machine_sha, device_kind(record.environment, str(value_of(record, "device")))


def machine_name(record: Record) -> str:
    return device_name(record.environment, str(value_of(record, "device")))


def device_kind(environment: Environment, device: str) -> DeviceKind:
    """A run that failed early may not tell which device `auto` would have taken: a GPU where there is one."""
    return "gpu" if device.startswith("gpu") or (device == AUTO and gpus_of(environment)) else "cpu"


def device_name(environment: Environment, device: str) -> str:
    """What a machine is called, by what did the work: as in "NVIDIA H200" or "Intel Xeon, 2 cores"."""
    if device_kind(environment, device) == "gpu":
        named = [gpu.name for gpu in gpus_of(environment)]
        named.append(str(_framework_facts(environment).get("gpu", "")))
        return next((name for name in named if name and not isinstance(name, Absent)), "a GPU")
    cpu = cpu_of(environment)
    model = _plain("CPU" if cpu.model is None or isinstance(cpu.model, Absent) else cpu.model)
    cores = usable_cores(environment)
    if cores is None:
        return model
    return f"{model}, {cores} core" if cores == 1 else f"{model}, {cores} cores"


def usable_cores(environment: Environment) -> int | None:
    """None where it is not told."""
    cores = cpu_of(environment).usable_cores
    return None if isinstance(cores, Absent) else cores


def cpu_of(environment: Environment) -> Cpu:
    cpu = environment.machine.cpu if isinstance(environment.machine, Machine) else None
    return cpu if isinstance(cpu, Cpu) else Cpu()


def gpus_of(environment: Environment) -> Sequence[Gpu]:
    gpus = environment.machine.gpus if isinstance(environment.machine, Machine) else None
    return () if gpus is None or isinstance(gpus, Absent) else gpus


def _framework_facts(environment: Environment) -> Mapping[str, Json]:
    return {} if isinstance(environment.framework, Absent) else environment.framework


def _installed(record: Record) -> str:
    """What `auto` took, where the run failed before it could tell: the framework that its environment holds."""
    versions = _framework_facts(record.environment)
    return next((name for name in FRAMEWORKS if name in versions), AUTO)


def _plain(model: str) -> str:
    for noise in _NOISE:
        model = model.replace(noise, "")
    return " ".join(model.split()) or "CPU"
