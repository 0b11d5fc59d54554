"""Do several processes train the network that one process trains?

    one process      the whole batch in as many parts as several processes make of it, whose gradients are added up
    several          each process has one of these parts; each microbatch of a pipeline is one

    step 1   gradient g₁ of both                       steps 1 – 3   update p₃ - p₀ of both, with momentum

Parts and not the whole batch, because batch norm takes its statistics from what one process has. Both must be equal to
1e-9 in float64, on every rank: momentum on one rank alone leaves gradients right, and a sum instead of a mean leaves
all replicas equal. Parameters themselves prove little: they hardly move in three steps. Compressed gradients are not
those of one process, nor are those that a server applies as they come, and no tolerance makes them so: how far they are
is told. Where a process has only some of the arrays (a stage of a pipeline, a server), those are compared, and every
array must be somewhere.

Beside it, in launches of their own: fp32, which is judged by the first gradient; and one process with the whole batch
at once, which shows what batch norm with statistics of its own in each process changes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from deepstone.absent import Absent
from deepstone.checks.workers import CHECK_BATCH, check_job
from deepstone.errors import MissingError
from deepstone.graph.ops import BatchNorm
from deepstone.results.sameness import Distance, Gap, GlobalStatistics, SchemeInFp32, SchemeSameness
from deepstone.runner.conversation import BuildOptions, JobFailed, talking_to_worker
from deepstone.runner.job import Job
from deepstone.runner.team import Team, rank_jobs, talking_to_team
from deepstone.setups.axes import AUTO, AXES, Value
from deepstone.setups.request import Request
from deepstone.setups.schemes import scheme_of
from deepstone.setups.world import BETWEEN_PROCESSES, Parts, World

TOLERANCE: Final = 1e-9  # in float64; correct ones stay below 1e-10, and errors begin at 1e-3
FP32_TOLERANCE: Final = 1e-4  # of the first gradient; correct ones stay below 2e-6, errors begin at 1e-3
STEPS: Final = 3
_ROUNDINGS: Final = 4.0  # times as far from float64 as one process in fp32 is
_LEAST_ROUNDING: Final = 1e-6
_FLOOR: Final = 1e-6  # of the largest array's norm: an array of zeros has no relative error

Arrays = Mapping[str, NDArray[Any]]


class Trained(Struct, frozen=True, kw_only=True):
    """What three steps did, in one process."""

    gradients: Arrays
    updates: Arrays
    losses: Sequence[float]

    def against(self, expected: Trained) -> Compared:
        return Compared(
            gradients=_matches(self.gradients.items(), expected.gradients),
            updates=_matches(self.updates.items(), expected.updates),
            losses=self.losses,
        )


class Match(NamedTuple):
    """One array against the expected one. `digest`: of its values, so that replicas can be held against each other."""

    relative_error: float
    digest: bytes


class Compared(Struct, frozen=True, kw_only=True):
    """What one rank's steps did, against one process, by array. The arrays themselves are gone: those of all ranks at
    once can take more memory than the training does."""

    gradients: Mapping[str, Match]
    updates: Mapping[str, Match]
    losses: Sequence[float]


def check_scheme(job: Job, *, timeout_s: float, beside: bool = True) -> SchemeSameness:
    """The job in float64, against one process that does the same. `beside`: also in fp32, and against one process that
    has the whole batch at once."""
    equivalent = is_equivalent(job)
    wide, narrow = _in_float64(job), _in_fp32(job)
    reason = why_unsupported(job)
    if reason:
        return SchemeSameness.failed(f"unsupported: {reason}", equivalent=equivalent, is_unsupported=True)
    if wide.broken_rule:
        return _in_fp32_alone(wide, narrow, timeout_s)
    whole = beside and any(isinstance(layer.op, BatchNorm) for layer in job.model.graph.layers)
    try:
        alone, *at_once = trained_alone(wide, timeout_s, also_whole=whole)
        found = judged(alone, trained_together(wide, alone, timeout_s), equivalent=equivalent)
    except (JobFailed, MissingError) as error:
        return _failed(error, equivalent=equivalent)
    if not beside:
        return found
    found = replace(found, global_statistics=_from_whole(alone, at_once))
    del alone, at_once  # before the next ones come: of a large network each is gigabytes
    try:
        rounded = trained_alone(narrow, timeout_s)[0]
        return with_fp32(found, rounded, trained_together(narrow, rounded, timeout_s))
    except JobFailed as failure:
        return replace(found, ok=False, failure=f"in fp32: {failure.outcome}: {failure.reason}")


def why_unsupported(job: Job) -> str | None:
    """Why the rules allow the job neither in float64 nor in fp32, if they do not. It computes nothing."""
    reason = _in_float64(job).broken_rule
    return None if reason is None or _in_fp32(job).broken_rule is None else reason


def _in_float64(job: Job) -> Job:
    return check_job(job, batch=job.batch, phase="train", precision="fp64")


def _in_fp32(job: Job) -> Job:
    return check_job(job, batch=job.batch, phase="train", precision="fp32")


def _failed(error: JobFailed | MissingError, *, equivalent: bool) -> SchemeSameness:
    if isinstance(error, MissingError):
        return SchemeSameness.failed(str(error), equivalent=equivalent, is_missing=True)
    reason, unsupported = f"{error.outcome}: {error.reason}", error.outcome == "unsupported"
    return SchemeSameness.failed(reason, equivalent=equivalent, is_unsupported=unsupported)


def _in_fp32_alone(wide: Job, narrow: Job, timeout_s: float) -> SchemeSameness:
    """Where a library has no float64. One process in fp32 tells how far from float64 it may be; several may be a few
    times as far. In deep networks that is far, so errors can hide in their updates, not in their first gradient."""
    equivalent = is_equivalent(narrow)
    try:
        exact, rounded = trained_alone(wide, timeout_s)[0], trained_alone(narrow, timeout_s)[0]
        ranks = trained_together(narrow, exact, timeout_s)
    except (JobFailed, MissingError) as error:
        return _failed(error, equivalent=equivalent)
    one = rounded.against(exact)
    gradient = _distance(one.gradients, "gradient", FP32_TOLERANCE).relative_error
    update = _distance(one.updates, "update", FP32_TOLERANCE).relative_error
    return judged(
        exact,
        ranks,
        equivalent=equivalent,
        precision="fp32",
        tolerances=(_ROUNDINGS * max(gradient, _LEAST_ROUNDING), _ROUNDINGS * max(update, _LEAST_ROUNDING)),
    )


def is_equivalent(job: Job) -> bool:
    """Whether it is to train as one process does."""
    return job.request["compression"] == "none" and scheme_of(job.request).is_equivalent


def least_batch(request: Request) -> int:
    """One sample for every part; a pipeline has as many parts as stages, unless the request says how many."""
    world, asked = World.of(request), request["microbatches"]
    microbatches = world.stages if asked == AUTO else int(asked)
    return max(CHECK_BATCH, world.data_ranks * int(request["accumulate"]) * microbatches)


def as_checked(job: Job) -> Job:
    """The job on as few samples as every part can have."""
    return check_job(job, batch=least_batch(job.request))


def judged(
    alone: Trained,
    ranks: Sequence[Compared],
    *,
    equivalent: bool = True,
    precision: str = "fp64",
    tolerances: tuple[float, float] = (TOLERANCE, TOLERANCE),
) -> SchemeSameness:
    """`tolerances`: of gradients and of updates."""
    gradient = _worst_of([rank.gradients for rank in ranks], alone.gradients, "gradient", tolerances[0])
    update = _worst_of([rank.updates for rank in ranks], alone.updates, "update", tolerances[1])
    mean = [float(np.mean([rank.losses[step] for rank in ranks if rank.losses])) for step in range(STEPS)]
    replicas = all(_are_replicas(one.updates, other.updates) for one, other in combinations(ranks, 2))
    return SchemeSameness(
        ok=equivalent and gradient.ok and update.ok and replicas,
        equivalent=equivalent,
        gradient=gradient,
        update=update,
        replicas_equal=replicas,
        loss=mean,
        loss_of_one_process=list(alone.losses),
        precision=precision,
    )


def with_fp32(found: SchemeSameness, alone: Trained, ranks: Sequence[Compared]) -> SchemeSameness:
    """With what the same training gives in fp32."""
    gradient = _worst_of([rank.gradients for rank in ranks], alone.gradients, "gradient", FP32_TOLERANCE)
    update = _worst_of([rank.updates for rank in ranks], alone.updates, "update", FP32_TOLERANCE)
    fp32 = SchemeInFp32(ok=gradient.ok and found.equivalent, gradient=gradient, update=Gap.of(update))
    return replace(found, ok=found.ok and fp32.ok, fp32=fp32)


def _from_whole(alone: Trained, at_once: Sequence[Trained]) -> GlobalStatistics | Absent:
    if not at_once:
        return Absent("the network has no batch norm")
    parts = alone.against(at_once[0])
    gradient = _distance(parts.gradients, "gradient", TOLERANCE)
    update = _distance(parts.updates, "update", TOLERANCE)
    return GlobalStatistics(gradient=Gap.of(gradient), update=Gap.of(update))


def _worst_of(ranks: Sequence[Mapping[str, Match]], expected: Arrays, what: str, tolerance: float) -> Distance:
    """Over the ranks that have them. Every array is somewhere."""
    nowhere = [name for name in expected if not any(name in rank for rank in ranks)]
    if nowhere:
        return Distance.of(
            layer=nowhere[0], what=f"{what} that no rank has", relative_error=math.inf, tolerance=tolerance
        )
    distances = [_distance(found, f"{what} on rank {rank}", tolerance) for rank, found in enumerate(ranks) if found]
    return max(distances, key=lambda each: each.badness)


def trained_alone(job: Job, timeout_s: float, *, also_whole: bool = False) -> list[Trained]:
    """One process that has the parts one after the other; and, if asked for, the whole batch at once."""
    defaults, parts = {name: AXES[name].default for name in BETWEEN_PROCESSES}, Parts.of(job.request).count
    given = {**job.request, **defaults, "processes": 1, "nodes": 1, "launcher": "auto"}
    # As many threads as each of several has: another number may choose other kernels, which round otherwise.
    given["threads"] = rank_jobs(job)[0].request["threads"]
    found: list[Trained] = []
    with talking_to_worker(replace(job, request={**given, "accumulate": parts}), timeout_s=timeout_s) as worker:
        worker.hello()
        for accumulate in (parts, 1) if also_whole else (parts,):
            worker.build({"accumulate": accumulate}, BuildOptions(keep_gradients=True))
            before = _loaded(worker.dump("parameters"))
            losses = worker.losses(1)
            gradients = _loaded(worker.dump("gradients"))
            losses += worker.losses(STEPS - 1)
            after = _loaded(worker.dump("parameters"))
            found.append(Trained(gradients=gradients, updates=_difference(after, before), losses=losses))
    return found


def trained_together(job: Job, alone: Trained, timeout_s: float) -> list[Compared]:
    with talking_to_team(job, timeout_s=timeout_s) as team:
        team.hello()
        return trained_by(team, alone)


def trained_by(team: Team, alone: Trained, **changed: Value) -> list[Compared]:
    """What three steps from the job's initial weights do on every rank, against one process. `changed`: axes that
    differ from the job's own."""
    team.build(changed, BuildOptions(keep_gradients=True))
    before = [_set_aside(files) for files in team.dump("parameters")]
    losses = team.losses_by_rank(1)
    gradients = [_matches(_read(files), alone.gradients) for files in team.dump("gradients")]
    later = team.losses_by_rank(STEPS - 1)
    updates = [
        _matches(_differences(files, initial), alone.updates)
        for files, initial in zip(team.dump("parameters"), before, strict=True)
    ]
    return [
        Compared(gradients=gradients[rank], updates=updates[rank], losses=[*losses[rank], *later[rank]])
        for rank in range(len(before))
    ]


def _loaded(files: Mapping[str, Path]) -> dict[str, NDArray[Any]]:
    return dict(_read(files))


def _read(files: Mapping[str, Path]) -> Iterator[tuple[str, NDArray[Any]]]:
    """One array after the other. Its file goes: where temporary files are in memory, they are in the way."""
    for name, path in files.items():
        array = np.load(path)
        path.unlink()
        yield name, array


def _set_aside(files: Mapping[str, Path]) -> dict[str, Path]:
    """So that a later dump does not write over them."""
    return {name: path.rename(path.with_stem(f"initial-{path.stem}")) for name, path in files.items()}


def _differences(after: Mapping[str, Path], before: Mapping[str, Path]) -> Iterator[tuple[str, NDArray[Any]]]:
    first = {name: before[name] for name in after}
    for (name, array), (_, initial) in zip(_read(after), _read(first), strict=True):
        yield name, array - initial


def _difference(after: Arrays, before: Arrays) -> dict[str, NDArray[Any]]:
    return {name: after[name] - before[name] for name in after}


def _matches(found: Iterable[tuple[str, NDArray[Any]]], expected: Arrays) -> dict[str, Match]:
    norms = {name: float(np.linalg.norm(array.ravel())) for name, array in expected.items()}
    floor = _FLOOR * max(norms.values(), default=0.0)
    return {
        name: Match(_error(array, expected[name], max(norms[name], floor, 1e-300)), _digest(array))
        for name, array in found
        if name in expected
    }


def _error(found: NDArray[Any], expected: NDArray[Any], scale: float) -> float:
    if found.shape != expected.shape:
        return math.inf
    return float(np.linalg.norm((found - expected).ravel())) / scale


def _digest(array: NDArray[Any]) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(array + 0.0).data).digest()  # -0.0 equals 0.0


def _distance(found: Mapping[str, Match], what: str, tolerance: float) -> Distance:
    """That of the array that is furthest off, of those that were found."""
    errors = {name: each.relative_error for name, each in found.items()}
    worst = max(errors, key=lambda name: errors[name] if np.isfinite(errors[name]) else np.inf)
    return Distance.of(layer=worst, what=what, relative_error=errors[worst], tolerance=tolerance)


def _are_replicas(one: Mapping[str, Match], other: Mapping[str, Match]) -> bool:
    return all(one[name].digest == other[name].digest for name in one.keys() & other.keys())
