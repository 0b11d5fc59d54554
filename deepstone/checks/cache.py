"""Checks done before: a framework need not prove twice that it computes a network as it should.

What a check depends on names its file: the network, the environment's lock, variables that change what a framework
does, the setup, the machine, and the code that lowers and judges. A file that cannot be read is as good as none, and
one that cannot be written is done without.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import deepstone
from deepstone.absent import Absent
from deepstone.checks.agreement import Distance
from deepstone.checks.comparable import Comparable, check_comparable
from deepstone.checks.layers import LayerCheck
from deepstone.checks.workers import check_job
from deepstone.launchers.local import telling
from deepstone.runner.conversation import cache_folder, variables_of
from deepstone.runner.job import Job
from deepstone.runner.launch import Tell, silent
from deepstone.setups.axes import AXES

_SCHEMA = 2


def comparable(jobs: Mapping[str, Job], *, timeout_s: float, tell: Tell = silent) -> dict[str, Comparable]:
    """What is asked before speeds are compared, of every job; run only where it was not done before. Raises
    MissingError."""
    as_checked = {name: _checked_as(job) for name, job in jobs.items()}
    paths = {name: cache_folder() / "sameness" / f"{_key(job)}.json" for name, job in as_checked.items()}
    found = {name: check for name, path in paths.items() if (check := _read(path)) is not None}
    for names in _alike({name: job for name, job in as_checked.items() if name not in found}):
        checks = check_comparable({name: as_checked[name] for name in names}, timeout_s=timeout_s, tell=tell)
        for name, check in checks.items():
            found[name] = check
            if not check.failure:  # what went wrong once may go right the next time
                _write(paths[name], check)
    return found


def _checked_as(job: Job) -> Job:
    """Without what decides only how fast it runs, so that one check serves many comparisons."""
    decide_nothing = ("input", "input_grad", "threads", "inter_threads", "affinity")
    request = {**job.request, **{name: AXES[name].default for name in decide_nothing}, "seed": 0}
    return check_job(replace(job, request=request), phase="forward" if job.phase == "forward" else "gradient")


def _alike(jobs: Mapping[str, Job]) -> Iterator[list[str]]:
    """Names of jobs that one pass of the reference serves."""

    def way(name: str) -> tuple[str, ...]:
        return jobs[name].model.graph.sha, jobs[name].phase, str(jobs[name].request["precision"])

    for _, names in groupby(sorted(jobs, key=way), key=way):
        yield list(names)


def _key(job: Job) -> str:
    where = [job.environment.sha, telling(variables_of(job)), job.machine.sha]
    parts = [_SCHEMA, job.model.graph.sha, dict(job.request), where, _code(job)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _code(job: Job) -> str:
    """Of everything of ours that takes part: the backend, the worker, the graph with its reference, and the checks."""
    package = Path(deepstone.__file__).parent
    of_framework = f"backends/{job.environment.framework}"  # and some use what backends of other years share
    folders = ("backends", of_framework, "backends/legacy", "graph", "checks", "worker")
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in (package / folder).glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _read(path: Path) -> Comparable | None:
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        layers = LayerCheck(
            precision=str(content["precision"]),
            checked=int(content["checked"]),
            worst=_distance(content["worst"]),
            first_disagreement=_distance(content["first_disagreement"]),
        )
        whole_step = _distance(content["whole_step"]) or Absent(str(content["whole_step"]["absent"]))
        return Comparable(layers=layers, whole_step=whole_step, seeds=int(content["seeds"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _distance(content: Any) -> Distance | None:
    if "absent" in content:
        return None
    error = content["relative_error"]
    return Distance(
        layer=str(content["layer"]),
        what=str(content["what"]),
        relative_error=float(error) if isinstance(error, float | int) else math.inf,
        tolerance=float(content["tolerance"]),
    )


def _write(path: Path, check: Comparable) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(check.to_json()), encoding="utf-8")
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
