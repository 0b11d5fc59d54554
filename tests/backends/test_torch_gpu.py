"""What only a GPU can show. tests/results/test_published.py asks the same of records kept from one."""

from __future__ import annotations

import pytest
import torch

from deepstone.environments.find import find_environment
from deepstone.measure.effort import Effort
from deepstone.models.load import load_in_process
from deepstone.runner.job import Job, Machine
from deepstone.runner.run import run_job
from deepstone.setups.request import complete, parse_words

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

EFFORT = Effort(target_share=0.05, budget_s=0.5, timeout_s=200)


def record(model: str, *words: str) -> dict:
    request = complete({name: values[0] for name, values in parse_words(words).items()})
    job = Job(
        model=load_in_process(model),
        request=request,
        environment=find_environment("torch"),
        machine=Machine.here(),
        command=("deepstone", "run", model, *words),
    )
    return run_job(job, EFFORT).to_json()


@pytest.mark.parametrize("precision", ["fp32", "tf32", "tf32-conv", "bf16-mixed", "bf16", "fp16-mixed"])
def test_every_precision_runs_and_is_observed(precision: str) -> None:
    run = record("cifarnet", "device=gpu", f"precision={precision}")
    assert run["outcome"] == "ok"
    assert run["setup"]["effective"]["precision"]["value"] == precision


def test_torchs_own_default_is_tf32_in_convolutions_alone() -> None:
    assert record("cifarnet", "device=gpu")["setup"]["effective"]["precision"]["value"] == "tf32-conv"


@pytest.mark.parametrize("words", [["layout=nhwc"], ["engine=native"], ["algorithm=benchmark"], ["input=pinned"]])
def test_axes_of_a_gpu(words: list[str]) -> None:
    run = record("cifarnet", "device=gpu", *words)
    assert run["outcome"] == "ok"
    axis, _, value = words[0].partition("=")
    assert run["setup"]["effective"][axis]["value"] == value


def test_a_run_has_device_memory_events_and_energy() -> None:
    run = record("cifarnet", "device=gpu", "batch=256")
    assert run["phases"]["method"] == "device events in steps of their own"
    assert run["memory"]["device_allocated_bytes"] > 0
    assert "absent" in run["energy"] or run["energy"]["joules"] > 0


def test_out_of_memory_is_an_outcome() -> None:
    run = record("resnet50", "device=gpu", "batch=8192", "precision=fp32")
    assert run["outcome"] == "oom"
