"""How many nodes a launcher reaches, as far as one can know before it starts.

A launcher that is asked for more may wait for the others without an end, as Slurm does for nodes that are busy.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deepstone.errors import MissingError
from deepstone.launchers.engine import Engine

# Variables of an allocation, from which mpirun takes its nodes by itself, and those that name a file with a line for
# each process or node.
_ALLOCATIONS: Final = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE")
_FILES: Final = ("PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "PE_HOSTFILE")
_COUNTS: Final = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")
_SINFO_S: Final = 10.0


def check_nodes(engine: Engine, nodes: int, variables: Mapping[str, str]) -> None:
    """MissingError where so many nodes are surely not there. No hosts are named."""
    is_allocated = any(name in variables for name in _ALLOCATIONS)
    if engine.name == "mpirun" and not is_allocated:
        raise MissingError(f"nodes={nodes}: say which with --hosts a,b, or use srun inside a Slurm allocation")
    if is_allocated:
        found = _allocated(variables)
        where, remedy = "this allocation", f"ask for an allocation of {nodes}, as with `salloc --nodes={nodes}`"
    else:
        found = _in_cluster()
        where, remedy = "this cluster", "`sinfo` shows them"
    if found is not None and found < nodes:
        raise MissingError(f"nodes={nodes}: {where} has {found}; {remedy}, or use nodes={found}")


def _allocated(variables: Mapping[str, str]) -> int | None:
    """None if it cannot be told."""
    for name in _COUNTS:
        if variables.get(name, "").isdecimal():
            return int(variables[name])
    for name in _FILES:
        try:
            lines = Path(variables[name]).read_text(encoding="utf-8", errors="replace").splitlines()
        except (KeyError, OSError):
            continue
        hosts = {line.split()[0] for line in lines if line.split()}
        if hosts:
            return len(hosts)
    return None


def _in_cluster() -> int | None:
    """All nodes of Slurm, whatever they do; those of several partitions may count more than once."""
    path = shutil.which("sinfo")
    if path is None:
        return None
    argv = [path, "--noheader", "--format=%D"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_SINFO_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    counts = done.stdout.split()
    return sum(map(int, counts)) if not done.returncode and counts and all(map(str.isdecimal, counts)) else None
