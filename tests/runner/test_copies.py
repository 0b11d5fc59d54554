"""Several copies of Deepstone started by a launcher: one measures a job of several processes, and none do it twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import pytest

from deepstone.errors import LeftToOtherError, MissingError, UsageError
from deepstone.launchers.copies import Copy, check_copies, own_copy
from deepstone.launchers.engine import Engine, engine_variables, find_engine
from deepstone.setups.axes import Value
from deepstone.setups.request import complete

SECOND_OF_SRUN = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0"}
FIRST_OF_SRUN = {**SECOND_OF_SRUN, "SLURM_PROCID": "0"}
OF_MPIRUN = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
OF_TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}


def check(variables: Mapping[str, str], **axes: Value) -> None:
    check_copies(complete({"framework": "fake", "batch": 8, **axes}), variables)


def test_the_first_copy_of_srun_measures_a_job_on_several_nodes():
    check(FIRST_OF_SRUN, processes=2, nodes=2)
    with pytest.raises(LeftToOtherError, match="copy 1 leaves the job to copy 0"):
        check(SECOND_OF_SRUN, processes=2, nodes=2)
    with pytest.raises(LeftToOtherError):
        check(SECOND_OF_SRUN, processes=2, launcher="srun")


def test_copies_of_srun_each_measure_jobs_of_their_own_node():
    """As the parts of a study do."""
    check(SECOND_OF_SRUN)
    check(SECOND_OF_SRUN, processes=2)


@pytest.mark.parametrize("variables", [OF_MPIRUN, OF_TORCHRUN])
def test_copies_of_other_launchers_refuse_a_job_of_several_processes(variables: dict[str, str]):
    check(variables)
    with pytest.raises(UsageError, match="2 copies"):
        check(variables, processes=2)


def test_an_allocation_or_one_task_makes_no_copies():
    assert own_copy({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}) is None
    assert own_copy({**FIRST_OF_SRUN, "SLURM_STEP_NUM_TASKS": "1"}) is None
    assert own_copy({"RANK": "1", "WORLD_SIZE": "4"}) is None  # of some other program
    # mpirun starts its daemons by srun, one on each node.
    assert own_copy({**SECOND_OF_SRUN, **OF_MPIRUN}) == Copy(launcher="mpirun", number=0, count=2)


def test_a_step_inside_a_step_shares_its_cores():
    srun = Engine(name="srun", kind="srun", version="22.05", command=("srun",))
    assert engine_variables(srun, FIRST_OF_SRUN) == {"SLURM_OVERLAP": "1"}
    assert engine_variables(srun, {"SLURM_JOB_ID": "7"}) == {}


def test_mpirun_for_real():
    """What mpirun tells its processes is what we read."""
    try:
        mpirun = find_engine("mpirun", sys.executable)
    except MissingError as error:
        pytest.skip(str(error))
    asked = "import os; from deepstone.launchers.copies import own_copy; print(own_copy(os.environ).count)"
    as_root = ["--allow-run-as-root", "--oversubscribe"] if mpirun.kind == "openmpi" else []
    argv = [*mpirun.command, *as_root, "-n", "2", sys.executable, "-c", asked]
    told = subprocess.run(argv, capture_output=True, text=True, timeout=200, check=True)
    assert told.stdout.split() == ["2", "2"]
