"""In which axes two runs differ: as asked for, and where `auto` was asked for, as it came out.

`machine` and `environment` (the versions that a framework was installed with) count as axes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from deepstone.absent import Absent
from deepstone.records.schema import Record
from deepstone.setups.axes import AUTO, AXES, FRAMEWORKS

MACHINE: Final = "machine"
ENVIRONMENT: Final = "environment"


@dataclass(frozen=True, kw_only=True, slots=True)
class Differences:
    """`axes`: what was chosen differently. `follow`: what both left to the framework, and it chose differently."""

    axes: tuple[str, ...]
    follow: tuple[str, ...]


def differences(a: Record, b: Record) -> Differences:
    """Nothing is said here about whether two runs may be compared at all; that is for `contrast`."""
    asked_a, asked_b = a["setup"]["requested"], b["setup"]["requested"]
    axes: list[str] = []
    follow: list[str] = []
    for axis in _axes_of(a, b):
        if value_of(a, axis) != value_of(b, axis):
            (follow if asked_a.get(axis) == asked_b.get(axis) else axes).append(axis)
    other_machine = a["identity"]["machine_sha"] != b["identity"]["machine_sha"]
    axes += [MACHINE] if other_machine else []
    axes += [ENVIRONMENT] if "framework" not in (*axes, *follow) and _other_versions(a, b, other_machine) else []
    if "framework" in follow:  # auto took another framework: that is what differs, and what follows comes from it
        follow.remove("framework")
        axes.insert(0, "framework")
    if not axes:  # nothing was chosen differently, so nothing explains these
        return Differences(axes=tuple(follow), follow=())
    return Differences(axes=tuple(axes), follow=tuple(follow))


def value_of(record: Record, axis: str) -> str | int:
    """What was asked for; where that was `auto`, what came of it, if the run came so far. A framework by its name."""
    asked = record["setup"]["requested"].get(axis, AXES[axis].default if axis in AXES else "")
    effect = record["setup"]["effective"].get(axis)
    value: Any = asked if asked != AUTO or effect is None else effect["value"]
    if axis != "framework":
        return value
    return _installed(record) if value == AUTO else str(value).partition("@")[0]


def version_of(record: Record) -> str:
    """Of the framework, without the name of its build (2.11.0+cpu and 2.11.0+cu130 are one version)."""
    framework: Mapping[str, Any] = record["environment"].get("framework", {})
    version = framework.get("version") or framework.get(str(value_of(record, "framework")), "")
    return str(version).partition("+")[0]


def asked_framework(record: Record) -> str:
    """As one types it: torch, or torch@1.1.0 where a version was asked for."""
    asked = str(record["setup"]["requested"].get("framework", AUTO))
    return asked if "@" in asked else str(value_of(record, "framework"))


def release_of(record: Record) -> str:
    """What tells releases of one framework apart: its version, and the variant where one was asked for."""
    label = asked_framework(record).partition("@")[2].partition("+")[0]
    return label or version_of(record)


def year_of(record: Record) -> int | Absent:
    """Of the release of the framework."""
    year: Any = record["environment"].get("year")
    if isinstance(year, int):
        return year
    told: Any = cast(Mapping[str, Any], year).get("absent") if isinstance(year, Mapping) else None
    return Absent(str(told or "its record was written before records told the year"))


def _installed(record: Record) -> str:
    """What `auto` took, where the run failed before it could tell: the framework that its environment holds."""
    versions: Mapping[str, Any] = record["environment"].get("framework", {})
    return next((name for name in FRAMEWORKS if name in versions), AUTO)


def _axes_of(*records: Record) -> Iterable[str]:
    known = dict.fromkeys(AXES)
    for record in records:
        known |= dict.fromkeys(record["setup"]["requested"])
    return known


def _other_versions(a: Record, b: Record, other_machine: bool) -> bool:
    """Two machines never have the same build of everything, so between them the version of the framework decides."""
    if other_machine:
        return version_of(a) != version_of(b)
    return a["identity"]["environment_sha"] != b["identity"]["environment_sha"]
