"""The names of jobs and runs: a job is named by what it is, a run by its job and its attempt."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Final

from deepstone.records.schema import Identity

JOB_PATTERN: Final = re.compile(r"[0-9a-f]{64}")
RUN_PATTERN: Final = re.compile(r"([0-9a-f]{20})-([1-9][0-9]{0,8})")
JOB_PART: Final = 20  # hex digits of the job in a run's name: 80 bits, and short enough to read


def canonical_json(value: object) -> str:
    """The one text of a JSON value: what is hashed, and what is stored."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_sha256(value: object) -> str:
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()


def job_id(identity: Identity) -> str:
    return canonical_sha256(identity)


def run_id(job: str, attempt: int) -> str:
    return f"{job[:JOB_PART]}-{attempt}"
