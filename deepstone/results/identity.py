"""The names of jobs, runs and tasks: a job is named by what it is, a run by its job and its attempt.

An identity leaves out the axes that are at their default, so that a new axis renames no job. Records of version 0.1
name every axis. Such a record keeps its names, and the canonical name of its job finds it too.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from deepstone.setups.axes import AXES, Value

if TYPE_CHECKING:
    from deepstone.results.findings import Finding
    from deepstone.results.record import Draft, Identity

JOB_PATTERN: Final = re.compile(r"[0-9a-f]{64}")
RUN_PATTERN: Final = re.compile(r"([0-9a-f]{20})-([1-9][0-9]{0,8})")
JOB_PART: Final = 20  # hex digits of the job in a run's name: 80 bits, and short enough to read
LAYER_METHODS: Final = ("both", "in-place", "isolated")


def canonical_json(value: object) -> str:
    """Return the canonical text of a JSON value, which is hashed and stored."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_sha256(value: object) -> str:
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()


def run_id(job: str, attempt: int) -> str:
    return f"{job[:JOB_PART]}-{attempt}"


def attempt_of(run: str) -> int:
    return int(run.rpartition("-")[2])


def is_default(axis: str, value: object) -> bool:
    return axis in AXES and AXES[axis].default == value


def without_defaults(requested: Mapping[str, Value]) -> dict[str, Value]:
    """Return the axes that are not at their default."""
    return {axis: value for axis, value in requested.items() if not is_default(axis, value)}


def job_id(identity: Identity) -> str:
    return canonical_sha256(identity.to_json())


def canonical_identity(identity: Identity) -> Identity:
    """Return the identity of the same job in the current form."""
    from msgspec.structs import replace

    return replace(identity, requested=without_defaults(identity.requested))


def canonical_job(record: Draft) -> str:
    """Return the current name of the record's job, for records of any version."""
    return job_id(canonical_identity(record.identity))


def task_id(kind: str, identity: Identity, method: str = "") -> str:
    """Return the name of a task that is not a run, from its kind and job. `method` is that of layers."""
    what = {"task": kind, "method": method} if method else {"task": kind}
    return canonical_sha256({**what, "identity": identity.to_json()})


def canonical_task(finding: Finding) -> str:
    """Return the current name of the finding's task, for findings of any version."""
    assert finding.task is not None, "a finding of a store has one"
    if finding.identity is not None:
        for method in ("", *LAYER_METHODS):
            if task_id(finding.kind, finding.identity, method) == finding.task:
                return task_id(finding.kind, canonical_identity(finding.identity), method)
    return finding.task
