"""Makes a job from a request, and checks it before anything is measured."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from deepstone.environments.environment import Environment
from deepstone.environments.find import find_environment
from deepstone.errors import MissingError, UsageError, shown
from deepstone.launchers.copies import check_copies
from deepstone.models.load import LoadedModel
from deepstone.results import codec
from deepstone.results.checks import check_identity
from deepstone.results.record import Identity
from deepstone.runner.job import Job, Machine
from deepstone.setups.request import Request
from deepstone.setups.world import World

HOSTS: Final = "DEEPSTONE_HOSTS"


def _hosts(nodes: int) -> tuple[str, ...]:
    """One for each node; nothing if none are named."""
    words = os.environ.get(HOSTS, "").replace(" ", ",")
    named = tuple(dict.fromkeys(host for host in words.split(",") if host))
    if nodes == 1 or not named:
        return ()
    if len(named) < nodes:
        names = shown(words)
        raise UsageError(
            f"--hosts {names}: names {len(named)}, and nodes={nodes} needs {nodes}; name one for each node"
        )
    return named[:nodes]


def make_job(
    loaded: LoadedModel,
    request: Request,
    machine: Machine,
    command: Sequence[str],
    *,
    environment: Environment | None = None,
    repetition: int = 1,
) -> Job:
    """Raises MissingError if no environment fits, RefusedInputError for values that no record can store, UsageError for
    too few hosts, LeftToOtherError where another copy of Deepstone measures this job.

    Which hosts a launcher is to use is no axis: the variable HOSTS names them, which the option `--hosts` sets.
    """
    check_copies(request, os.environ)
    hosts = _hosts(World.of(request).nodes)
    job = Job(
        model=loaded,
        request=request,
        environment=environment or find_environment(str(request["framework"])),
        machine=machine,
        command=(*command, "--hosts", ",".join(hosts)) if hosts else tuple(command),
        repetition=repetition,
        hosts=hosts,
    )
    if request["transport"] == "mpi":
        job = replace(job, mpi=_mpi_of(job))
    check_identity(codec.convert(job.identity.to_json(), Identity))
    return job


def _mpi_of(job: Job) -> str:
    """Nothing if it cannot be told: then the job does not start, and says why."""
    from deepstone.launchers.engine import find_engine, loaded_mpi
    from deepstone.runner.muster import launcher_of

    python, launcher = str(job.environment.program), launcher_of(job)
    if launcher == "local":
        return ""  # a rule refuses it
    try:
        return loaded_mpi(find_engine(launcher, python), python)
    except MissingError:
        return ""
