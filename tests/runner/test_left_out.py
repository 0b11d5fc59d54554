"""Work left out of torch's real training step: no comparison names it the winner, and a run of it is doubted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.environments.find import find_environment
from deepstone.exchange.load import load_model
from deepstone.measure.effort import Effort
from deepstone.runner.compare import compare_jobs
from deepstone.runner.job import Job, Machine
from deepstone.runner.run import run_job
from deepstone.setups.request import complete

PLANTED = Path(__file__).parents[1] / "checks" / "planted_training"
QUICK = Effort(budget_s=0.4, timeout_s=200.0, phases=False)


def job(fault: str = "", **axes: str | int) -> Job:
    environment = find_environment("torch")
    if fault:
        variables = {"PYTHONPATH": str(PLANTED), "DEEPSTONE_TEST_PLANT_TRAINING": fault}
        environment = replace(environment, variables=variables)
    request = complete({"framework": "torch", "device": "cpu", "batch": 4, "threads": 1, **axes})
    return Job(
        model=load_model("cifarnet"),
        request=request,
        environment=environment,
        machine=Machine.here(),
        command=("deepstone", "run", "cifarnet"),
    )


@pytest.mark.parametrize(
    ("fault", "phase"),
    [
        ("no update", "train"),
        ("no backward", "train"),
        ("no later update", "train"),
        ("first layer later", "train"),
        ("update of first layer later", "train"),
        ("no backward", "gradient"),
    ],
)
def test_a_run_is_doubted(fault: str, phase: str):
    record = run_job(job(fault, phase=phase), QUICK).to_json()
    assert record["outcome"] == "ok"
    assert "not_training" in {doubt["code"] for doubt in record["doubts"]}


def test_casting_that_stops_after_some_steps_is_unsupported():
    """The first step is as asked; so what is watched is watched again at the end."""
    record = run_job(job("no later casting", precision="bf16-mixed"), QUICK).to_json()
    assert record["outcome"] == "unsupported"
    assert "precision=bf16-mixed, but got fp32 by the end of the run" in str(record["failure"])


def test_a_comparison_within_one_framework_names_no_winner():
    """Half of the updates are left out from the start: the process by itself trains, but not as the other does."""
    found = compare_jobs([job(), job("every other update")], QUICK, groups=1)
    assert found.ratios == ()
    assert "the same training" in found.refusal
    assert all(side is not None and side.outcome == "ok" for side in found.sides)


OWN_MODEL = Path(__file__).parents[2] / "examples" / "my_model.py"


def own(fault: str = "", source: Path = OWN_MODEL) -> Job:
    return replace(job(fault), model=load_model(f"{source}:make"))


def test_half_an_update_of_a_module_of_ones_own_is_no_winner():
    found = compare_jobs([own(), own("half of every update")], QUICK, groups=1)
    assert found.ratios == ()
    assert "the size of the early updates" in found.refusal


def test_what_is_known_of_a_module_of_ones_own_is_told():
    found = compare_jobs([own(), own()], QUICK, groups=1)
    assert found.ratios
    assert "A and B start with the same loss" in found.established
    assert "the size of the early updates agree" in found.established
    assert "layers are not checked" in found.established
    assert found.sides[0] is not None
    assert not isinstance(found.sides[0].comparison, Absent)
    assert found.sides[0].comparison.sameness == Absent(found.established)


LATER = """
import torch
from torch import nn

INPUT_SHAPE = (3, 16, 16)
WAYS = {"no_grad": torch.no_grad, "whole": torch.enable_grad}


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.frozen = nn.Conv2d(3, 8, 3).requires_grad_(False)
        self.body = nn.Sequential(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(16 * 10 * 10, 10)

    def forward(self, x):
        self.calls += 1
        is_later = torch.is_autocast_enabled("cpu") and self.calls > 12
        with WAYS["WAY"]() if is_later else torch.enable_grad():
            x = self.body(self.frozen(x))
        return self.head(x)


def make():
    return Network()
"""


@pytest.fixture
def later(tmp_path: Path) -> Callable[..., Job]:
    """A module that under autocast, after some steps, no longer trains its body (`no_grad`), or goes on (`whole`)."""

    def made(way: str, **axes: str | int) -> Job:
        source = tmp_path / f"{way}.py"
        source.write_text(LATER.replace("WAY", way))
        return replace(job(**axes), model=load_model(f"{source}:make"))

    return made


def test_a_part_that_is_no_longer_trained_later_is_no_winner(later: Callable[..., Job]):
    found = compare_jobs([later("no_grad"), later("no_grad", precision="bf16-mixed")], QUICK, groups=1)
    assert found.ratios == ()
    assert found.refusal == (
        "B is not shown to train: the last steps compute no gradient of module/body.0.bias and 3 more arrays, which "
        "the first ones changed"
    )


@pytest.mark.parametrize("phase", ["train", "gradient"])
def test_a_run_that_no_longer_trains_a_part_is_doubted(later: Callable[..., Job], phase: str):
    record = run_job(later("no_grad", precision="bf16-mixed", phase=phase), QUICK).to_json()
    details = {doubt["code"]: doubt["detail"] for doubt in record["doubts"]}
    assert "the last steps compute no gradient of module/body.0.bias and 3 more arrays" in details["not_training"]


def test_a_layer_that_is_frozen_from_the_start_is_no_fault(later: Callable[..., Job]):
    found = compare_jobs([later("whole"), later("whole", precision="bf16-mixed")], QUICK, groups=1)
    assert found.ratios, found.refusal


@pytest.mark.deep
def test_a_random_module_is_not_taken_for_another_training(tmp_path: Path):
    source = tmp_path / "chance.py"
    lines = ["import os, torch", "from torch import nn", "INPUT_SHAPE = (3, 8, 8)", "def make():"]
    lines += ["    torch.manual_seed(int.from_bytes(os.urandom(4), 'big'))"]
    lines += ["    return nn.Sequential(nn.Flatten(), nn.Linear(192, 10))"]
    source.write_text("\n".join(lines))
    found = compare_jobs([own(source=source), own(source=source)], QUICK, groups=1)
    assert found.ratios
    assert "not established that A and B do the same training: the first loss is" in found.established
