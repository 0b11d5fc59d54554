"""Too few nodes are refused before a launcher starts, which might wait for nodes that never come."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deepstone.errors import MissingError
from deepstone.launchers.engine import Engine
from deepstone.launchers.nodes import check_nodes

MPIRUN = Engine(name="mpirun", kind="openmpi", version="5.0", command=("mpirun",))
SRUN = Engine(name="srun", kind="srun", version="25.05", command=("srun",))


def test_mpirun_needs_hosts_or_an_allocation():
    with pytest.raises(MissingError, match="--hosts a,b"):
        check_nodes(MPIRUN, 2, {})


@pytest.mark.parametrize("engine", [MPIRUN, SRUN], ids=lambda engine: engine.name)
@pytest.mark.parametrize("name", ["SLURM_NNODES", "SLURM_JOB_NUM_NODES"])
def test_a_slurm_allocation_that_is_too_small(engine: Engine, name: str):
    with pytest.raises(MissingError, match=r"nodes=3: this allocation has 2; .* nodes=2"):
        check_nodes(engine, 3, {"SLURM_JOB_ID": "7", name: "2"})
    check_nodes(engine, 2, {"SLURM_JOB_ID": "7", name: "2"})


def test_the_file_of_an_allocation_lists_a_host_once_for_each_process(tmp_path: Path):
    path = tmp_path / "hosts"
    path.write_text("a\na\nb\nb\n")
    variables = {"PBS_JOBID": "7", "PBS_NODEFILE": str(path)}
    check_nodes(MPIRUN, 2, variables)
    with pytest.raises(MissingError, match="has 2"):
        check_nodes(MPIRUN, 3, variables)
    check_nodes(MPIRUN, 3, {"PBS_JOBID": "7", "PBS_NODEFILE": str(tmp_path / "gone")})  # unknown: it may go well


@pytest.mark.parametrize(("said", "is_refused"), [("1\\n", True), ("1\\n1\\n", False), ("no\\n", False)])
def test_a_cluster_that_is_too_small(said: str, is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "sinfo"
    path.write_text(f"#!/bin/sh\nprintf '{said}'\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    if is_refused:
        with pytest.raises(MissingError, match="nodes=2: this cluster has 1"):
            check_nodes(SRUN, 2, {})
    else:
        check_nodes(SRUN, 2, {})
