"""Checks that speeds may be compared: every isolated layer, and one whole step as it is measured.

Both use one pass of the reference, so this costs a fraction of `verify`. Errors in how one layer passes its result to
the next do not show in single layers, but in the whole step.

Checks are cached. The name of the file is a hash of everything that a check depends on: the network, the environment's
lock, variables that change what a framework does, the setup, the machine, and the code that lowers and judges. An
unreadable file counts as missing; if a file cannot be written, the check still counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from itertools import groupby
from pathlib import Path

from msgspec.structs import replace

import deepstone
from deepstone.absent import Absent
from deepstone.backends.registry import YARDSTICK
from deepstone.checks.as_measured import distance_of, judge_as_measured
from deepstone.checks.layers import LayerCheck
from deepstone.checks.sameness import FrameworkSameness
from deepstone.checks.whole_step import ReferenceSteps, reference_steps
from deepstone.checks.workers import check_every_layer, check_job, failing_into, seed_of, start_all
from deepstone.durable import write_whole
from deepstone.environments.find import find_environment
from deepstone.errors import MissingError, RefusedInputError
from deepstone.launchers.local import recorded_variables
from deepstone.results import codec
from deepstone.results.sameness import Comparable, Distance
from deepstone.runner.conversation import cache_folder, variables_of
from deepstone.runner.job import Job
from deepstone.runner.measurement import OnProgress, no_progress
from deepstone.setups.axes import AXES
from deepstone.setups.world import OF_SEVERAL

_SCHEMA = 2  # of a cached check


def comparable(
    jobs: Mapping[str, Job], *, timeout_s: float, on_progress: OnProgress = no_progress
) -> dict[str, Comparable]:
    """Return the check of every job; run it only if it is not cached. Raises MissingError."""
    as_checked = {name: _checked_as(job) for name, job in jobs.items()}
    paths = {name: cache_folder() / "sameness" / f"{_key(job)}.json" for name, job in as_checked.items()}
    found = {name: check for name, path in paths.items() if (check := _read(path)) is not None}
    for names in _alike({name: job for name, job in as_checked.items() if name not in found}):
        checks = check_comparable(
            {name: as_checked[name] for name in names}, timeout_s=timeout_s, on_progress=on_progress
        )
        for name, check in checks.items():
            found[name] = check
            if not check.failure:  # a failure may not occur again
                _write(paths[name], check)
    return found


def check_comparable(
    jobs: Mapping[str, Job], *, timeout_s: float, on_progress: OnProgress = no_progress
) -> dict[str, Comparable]:
    """The jobs share model, batch, phase, precision and seed. Raises MissingError."""
    found = {name: FrameworkSameness() for name in jobs}
    job, distances = next(iter(jobs.values())), dict[str, Distance]()
    with ExitStack() as stack:
        workers = start_all(stack, jobs, found, timeout_s, on_progress)
        trajectory = check_every_layer(workers, job, found, on_progress)
        steps = ReferenceSteps(losses=[], gradients=trajectory.gradients)
        if job.phase == "forward":
            steps = reference_steps(
                job.model.graph, batch=job.batch, seed=seed_of(job), phase=job.phase, on_progress=on_progress
            )
        for name, worker in workers.items():
            layers = found[name].layers
            if layers is not None and layers.ok:
                with failing_into(found[name]):
                    distances[name] = distance_of(worker, steps, job)
    judge_as_measured(jobs, _yardstick(job), distances, steps, found, timeout_s, on_progress)
    return {name: _comparable(result) for name, result in found.items()}


def _yardstick(job: Job) -> Job | None:
    """Return the job in torch with all axes at their default except the workload, the precision and the device."""
    copied = ("batch", "phase", "seed", "precision", "device")
    plain = {name: job.request[name] if name in copied else axis.default for name, axis in AXES.items()}
    try:
        return replace(job, environment=find_environment(YARDSTICK), request={**plain, "framework": YARDSTICK})
    except MissingError:
        return None


def _comparable(found: FrameworkSameness) -> Comparable:
    layers = found.layers or LayerCheck(precision="not started")
    layers.failure = layers.failure or found.failure
    whole = found.measured
    ok = layers.ok and (isinstance(whole, Absent) or whole.ok)
    return Comparable.like(layers.result, ok=ok, whole_step=whole, seeds=max(1, len(found.seeds)))


def _checked_as(job: Job) -> Job:
    """Return the job without axes that only affect speed, so that one check serves many comparisons, and in one
    process: whether several train as one does is a check of its own."""
    decide_nothing = ("input", "input_grad", "threads", "inter_threads", "affinity", *OF_SEVERAL)
    request = {**job.request, **{name: AXES[name].default for name in decide_nothing}, "seed": 0}
    return check_job(replace(job, request=request), phase="forward" if job.phase == "forward" else "gradient")


def _alike(jobs: Mapping[str, Job]) -> Iterator[list[str]]:
    """Yield groups of jobs that one pass of the reference serves."""

    def way(name: str) -> tuple[str, ...]:
        return jobs[name].model.graph.sha, jobs[name].phase, str(jobs[name].request["precision"])

    for _, names in groupby(sorted(jobs, key=way), key=way):
        yield list(names)


def _key(job: Job) -> str:
    where = [job.environment.sha, recorded_variables(variables_of(job)), job.machine.sha]
    parts = [_SCHEMA, job.model.graph.sha, dict(job.request), where, _code(job)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _code(job: Job) -> str:
    """Return a hash of our code that takes part: the backend, the worker, the graph with its reference, the checks."""
    package = Path(deepstone.__file__).parent
    own = f"backends/{job.environment.framework}"
    folders = ("backends", own, "backends/legacy", "backends/xla", "graph", "checks", "worker")
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in (package / folder).glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _read(path: Path) -> Comparable | None:
    try:
        return codec.convert(json.loads(path.read_text(encoding="utf-8")), Comparable)
    except (OSError, ValueError, RefusedInputError):
        return None


def _write(path: Path, check: Comparable) -> None:
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(json.dumps(check.to_json()).encode(), path)
