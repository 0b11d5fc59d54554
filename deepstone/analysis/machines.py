"""What a machine is called in a figure or a sentence: by what did the work, the GPU or the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from deepstone.analysis.differences import value_of
from deepstone.records.schema import Record
from deepstone.setups.axes import AUTO

_SHA_SHOWN: Final = 4
_NOISE: Final = ("(R)", "(TM)", "(r)", "(tm)", "CPU ", "Processor")


def machine_names(records: Iterable[Record]) -> dict[tuple[str, str], str]:
    """The name of every machine and kind of device, by `machine_key`; where two would be called the same, numbered."""
    names: dict[tuple[str, str], str] = {}
    for record in records:
        key = machine_key(record)
        if key not in names:
            names[key] = machine_name(record)
    taken = list(names.values())
    return {key: name if taken.count(name) == 1 else f"{name} [{key[0][:_SHA_SHOWN]}]" for key, name in names.items()}


def machine_key(record: Record) -> tuple[str, str]:
    return record["identity"]["machine_sha"], "gpu" if _on_gpu(record) else "cpu"


def machine_name(record: Record) -> str:
    """As in "NVIDIA H200" or "Intel Xeon, 2 cores"."""
    machine = _part(record["environment"], "machine")
    if _on_gpu(record):
        named = [gpu.get("name") for gpu in _gpus(record)]
        named.append(_part(record["environment"], "framework").get("gpu"))
        return next((str(name) for name in named if name), "a GPU")
    cpu = machine.get("cpu", {})
    described = cast(dict[str, Any], cpu) if isinstance(cpu, dict) else {"model": cpu, **machine}
    model = _plain(str(described.get("model") or "CPU"))
    cores = described.get("usable_cores", described.get("cores"))
    if not isinstance(cores, int):
        return model
    return f"{model}, {cores} core" if cores == 1 else f"{model}, {cores} cores"


def _on_gpu(record: Record) -> bool:
    """A run that failed early may not tell which device `auto` would have taken: a GPU where there is one."""
    device = str(value_of(record, "device"))
    return device.startswith("gpu") or (device == AUTO and bool(_gpus(record)))


def _gpus(record: Record) -> list[dict[str, Any]]:
    listed = _part(record["environment"], "machine").get("gpus")
    return cast(list[dict[str, Any]], listed) if isinstance(listed, list) else []


def _plain(model: str) -> str:
    for noise in _NOISE:
        model = model.replace(noise, "")
    return " ".join(model.split()) or "CPU"


def _part(environment: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = environment.get(name, {})
    return cast(dict[str, Any], part) if isinstance(part, dict) else {}
