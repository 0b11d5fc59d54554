"""Describes each machine of runs or findings, without host and user names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.results.environment import Machine
from deepstone.results.findings import Finding
from deepstone.results.record import Record
from deepstone.results.view import words
from deepstone.setups.axes import AUTO
from deepstone.units import bytes_

_GPUS_LISTED: Final = 16

Fact = TypeVar("Fact")


class MachineFacts(Struct, frozen=True, kw_only=True):
    """A machine. `facts` are labels and texts; `counts` are the numbers among them, by a name with the unit."""

    name: str
    facts: tuple[tuple[str, str], ...]
    counts: tuple[tuple[str, float], ...]


def machines_of(
    records: Sequence[Record], names: Mapping[str, str], findings: Iterable[Finding]
) -> tuple[MachineFacts, ...]:
    """Describe each machine with runs; without runs, the machines of findings. `names` are names of machines by run
    id."""
    by_machine: dict[str, list[Record]] = {}
    for record in records:
        by_machine.setdefault(record.identity.machine_sha, []).append(record)
    if by_machine:
        return tuple(_of_runs(own, names) for own in by_machine.values())
    described = [part.environment.machine for each in findings for part in each.leaves() if part.environment]
    found = [_of_machine(machine) for machine in described if not isinstance(machine, Absent)]
    return tuple(dict.fromkeys(found))


def _of_runs(records: Sequence[Record], names: Mapping[str, str]) -> MachineFacts:
    machine = records[0].environment.machine
    facts, counts = ((), ()) if isinstance(machine, Absent) else (_hardware(machine), _counts(machine))
    # A failed run may not know its framework.
    frameworks = dict.fromkeys(name for record in records if (name := words(record, "framework")) not in ("", AUTO))
    good = sum(record.outcome == "ok" for record in records)
    days = sorted({record.started_at[:10] for record in records})
    failed = f", {len(records) - good:,} failed" if good < len(records) else ""
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return MachineFacts(
        name=" · ".join(dict.fromkeys(names[record.id] for record in records)),
        facts=(*facts, ("frameworks", ", ".join(frameworks)), ("runs", f"{good:,}{failed} · {span}")),
        counts=(*counts, ("runs_ok", good), ("runs_failed", len(records) - good)),
    )


def _of_machine(machine: Machine) -> MachineFacts:
    gpus = _gpus(machine)
    cpu = _present(machine.cpu)
    name = gpus[0] if gpus else (_present(cpu.model) if cpu else None) or "one machine"
    return MachineFacts(name=name, facts=_hardware(machine), counts=_counts(machine))


def _present(fact: Fact | Absent | None) -> Fact | None:
    return None if isinstance(fact, Absent) else fact


def _counts(machine: Machine) -> tuple[tuple[str, float], ...]:
    cpu = _present(machine.cpu)
    counts = (("cores", _present(cpu.usable_cores) if cpu else None), ("memory_bytes", _present(machine.memory_bytes)))
    return tuple((name, value) for name, value in counts if value)


def _hardware(machine: Machine) -> tuple[tuple[str, str], ...]:
    cpu, memory = _present(machine.cpu), _present(machine.memory_bytes)
    cores = _present(cpu.usable_cores) if cpu else None
    facts = [
        ("processor", ", ".join(word for word in (_present(cpu.model), f"{cores} cores" if cores else "") if word))
        if cpu
        else ("processor", ""),
        ("accelerator", ", ".join(_gpus(machine))),
        ("memory", bytes_(memory) if memory else ""),
        ("system", _system(machine)),
    ]
    return tuple((label, words) for label, words in facts if words)


def _gpus(machine: Machine) -> list[str]:
    found: list[str] = []
    for gpu in (_present(machine.gpus) or ())[:_GPUS_LISTED]:
        size, driver = _present(gpu.memory_bytes), _present(gpu.driver)
        words = (_present(gpu.name), bytes_(size) if size else "", f"driver {driver}" if driver else "")
        found.append(" ".join(word for word in words if word))
    return found


def _system(machine: Machine) -> str:
    system, virtual = _present(machine.os), _present(machine.virtualized)
    words = [_present(system.distribution), _present(system.kernel)] if system else []
    return ", ".join(word for word in (*words, f"virtual ({virtual})" if virtual else "") if word)
