"""Facts from a record: the value of each axis, the release of its framework, the name of its machine."""

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
    """Return the request, including axes that did not exist when the record was written."""
    requested = record.setup.requested
    return {**complete(requested), **requested}


def value_of(record: Record, axis: str) -> str | int | float | bool:
    """Return the requested value; for `auto`, the effective one if it is known. A framework is returned by name."""
    requested = full_request(record).get(axis, "")
    effect = record.setup.effective.get(axis)
    value = requested if requested != AUTO or effect is None else effect.value
    if axis != "framework":
        return value
    return _installed(record) if value == AUTO else str(value).partition("@")[0]


def version_of(record: Record) -> str:
    """Return the framework's version without its build tag (2.11.0+cpu and 2.11.0+cu130 are one version)."""
    framework = _framework_facts(record.environment)
    version = framework.get("version") or framework.get(str(value_of(record, "framework")), "")
    return str(version).partition("+")[0]


def asked_framework(record: Record) -> str:
    """Return the requested framework: torch, or torch@1.1.0 if a version was requested."""
    requested = str(record.setup.requested.get("framework", AUTO))
    return requested if "@" in requested else str(value_of(record, "framework"))


def release_of(record: Record) -> str:
    """Return what distinguishes releases of a framework: the version, and the variant if one was requested."""
    label = asked_framework(record).partition("@")[2].partition("+")[0]
    return label or version_of(record)


def year_of(record: Record) -> int | Absent:
    """Return the year in which the framework was released."""
    year = record.environment.year
    return Absent("its record was written before records told the year") if year is None else year


def machine_names(records: Iterable[Record]) -> dict[tuple[str, str], str]:
    """Return the name of every machine and kind of device, by `machine_key`; equal names are numbered."""
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
    """Return the kind of device. A run that failed early may not have it for `auto`: then a GPU if there is one."""
    return "gpu" if device.startswith("gpu") or (device == AUTO and gpus_of(environment)) else "cpu"


def device_name(environment: Environment, device: str) -> str:
    """Name a machine by its device: "NVIDIA H200" or "Intel Xeon, 2 cores"."""
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
    """Return None if it is not known."""
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
    """Return the framework of the environment, for runs that failed before they reported it."""
    versions = _framework_facts(record.environment)
    return next((name for name in FRAMEWORKS if name in versions), AUTO)


def _plain(model: str) -> str:
    for noise in _NOISE:
        model = model.replace(noise, "")
    return " ".join(model.split()) or "CPU"
