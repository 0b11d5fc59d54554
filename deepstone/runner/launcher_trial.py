"""Which launchers are here, and whether each of them really starts two processes that train together."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.environments.environment import Environment
from deepstone.errors import MissingError
from deepstone.launchers.engine import ENGINES, REMEDIES, Engine, find_engine, fitting_mpi, loaded_mpi
from deepstone.results.parts import AtLeast0, OrAbsent, Part, Table
from deepstone.runner.conversation import JobFailed
from deepstone.runner.examine import Missing, probe_job
from deepstone.runner.job import Machine
from deepstone.runner.measurement import OnProgress, no_progress
from deepstone.runner.team import talking_to_team
from deepstone.setups.axes import Value

_TRIAL_S: Final = 120.0
_STEPS: Final = 3


class Trial(Part, frozen=True, kw_only=True):
    """`start_s`: from the launcher's start until all processes had met."""

    works: bool
    why: str
    start_s: OrAbsent[AtLeast0]


class LauncherFound(Part, frozen=True, kw_only=True):
    """`kind`: whose mpirun it is. `library`: the MPI that mpi4py of the framework's environment loads. `trials`: by
    transport, if they were asked for."""

    here: bool
    kind: str
    version: str
    why: str
    library: str
    trials: Table[Trial] | None = None


def find_launchers(environment: Environment | None) -> tuple[dict[str, LauncherFound], list[Missing]]:
    """Those for processes of this environment. Deepstone's own is always there."""
    found = {"local": LauncherFound(here=True, kind="local", version="", why="", library="")}
    missing: list[Missing] = []
    if environment is None:
        return found, missing
    python = str(environment.program)
    for name in ENGINES:
        try:
            engine = find_engine(name, python)
        except MissingError as error:
            why = str(error).removeprefix(f"launcher {name} ").partition(";")[0]
            found[name] = LauncherFound(here=False, kind="", version="", why=why, library="")
            missing.append(Missing(what=f"launcher {name}", why=why, remedy=REMEDIES[name]))
            continue
        library = loaded_mpi(engine, python) if name in ("mpirun", "srun") else ""
        found[name] = LauncherFound(here=True, kind=engine.kind, version=engine.version, why="", library=library)
        missing += _missing_mpi(engine, python, library) if name == "mpirun" else []
    return found, missing


def _missing_mpi(engine: Engine, python: str, library: str) -> list[Missing]:
    if not library:
        remedy = "pip install mpi4py into the framework's environment; transport=gloo needs none"
        return [Missing(what="transport mpi", why="mpi4py does not import there", remedy=remedy)]
    try:
        fitting_mpi(engine, python)
    except MissingError as error:
        why, _, remedy = str(error).partition("; ")
        return [Missing(what="transport mpi", why=why, remedy=remedy)]
    return []


def try_launchers(
    found: Mapping[str, LauncherFound],
    environment: Environment,
    machine: Machine,
    on_progress: OnProgress = no_progress,
) -> dict[str, LauncherFound]:
    """Have each launcher that is here start two processes that meet and train some steps, by every transport."""
    pairs = list(_pairs(found))
    trials: dict[str, dict[str, Trial]] = {}
    for number, (launcher, transport) in enumerate(pairs):
        on_progress(f"{launcher}, {transport}", number / len(pairs))
        trials.setdefault(launcher, {})[transport] = _tried(launcher, transport, environment, machine)
    return {
        name: LauncherFound(
            here=each.here,
            kind=each.kind,
            version=each.version,
            why=each.why,
            library=each.library,
            trials=trials.get(name),
        )
        for name, each in found.items()
    }


def _pairs(found: Mapping[str, LauncherFound]) -> Iterator[tuple[str, str]]:
    for name, each in found.items():
        if each.here:
            yield name, "gloo"
            if each.library:
                yield name, "mpi"


def _tried(launcher: str, transport: str, environment: Environment, machine: Machine) -> Trial:
    request: dict[str, Value] = {"processes": 2, "launcher": launcher, "transport": transport, "device": "cpu"}
    job = probe_job(environment, machine, request)
    job = replace(job, command=("deepstone", "doctor", "--launchers"))
    begin_s = time.monotonic()
    start_s: float | Absent = Absent("the processes did not meet")
    try:
        with talking_to_team(job, timeout_s=_TRIAL_S) as team:
            team.hello()
            start_s = time.monotonic() - begin_s
            team.prepare()
            team.block(samples=_STEPS)
            team.close()
    except JobFailed as failure:
        return Trial(works=False, why=f"{failure.outcome}: {failure.reason}", start_s=start_s)
    except MissingError as error:
        return Trial(works=False, why=str(error), start_s=start_s)
    return Trial(works=True, why="", start_s=start_s)
