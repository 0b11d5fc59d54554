"""Faults planted in a run whose numbers then contradict each other: each gets its doubt, and an honest run none."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fake_jobs import Script, fake_job, machine, one_convolution
from msgspec.structs import replace

from deepstone.environments.find import find_environment
from deepstone.graph.graph import Graph
from deepstone.measure.effort import Effort
from deepstone.models.load import LoadedModel
from deepstone.results.quantity import Quantity
from deepstone.runner.ceilings import measure_ceilings
from deepstone.runner.job import Job
from deepstone.runner.peaks import cache_peaks
from deepstone.runner.run import run_job

CONTRADICTIONS = {"above_peak", "phases_disagree", "clocks_disagree"}
FAKE = find_environment("fake")


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSTONE_CACHE", str(tmp_path / "cache"))


@cache
def much_work() -> Graph:
    return one_convolution("much", (64, 56, 56), channels=64, classes=2)


def heavy_job() -> Job:
    """Enough operations that a step need not be shorter than the fake can play."""
    model = LoadedModel(graph=much_work(), name="much", source="zoo", file_sha256="")
    return replace(fake_job(), model=model)


def contradictions(job: Job | None = None, **effort: Any) -> set[str]:
    record: Any = run_job(job or fake_job(), Effort(**{"budget_s": 2.0, **effort})).to_json()
    assert record["outcome"] == "ok"
    return {doubt["code"] for doubt in record["doubts"]} & CONTRADICTIONS


def flops() -> int:
    counted = heavy_job().flops
    assert isinstance(counted, int)
    return counted


@pytest.mark.parametrize("one_program", [False, True])
def test_an_honest_run_has_none(script: Script, one_program: bool):
    script(noise=0.01, one_program=one_program)
    assert contradictions() == set()


def test_real_time_agrees_with_itself(script: Script):
    """In one of ten runs: a busy machine may hold up replies, which is what the doubt then says."""
    script(step_s=0.002, sleep=True, warmup=[])
    assert any(contradictions(budget_s=0.5) == set() for _ in range(10))


@pytest.mark.parametrize("claims", [0.1, 10.0])
def test_durations_that_are_not_real(script: Script, claims: float):
    script(step_s=0.002, sleep=True, warmup=[], claims=claims)
    assert contradictions(budget_s=0.2, phases=False) == {"clocks_disagree"}


def known_ceilings(peak: float, *frameworks: str) -> None:
    """What `doctor --peaks` keeps for each framework."""
    entry = measure_ceilings(FAKE, machine(), "cpu")
    for name in frameworks:
        environment = replace(FAKE, lock={**FAKE.lock, "name": name})
        cache_peaks(replace(entry, framework=f"{name}@1", measured_with=f"{name}@1"), machine(), environment)
    assert entry.flops_per_s is not None
    assert isinstance(rate := entry.flops_per_s["fp32"], Quantity)
    assert rate.median == pytest.approx(peak, rel=0.05)


def test_a_step_that_does_nothing_is_above_the_measured_peak(script: Script):
    peak = 100e9
    script(ceilings={"fp32": peak, "copy": 10e9}, step_s=flops() / (5 * peak), noise=0.01)
    known_ceilings(peak, "fake", "other")
    assert contradictions(heavy_job()) == {"above_peak"}


def test_the_product_of_one_framework_is_no_ceiling_of_a_cpu(script: Script):
    """torch reaches 211 GFLOP/s where TensorFlow reaches 491: that is torch's product, and a step may be faster."""
    peak = 100e9
    script(ceilings={"fp32": peak, "copy": 10e9}, step_s=flops() / (1.15 * peak), noise=0.001)
    known_ceilings(peak, "torch")
    record: Any = run_job(heavy_job(), Effort(budget_s=2.0)).to_json()
    assert "above_peak" not in {doubt["code"] for doubt in record["doubts"]}
    why = record["share_of_peak"]["absent"]
    assert "product of torch, the only one" in why
    assert "too low a ceiling" in why
    assert "doctor --peaks" in why
    known_ceilings(peak, "torch", "tensorflow")
    assert contradictions(heavy_job()) == {"above_peak"}


def test_beyond_the_hardware_a_low_ceiling_is_no_excuse(script: Script):
    script(ceilings={"fp32": 100e9, "copy": 10e9}, step_s=1e-5, noise=0.01)
    known_ceilings(100e9, "torch")
    assert contradictions(heavy_job(), phases=False, budget_s=0.1) == {"above_peak"}


def test_a_step_that_does_nothing_is_above_what_the_hardware_can_reach(script: Script):
    script(step_s=1e-5, noise=0.01)
    assert flops() / 1e-5 > 1e14
    assert contradictions(heavy_job(), phases=False, budget_s=0.1) == {"above_peak"}


def test_a_ceiling_that_the_hardware_cannot_have(script: Script):
    script(ceilings={"fp32": 1e15, "copy": 10e9})
    entry = measure_ceilings(FAKE, machine(), "cpu")
    assert {doubt.code for doubt in entry.doubts or []} >= {"above_peak"}


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_step_that_leaves_out_what_its_phases_do(script: Script, factor: float):
    script(noise=0.01, phases=factor)
    assert contradictions() == {"phases_disagree"}
