"""What is known of each machine that runs or findings come from. Neither host nor user is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from deepstone.analysis.machines import machine_key, machine_names
from deepstone.records.schema import Record
from deepstone.report.lookup import inner, number_at, text_at
from deepstone.report.setup_words import effective
from deepstone.report.wording import harmless
from deepstone.setups.axes import AUTO
from deepstone.units import bytes_

_GPUS_TOLD: Final = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineFacts:
    """`facts` are labels and words."""

    name: str
    facts: tuple[tuple[str, str], ...]


def machines_of(records: Sequence[Record], findings: Iterable[Mapping[str, Any]]) -> tuple[MachineFacts, ...]:
    """One for each machine with runs; where there are none, what the findings tell."""
    names = machine_names(records)
    by_machine: dict[str, list[Record]] = {}
    for record in records:
        by_machine.setdefault(record["identity"]["machine_sha"], []).append(record)
    found = [_of_runs(own, names) for own in by_machine.values()]
    if found:
        return tuple(found)
    described = [machine for each in findings if (machine := inner(each, "environment", "machine")) is not None]
    told = (MachineFacts(name=_hardware_name(machine), facts=tuple(_hardware(machine))) for machine in described)
    return tuple(dict.fromkeys(told))


def _of_runs(records: Sequence[Record], names: Mapping[tuple[str, str], str]) -> MachineFacts:
    keys = dict.fromkeys(machine_key(record) for record in records)
    machine = records[0]["environment"].get("machine")
    found = dict.fromkeys(effective(record, "framework").replace("@", " ") for record in records)
    frameworks = ", ".join(
        name for name in found if name not in ("", AUTO)
    )  # which one it was, a failed run may not know
    return MachineFacts(
        name=harmless(" · ".join(dict.fromkeys(names[key] for key in keys))),
        facts=(*_hardware(machine), ("frameworks", frameworks), ("runs", _runs(records))),
    )


def _runs(records: Sequence[Record]) -> str:
    days = sorted({record["started_at"][:10] for record in records})
    good = sum(record["outcome"] == "ok" for record in records)
    failed = f", {len(records) - good:,} failed" if good < len(records) else ""
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{good:,}{failed} · {span}"


def _hardware_name(machine: object) -> str:
    gpus = _gpus(machine)
    return gpus[0] if gpus else text_at(machine, "cpu", "model") or text_at(machine, "cpu") or "one machine"


def _hardware(machine: object) -> list[tuple[str, str]]:
    cores = text_at(machine, "cpu", "usable_cores") or text_at(machine, "cores")
    cpu = text_at(machine, "cpu", "model") or text_at(machine, "cpu")
    memory = number_at(machine, "memory_bytes")
    facts = [
        ("processor", ", ".join(word for word in (cpu, f"{cores} cores" if cores else "") if word)),
        ("accelerator", ", ".join(_gpus(machine))),
        ("memory", bytes_(memory) if memory else ""),
        ("system", _system(machine)),
    ]
    return [(label, words) for label, words in facts if words]


def _gpus(machine: object) -> list[str]:
    gpus = inner(machine, "gpus")
    if not isinstance(gpus, list):
        return []
    found: list[str] = []
    for gpu in cast(list[object], gpus)[:_GPUS_TOLD]:
        size = number_at(gpu, "memory_bytes")
        driver = text_at(gpu, "driver")
        words = (text_at(gpu, "name"), bytes_(size) if size else "", f"driver {driver}" if driver else "")
        found.append(" ".join(word for word in words if word))
    return found


def _system(machine: object) -> str:
    words = [text_at(machine, "os", "distribution"), text_at(machine, "os", "kernel")]
    words += [f"virtual ({text_at(machine, 'virtualized')})"] if text_at(machine, "virtualized") else []
    return ", ".join(word for word in words if word)
