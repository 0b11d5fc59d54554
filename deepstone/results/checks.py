"""Checks that the types of a record cannot express: its parts agree, and its names contain no path. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, NoReturn

from deepstone.absent import Absent
from deepstone.errors import RefusedInputError
from deepstone.results.findings import Finding
from deepstone.results.identity import JOB_PART, is_default, job_id
from deepstone.results.paths import holds_path
from deepstone.results.record import PROGRAM, Identity, Launch, Record, Summary, Workload
from deepstone.results.together import are_alike
from deepstone.setups.axes import AXES

TIME_IN_WORDS: Final = "a UTC time like 2026-11-15T03:40:12.123456Z"


def check_record(record: Record) -> None:
    """Raise RefusedInputError for the first mistake."""
    check_time(record.started_at)
    check_command(record.command)
    check_identity(record.identity)
    _check_workload(record.workload)
    _check_request(record.setup.requested, "setup.requested")
    if record.setup.effects is None:
        refuse("setup.effective", "is missing")
    if (record.outcome == "ok") != isinstance(record.failure, Absent):
        refuse("failure", f"does not fit the outcome {record.outcome}; it is absent exactly when ok")
    if record.samples.warmup_steps != sum(launch.warmup_steps for launch in record.samples.launches):
        refuse("samples.warmup_steps", "is not the sum over the launches")
    for number, launch in enumerate(record.samples.launches):
        _check_ranks(f"samples.launches[{number}].ranks", launch)
    if not isinstance(record.summary, Absent):
        _check_summary(record.summary)
    _check_units("startup", record.startup, "_s")
    _check_units("memory", record.memory, "_bytes")
    _check_names(record)
    _check_mirrors(record)


def check_finding(finding: Finding) -> None:
    """Check the fields that every stored finding has, and its name."""
    for name in ("task", "started_at", "model", "outcome", "id", "command", "environment"):
        if getattr(finding, name) is None:
            refuse(name, "is missing")
    assert finding.task
    assert finding.id
    assert finding.command
    assert finding.started_at
    check_time(finding.started_at)
    check_command(finding.command)
    if not finding.task.startswith(finding.id[:JOB_PART]):
        refuse("id", "must be that of an attempt at its task")


def refuse(where: str, why: str) -> NoReturn:
    raise RefusedInputError(f"{where}: {why}")


def check_identity(identity: Identity) -> None:
    """Check an identity before measuring: a run with an invalid one could not be stored."""
    for name in ("model", "input"):
        _check_pathless(f"identity.workload.{name}", getattr(identity.workload, name))
    _check_request(identity.requested, "identity.requested")


def check_command(command: list[str]) -> None:
    """Check the command that reproduces a result. Users paste it into a shell, so it must be a Deepstone command."""
    if command[0] != PROGRAM:
        refuse("command[0]", f"must be '{PROGRAM}', not {command[0][:40]!r}")


def check_time(text: str) -> None:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        refuse("started_at", f"must be {TIME_IN_WORDS}, not {text[:40]!r}")


def _check_pathless(where: str, value: object) -> None:
    """Check text that names a job. Redaction does not change it, so it must contain nothing to redact."""
    if isinstance(value, str) and (not value or holds_path(value)):
        refuse(where, f"must be a name that holds no path, not {value[:40]!r}")


def _check_request(requested: Mapping[str, object], where: str) -> None:
    for axis, value in requested.items():
        _check_pathless(f"{where}.{axis}", value)


def _check_workload(workload: Workload) -> None:
    from_zoo = workload.source == "zoo"
    if from_zoo != (workload.file_sha256 == ""):
        expected = "empty for a model of the zoo" if from_zoo else "the SHA-256 of the model's file"
        refuse("workload.file_sha256", f"must be {expected}, not {workload.file_sha256!r}")


def _check_ranks(where: str, launch: Launch) -> None:
    """All ranks of a launch run the same blocks, else they have no common steps."""
    if not launch.ranks:
        refuse(where, "must have at least one rank")
    if len({len(rank.blocks) for rank in launch.ranks}) > 1:
        refuse(where, "must all have the same number of blocks")
    for block in zip(*(rank.blocks for rank in launch.ranks), strict=True):
        if not are_alike(block):
            refuse(where, "must have the same number of samples in a block")


def _check_summary(summary: Summary) -> None:
    """Check times and rates. Other quantities may be negative differences, or counts without samples."""
    for name in ("step_s", "samples_per_s"):
        quantity = getattr(summary, name)
        for end, value in (("low", quantity.lower), ("median", quantity.median)):
            if not isinstance(value, Absent) and value < 0:
                refuse(f"summary.{name}.{end}", f"must be a finite number of at least 0, not {value}")
        if quantity.n < 1:
            refuse(f"summary.{name}.n", f"must be a whole number of at least 1, not {quantity.n}")


def _check_units(where: str, table: Mapping[str, object] | Absent, suffix: str) -> None:
    for name in () if isinstance(table, Absent) else table:
        if not name.endswith(suffix):
            refuse(f"{where}.{name}", f"the name must end in {suffix}, its unit")


def _check_names(record: Record) -> None:
    """Check the names: a run is named by its job and a job by its identity."""
    if record.job != job_id(record.identity):
        refuse("job", "is not the SHA-256 of identity")
    for name, id in (("id", record.id), ("origin", record.origin)):
        if id is not None and id.split("-")[0] != record.job[:JOB_PART]:
            refuse(name, "does not begin with the first 20 digits of job")


def _check_mirrors(record: Record) -> None:
    """Check that the identity agrees with the rest of the record."""
    identity, workload = record.identity, record.workload
    _same("graph_sha", identity.graph_sha, "graph_sha", record.graph_sha)
    for name in identity.workload.__struct_fields__:
        _same(f"workload.{name}", getattr(identity.workload, name), f"workload.{name}", getattr(workload, name))
    # An identity leaves out axes at their default. For an axis that this version does not know, this is not checkable.
    named, requested = identity.requested, record.setup.requested
    left_out = {axis: value for axis, value in requested.items() if axis in AXES and axis not in named}
    same = all(requested.get(axis) == value for axis, value in named.items())
    if not same or not all(is_default(axis, value) for axis, value in left_out.items()):
        refuse("identity.requested", "differs from setup.requested")


def _same(where: str, value: object, other_place: str, other: object) -> None:
    if value != other:
        refuse(f"identity.{where}", f"differs from {other_place}")
