"""What is known of each machine that runs or findings come from. Neither host nor user is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from deepstone.absent import Absent
from deepstone.results.environment import Machine
from deepstone.results.findings import Finding
from deepstone.results.record import Record
from deepstone.results.view import words
from deepstone.setups.axes import AUTO
from deepstone.units import bytes_

_GPUS_TOLD: Final = 16

Fact = TypeVar("Fact")


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineFacts:
    """`facts` are labels and words; `counts` are the numbers among them, by a name with the unit."""

    name: str
    facts: tuple[tuple[str, str], ...]
    counts: tuple[tuple[str, float], ...]


def machines_of(
    records: Sequence[Record], names: Mapping[str, str], findings: Iterable[Finding]
) -> tuple[MachineFacts, ...]:
    """One for each machine with runs; where there are none, what the findings tell. `names` are of runs, by id."""
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
    # Which framework it was, a failed run may not know.
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
    cpu = _known(machine.cpu)
    name = gpus[0] if gpus else (_known(cpu.model) if cpu else None) or "one machine"
    return MachineFacts(name=name, facts=_hardware(machine), counts=_counts(machine))


def _known(fact: Fact | Absent | None) -> Fact | None:
    return None if isinstance(fact, Absent) else fact


def _counts(machine: Machine) -> tuple[tuple[str, float], ...]:
    cpu = _known(machine.cpu)
    counts = (("cores", _known(cpu.usable_cores) if cpu else None), ("memory_bytes", _known(machine.memory_bytes)))
    return tuple((name, value) for name, value in counts if value)


def _hardware(machine: Machine) -> tuple[tuple[str, str], ...]:
    cpu, memory = _known(machine.cpu), _known(machine.memory_bytes)
    cores = _known(cpu.usable_cores) if cpu else None
    facts = [
        ("processor", ", ".join(word for word in (_known(cpu.model), f"{cores} cores" if cores else "") if word))
        if cpu
        else ("processor", ""),
        ("accelerator", ", ".join(_gpus(machine))),
        ("memory", bytes_(memory) if memory else ""),
        ("system", _system(machine)),
    ]
    return tuple((label, words) for label, words in facts if words)


def _gpus(machine: Machine) -> list[str]:
    found: list[str] = []
    for gpu in (_known(machine.gpus) or ())[:_GPUS_TOLD]:
        size, driver = _known(gpu.memory_bytes), _known(gpu.driver)
        words = (_known(gpu.name), bytes_(size) if size else "", f"driver {driver}" if driver else "")
        found.append(" ".join(word for word in words if word))
    return found


def _system(machine: Machine) -> str:
    system, virtual = _known(machine.os), _known(machine.virtualized)
    words = [_known(system.distribution), _known(system.kernel)] if system else []
    return ", ".join(word for word in (*words, f"virtual ({virtual})" if virtual else "") if word)
