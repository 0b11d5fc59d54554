"""What a machine lacks for a job is told before anything starts, in the words that running the job prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_jobs import fake_job
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.environments.environment import Environment
from deepstone.environments.find import find_environment
from deepstone.errors import MissingError
from deepstone.hardware.gpu import may_have_gpu
from deepstone.measure.effort import Effort
from deepstone.results.environment import Gpu
from deepstone.runner import lacking as module
from deepstone.runner.job import Job, Machine
from deepstone.runner.lacking import lacking, why_not
from deepstone.runner.run import run_job
from deepstone.setups.axes import Value


def torch_job(**axes: Value) -> Job:
    job = fake_job(**axes)
    return replace(job, request={**job.request, "framework": "torch"}, environment=find_environment("torch"))


@pytest.mark.parametrize(
    "axes",
    [
        {"affinity": "9998-9999"},
        {"processes": 2, "interface": "nosuch0"},
        {"processes": 2, "launcher": "srun"},
        {"processes": 2, "nodes": 2, "launcher": "mpirun"},
    ],
    ids=lambda axes: " ".join(axes),
)
def test_the_words_are_those_of_the_run(axes: dict[str, Value], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(Path(__file__).parent))  # nothing of Slurm is there
    job = fake_job(**axes)
    with pytest.raises(MissingError) as error:
        run_job(job, Effort(budget_s=0.1, timeout_s=20.0))
    assert lacking(job) == str(error.value)


def test_nothing_lacks_where_the_job_can_run():
    assert why_not(fake_job(processes=2)) is None
    assert why_not(torch_job(device="cpu", processes=2)) is None


def test_a_rule_comes_first():
    assert "this machine" in str(why_not(fake_job(processes=2, nodes=2, launcher="torchrun")))


class TestGpus:
    @pytest.mark.parametrize(
        ("axes", "version", "gpus", "unlisted", "refused"),
        [
            ({"engine": "cudnn"}, "2.13.0", 0, False, True),
            ({"engine": "cudnn"}, "2.13.0+cpu", 1, False, True),  # this build uses none
            ({"engine": "cudnn"}, "2.13.0", 1, False, False),
            ({"engine": "cudnn"}, "2.13.0", 0, True, False),  # it may be of another maker
            ({"precision": "tf32"}, "2.13.0", 0, False, True),
            ({"engine": "onednn"}, "2.13.0", 0, False, False),
        ],
    )
    def test_auto_obeys_the_rules_of_the_device_that_it_becomes(
        self,
        axes: dict[str, Value],
        version: str,
        gpus: int,
        unlisted: bool,
        refused: bool,
        monkeypatch: pytest.MonkeyPatch,
    ):
        monkeypatch.setattr("deepstone.runner.job.has_unlisted_gpu", lambda: unlisted)
        lock = {**find_environment("torch").lock, "torch": version}
        job = on_gpus(gpus, device="auto", **axes)
        job = replace(job, environment=replace(job.environment, version=version, lock=lock))
        assert (job.broken_rule is not None) == refused
        assert (why_not(job) is not None) == refused
        if refused:
            assert run_job(job, Effort(budget_s=0.1)).outcome == "unsupported"

    def test_a_build_for_cpus_has_none(self):
        job = torch_job(device="gpu:0")
        cpu = replace(job, environment=replace(job.environment, version="2.13.0+cpu"))
        assert "built without CUDA" in str(lacking(cpu))
        assert "NCCL" in str(lacking(replace(cpu, request={**cpu.request, "device": "cpu", "transport": "nccl"})))

    def test_a_machine_without_one(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(module, "may_have_gpu", lambda: False)
        assert "torch finds no usable GPU; install" in str(lacking(on_gpus(0)))

    def test_one_that_the_driver_does_not_list_is_not_denied(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(module, "may_have_gpu", lambda: True)
        assert lacking(on_gpus(0)) is None

    @pytest.mark.parametrize(("processes", "gpus"), [(1, 1), (2, 2)])
    def test_as_many_as_asked(self, processes: int, gpus: int):
        assert lacking(on_gpus(gpus, processes=processes)) is None

    def test_every_process_needs_one(self):
        assert "every process needs one of its own" in str(lacking(on_gpus(1, processes=2)))

    def test_a_number_that_is_not_there(self):
        assert "sees 1 GPU(s)" in str(lacking(on_gpus(1, device="gpu:1")))

    def test_hidden_ones(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        assert "sees 1 GPU(s)" in str(lacking(on_gpus(2, device="gpu:1")))

    def test_files_of_devices_tell_of_others(self, tmp_path: Path):
        assert not may_have_gpu(tmp_path)
        (tmp_path / "kfd").touch()
        assert may_have_gpu(tmp_path)


def gpu(index: int) -> Gpu:
    unknown = Absent("made up")
    return Gpu(
        index=index,
        name=unknown,
        uuid=unknown,
        memory_bytes=unknown,
        driver=unknown,
        cuda_cores=unknown,
        compute_capability=unknown,
        max_sm_clock_mhz=unknown,
    )


def on_gpus(count: int, **axes: Value) -> Job:
    job = torch_job(**{"device": "gpu:0", **axes})
    boards = [gpu(index) for index in range(count)]
    description = replace(job.machine.description, gpus=boards)
    environment = Environment(
        framework="torch", version="2.13.0+cu130", program=job.environment.program, lock={"python": "3.13"}
    )
    return replace(job, machine=Machine(description=description, sha=job.machine.sha), environment=environment)
