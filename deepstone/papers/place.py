"""Where something was measured: one device of one machine. Verdicts are given for each place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from deepstone.analysis.machines import machine_key, machine_name
from deepstone.hardware.machine import machine_sha
from deepstone.records.schema import Record


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """`kind` is cpu or gpu. `cores` and `numa_nodes` are None where the record does not tell."""

    machine: str  # what makes two machines count as one, or why that is not known
    kind: str
    name: str
    cores: int | None
    numa_nodes: int | None

    @property
    def key(self) -> tuple[str, str]:
        return self.machine, self.kind

    @property
    def words(self) -> str:
        return self.name


def place_of_record(record: Record) -> Place:
    machine, kind = machine_key(record)
    return _place(machine, kind, machine_name(record), record["environment"])


def place_of_finding(finding: Mapping[str, Any]) -> Place | None:
    """None where the finding tells nothing of its machine."""
    environment = cast(Mapping[str, Any], finding.get("environment", {}))
    machine = environment.get("machine")
    if not isinstance(machine, dict) or "cpu" not in machine:
        return None
    device = _device(finding)
    # As the record of a run has it, so that both are named by the same function.
    alike: Any = {
        "setup": {"requested": {"device": device}, "effective": {}},
        "environment": environment,
        "identity": {"machine_sha": _sha(cast(dict[str, Any], machine))},
    }
    key, kind = machine_key(alike)
    return _place(key, kind, machine_name(alike), environment)


def _device(finding: Mapping[str, Any]) -> str:
    if isinstance(finding.get("device"), str):
        return finding["device"]
    effective = finding.get("setup", {}).get("effective", {})
    return str(effective.get("device", {}).get("value", "cpu"))


def _sha(machine: Mapping[str, Any]) -> str:
    try:
        return machine_sha(machine)
    except (KeyError, TypeError):
        return "a machine that is not fully described"


def _place(machine: str, kind: str, name: str, environment: Mapping[str, Any]) -> Place:
    facts = _mapping(_mapping(environment.get("machine")).get("cpu"))
    cores, nodes = facts.get("usable_cores"), facts.get("numa_nodes")
    return Place(
        machine=machine,
        kind=kind,
        name=name,
        cores=cores if isinstance(cores, int) else None,
        numa_nodes=nodes if isinstance(nodes, int) else None,
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}
