"""The names of jobs and runs: a job is named by what it is, a run by its job and its attempt.

An identity leaves out the axes that are at their default, so that a new axis renames no job. Records of version 0.1
name every axis. Such a record keeps its names, and is found by the canonical name of its job too.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from deepstone.records.schema import Identity, Record
from deepstone.setups.axes import AXES, Value

JOB_PATTERN: Final = re.compile(r"[0-9a-f]{64}")
RUN_PATTERN: Final = re.compile(r"([0-9a-f]{20})-([1-9][0-9]{0,8})")
LAYER_METHODS: Final = ("both", "in-place", "isolated")
JOB_PART: Final = 20  # hex digits of the job in a run's name: 80 bits, and short enough to read


def canonical_json(value: object) -> str:
    """The one text of a JSON value: what is hashed, and what is stored."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_sha256(value: object) -> str:
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()


def job_id(identity: Identity) -> str:
    return canonical_sha256(identity)


def without_defaults(requested: Mapping[str, Value]) -> dict[str, Value]:
    """The axes that a request sets to something other than their default."""
    return {axis: value for axis, value in requested.items() if not is_default(axis, value)}


def is_default(axis: str, value: object) -> bool:
    return axis in AXES and AXES[axis].default == value


def canonical_identity(identity: Identity) -> Identity:
    """The identity of the same job as it is written today."""
    return {**identity, "requested": without_defaults(identity["requested"])}


def canonical_job(record: Record) -> str:
    """The name of the record's job as it is today, whichever version wrote the record."""
    return job_id(canonical_identity(record["identity"]))


def task_id(kind: str, identity: Mapping[str, object], method: str = "") -> str:
    """The name of a task that is no run: what is looked for, and in which job."""
    what = {"task": kind, "method": method} if method else {"task": kind}
    return canonical_sha256({**what, "identity": identity})


def canonical_task(finding: Mapping[str, Any]) -> str:
    """The name of the finding's task as it is today, whichever version wrote the finding."""
    kind, task = str(finding["kind"]), str(finding["task"])
    identity = cast(dict[str, Any], finding.get("identity", {}))
    if not isinstance(identity.get("requested"), dict):
        return task
    for method in ("", *LAYER_METHODS):
        if task_id(kind, identity, method) == task:
            return task_id(kind, canonical_identity(cast(Identity, identity)), method)
    return task


def attempt_of(run: str) -> int:
    return int(run.rpartition("-")[2])


def run_id(job: str, attempt: int) -> str:
    return f"{job[:JOB_PART]}-{attempt}"
