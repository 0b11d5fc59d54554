"""A place is one device of one machine. Verdicts are given for each place."""

from __future__ import annotations

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.analysis.facts import DeviceKind, device_kind, device_name, machine_key, usable_cores, value_of
from deepstone.hardware.machine import machine_sha
from deepstone.results.environment import Environment
from deepstone.results.record import Record


class Place(Struct, frozen=True, kw_only=True):
    """`cores` is None if the record does not have it."""

    machine: str  # the hash that comparable machines share, or why it is not known
    kind: DeviceKind
    name: str
    cores: int | None

    @property
    def key(self) -> tuple[str, str]:
        return self.machine, self.kind


def place_of_record(record: Record) -> Place:
    machine, _ = machine_key(record)
    return _place(machine, record.environment, str(value_of(record, "device")))


def place_of_finding(environment: Environment | None, device: str) -> Place | None:
    """Return None if the finding does not describe its machine."""
    if environment is None or isinstance(environment.machine, Absent) or environment.machine.cpu is None:
        return None
    try:
        machine = machine_sha(environment.machine)
    except (KeyError, TypeError):
        machine = "a machine that is not fully described"
    return _place(machine, environment, device)


def _place(machine: str, environment: Environment, device: str) -> Place:
    return Place(
        machine=machine,
        kind=device_kind(environment, device),
        name=device_name(environment, device),
        cores=usable_cores(environment),
    )
