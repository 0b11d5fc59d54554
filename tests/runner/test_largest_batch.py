"""The largest batch on the scripted backend: a device of known size, and the host of the tests."""

from __future__ import annotations

from typing import Any

import pytest
from fake_jobs import Script, fake_job

from deepstone.errors import UsageError
from deepstone.runner.conversation import JobFailed
from deepstone.runner.job import Job
from deepstone.runner.largest_batch import find_largest_batch
from deepstone.runner.memory import MemoryFound, find_memory, memory_report

GPU = {"device": "gpu:0"}
MIB = 2**20


def found_for(job: Job) -> MemoryFound | JobFailed:
    try:
        return find_memory(job, timeout_s=60)
    except JobFailed as failure:
        return failure


def largest(job: Job, *, given_bytes: int | None = None) -> dict[str, Any]:
    return find_largest_batch(job, found_for(job), given_bytes=given_bytes, timeout_s=60).to_json()


def test_a_device_is_filled_to_the_last_sample(script: Script):
    script(effective=GPU, memory={"base": 100 * MIB, "per_sample": MIB, "limit": 1000 * MIB})
    found = largest(fake_job())
    assert (found["predicted"], found["confirmed"], found["too_large"]) == (900, 900, 901)
    assert found["limit_bytes"] == 1000 * MIB
    assert [(each["batch"], each["outcome"]) for each in found["tried"]] == [
        (8, "ok"),
        (16, "ok"),
        (900, "ok"),
        (901, "oom"),
    ]
    assert found["tried"][2]["peak_bytes"] == 1000 * MIB
    assert "absent" in found["tried"][3]["peak_bytes"]
    assert "scripted: the device is full" in found["tried"][3]["reason"]


def test_a_batch_that_does_not_fit_is_halved_until_one_does(script: Script):
    script(effective=GPU, memory={"base": 100 * MIB, "per_sample": 10 * MIB, "limit": 150 * MIB})
    found = largest(fake_job(batch=64))
    assert (found["confirmed"], found["too_large"]) == (5, 6)
    assert [each["batch"] for each in found["tried"]][:5] == [64, 32, 16, 8, 4]


def test_not_even_one_sample_fits(script: Script):
    script(effective=GPU, memory={"base": 100 * MIB, "per_sample": MIB, "limit": 50 * MIB})
    found = largest(fake_job(batch=2))
    assert (found["confirmed"], found["too_large"]) == (0, 1)
    assert "not even one sample" in found["limit_bytes"]["absent"]


def test_memory_given_by_the_user_counts_instead_of_the_device_s(script: Script):
    script(effective=GPU, memory={"base": 100 * MIB, "per_sample": MIB, "limit": 1000 * MIB})
    found = largest(fake_job(), given_bytes=200 * MIB)
    assert (found["confirmed"], found["too_large"], found["limit_bytes"]) == (100, 101, 200 * MIB)
    assert found["tried"][-1]["outcome"] == "oom"
    assert found["tried"][-1]["peak_bytes"] == 201 * MIB


def test_more_than_the_host_has_is_refused(script: Script):
    script()
    with pytest.raises(UsageError, match="90% of it is not tried"):
        largest(fake_job(), given_bytes=2**50)


def test_what_is_not_for_want_of_memory_stays_a_failure(script: Script):
    script(fault={"at": "build", "kind": "error"})
    with pytest.raises(JobFailed, match="scripted failure"):
        largest(fake_job())


def test_the_report_of_a_backend_that_tells_nothing_about_layers(script: Script):
    script(effective=GPU, memory={"base": 100 * MIB, "per_sample": MIB, "limit": 1000 * MIB})
    job = fake_job()
    found = find_memory(job, timeout_s=60)
    report: Any = memory_report(job, found).to_json()
    assert report["measured_peak_bytes"] == 108 * MIB
    assert report["predicted"]["total_bytes"] == job.need_bytes
    assert report["measured"]["beyond_prediction_bytes"] == 108 * MIB - job.need_bytes
    assert "absent" in report["predicted"]["workspace_bytes"]
    assert [layer["name"] for layer in report["layers"]] == [layer.name for layer in job.model.graph.layers]
    assert all("absent" in layer["kept_bytes"] for layer in report["layers"])
    sums = [sum(layer[f"{kind}_bytes"] for layer in report["layers"]) for kind in ("parameters", "activations")]
    assert sums == [report["predicted"]["parameters_bytes"], report["predicted"]["activations_bytes"]]


def test_on_the_host_the_process_s_own_growth_is_measured(script: Script):
    script()
    report: Any = memory_report(fake_job(), find_memory(fake_job(), timeout_s=60)).to_json()
    assert report["measured_peak_bytes"] == report["measured"]["process"]["host_growth_bytes"]
    assert report["measured"]["process"]["host_peak_bytes"] > 10 * MIB
