"""What this machine lacks for a job, found without starting a framework, in the words that running it would print."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Final

from deepstone.backends.base import Group, Missing, own_gpu
from deepstone.backends.missing import NO_NCCL, knows_gpus, no_gpu, no_library, no_mpi
from deepstone.environments.environment import Environment
from deepstone.errors import MissingError
from deepstone.hardware.gpu import may_have_gpu
from deepstone.runner.conversation import chosen_cpus, environment_note, variables_of
from deepstone.runner.job import Job
from deepstone.runner.muster import check_interface, find_launcher, launcher_of
from deepstone.runner.team import rank_jobs
from deepstone.setups.axes import TORCH
from deepstone.setups.world import World

_LIBRARIES: Final = ("horovod", "deepspeed")  # packages that are also values of the axis `library`


def why_not(job: Job) -> str | None:
    """Return why the job cannot run here: the rule that it breaks, or what is missing with its remedy."""
    return job.broken_rule or lacking(job)


def lacking(job: Job) -> str | None:
    """Return what is missing, with the remedy. None does not promise that a framework finds all it needs."""
    try:
        _check(job)
    except MissingError as error:
        return str(error)
    found = next(_missing_to_worker(job), None)
    return None if found is None else found + environment_note(job.environment)


def _check(job: Job) -> None:
    """What the controller itself looks at before it starts a worker."""
    ranks = [job]
    if World.of(job.request).is_parallel:
        check_interface(job)
        if launcher_of(job) != "local":
            find_launcher(job)
        ranks = rank_jobs(job)
    for each in ranks:
        variables_of(each)
        chosen_cpus(each.request)


def _missing_to_worker(job: Job) -> Iterator[str]:
    """What a worker would report, by what files and versions tell of it."""
    request, environment = job.request, job.environment
    if request["transport"] == "mpi" and not job.mpi:
        yield no_mpi()
    if request["transport"] == "nccl" and environment.framework == TORCH and not environment.can_use_gpu:
        yield NO_NCCL
    library = str(request["library"])
    if library in _LIBRARIES and _has_package(environment, library) is False:
        yield no_library(library)
    if knows_gpus(environment.framework):
        yield from _missing_gpus(job)


def _missing_gpus(job: Job) -> Iterator[str]:
    asked = str(job.request["device"])
    if not asked.startswith("gpu"):
        return
    if not job.environment.can_use_gpu or not (job.machine.gpus or may_have_gpu()):
        yield no_gpu(asked, job.environment.framework, has_build=job.environment.can_use_gpu)
        return
    seen = _seen_gpus(job)
    if seen is None or World.of(job.request).nodes > 1:
        return
    ranks = rank_jobs(job) if World.of(job.request).is_parallel else [job]
    for number, rank in enumerate(ranks):
        group = None if len(ranks) == 1 else _group(rank, number, len(ranks))
        try:
            own_gpu(str(rank.request["device"]), group, seen)
        except Missing as error:
            yield str(error)


def _seen_gpus(job: Job) -> int | None:
    """None where that cannot be told: parts of a GPU, names that the driver resolves, no list."""
    gpus = job.machine.gpus
    if not gpus or any(gpu.mig is True for gpu in gpus):
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return len(gpus) if visible is None else len([name for name in visible.split(",") if name.strip()])


def _group(job: Job, rank: int, world: int) -> Group:
    return Group(
        rank=rank,
        local_rank=rank,
        world=world,
        addresses=[],
        request=dict(job.request),
        role="worker",
        share=0,
        shares=1,
    )


def _has_package(environment: Environment, name: str) -> bool | None:
    """None if it cannot be told without starting its interpreter."""
    if environment.kind == "own":
        return find_spec(name) is not None
    if environment.kind == "venv":
        return any(environment.program.parents[1].glob(f"lib/python*/site-packages/{name}"))
    return None
