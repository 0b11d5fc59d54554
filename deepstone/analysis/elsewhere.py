"""Finds the runs of planned jobs among records of another machine: the same model, workload, setup and round.

So an answer can be given again from published records, where nothing can be measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from deepstone.results.environment import Cpu, Machine
from deepstone.results.identity import canonical_identity, canonical_json
from deepstone.results.record import Identity, Record

_Place: TypeAlias = tuple[str, str]  # machine and environment


def runs_elsewhere(jobs: Mapping[str, Identity], records: Iterable[Record]) -> dict[str, Record]:
    """By job: its last successful run. All are of one machine and environment, those with most of the jobs."""
    wanted = {_what(canonical_identity(identity)): job for job, identity in jobs.items()}
    found: dict[_Place, dict[str, Record]] = {}
    for record in records:
        job = wanted.get(_what(canonical_identity(record.identity)))
        if job is not None and record.outcome == "ok":
            place = record.identity.machine_sha, record.identity.environment_sha
            found.setdefault(place, {})[job] = record
    return max(found.values(), key=len) if found else {}


def cores_of(records: Sequence[Record]) -> int | None:
    """Those that the first machine of these may use, if it tells."""
    for record in records:
        machine = record.environment.machine
        if isinstance(machine, Machine) and isinstance(machine.cpu, Cpu) and isinstance(machine.cpu.usable_cores, int):
            return machine.cpu.usable_cores
    return None


def _what(identity: Identity) -> str:
    """What is measured, wherever that is."""
    content = identity.to_json()
    return canonical_json({name: content[name] for name in ("graph_sha", "workload", "requested", "repetition")})
