"""Ceilings measured on the scripted backend, kept, found again, and what records say with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from factory import check_record
from fake_jobs import Script, fake_job, machine
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.environments.find import find_environment
from deepstone.errors import RefusedInputError, StoreError
from deepstone.hardware.noise import Noise
from deepstone.measure.effort import Effort
from deepstone.results.ceilings import Ceiling
from deepstone.results.codec import convert
from deepstone.results.environment import Gpu
from deepstone.results.layers import LayerPeaks
from deepstone.results.record import Effect
from deepstone.runner.ceilings import measure_ceilings
from deepstone.runner.measurement import Launched, noise_around
from deepstone.runner.peaks import cache_peaks, known_peaks, peaks_of
from deepstone.runner.run import run_job
from deepstone.store.store import Store
from deepstone.tuner.bound import roofline_share

FAKE = find_environment("fake")
EFFECTIVE = {"device": Effect(value="cpu", source="observed"), "threads": Effect(value=1, source="observed")}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEEPSTONE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def entry(**changes: Any) -> dict[str, Any]:
    quantity = {"median": 100e9, "low": 90e9, "high": 110e9, "n": 50}
    return {
        "device": "cpu",
        "framework": "fake@1",
        "threads": 1,
        "flops_per_s": {"fp32": quantity, "bf16": {"absent": "unsupported: none"}},
        "bytes_per_s": {"copy": {"median": 10e9, "low": 9e9, "high": 11e9, "n": 50}},
        "link": {"absent": "there is no second device to send to"},
        "measured_with": "fake@1",
        "measured_at": "2026-11-15T03:40:12.123456Z",
        **changes,
    }


def typed(**changes: Any) -> Ceiling:
    return convert(entry(**changes), Ceiling)


def measured(device: str = "cpu") -> dict[str, Any]:
    found = measure_ceilings(FAKE, machine(), device)
    assert found.absent is None
    return found.to_json()


def test_ceilings_are_the_rates_that_were_played(script: Script):
    script(ceilings={"fp32": 100e9, "fp64": 50e9, "copy": 10e9}, noise=0.005)
    found = measured()
    assert found["flops_per_s"]["fp32"]["median"] == pytest.approx(100e9, rel=0.02)
    assert found["flops_per_s"]["fp64"]["median"] == pytest.approx(50e9, rel=0.02)
    assert found["bytes_per_s"]["copy"]["median"] == pytest.approx(10e9, rel=0.02)
    for quantity in (*found["flops_per_s"].values(), found["bytes_per_s"]["copy"]):
        if "absent" not in quantity:
            assert quantity["low"] <= quantity["median"] <= quantity["high"]
            assert quantity["n"] >= 5
    assert found["flops_per_s"]["bf16"] == {"absent": "unsupported: scripted: no bf16"}
    assert (found["threads"], found["device"], found["measured_with"]) == (1, "cpu", "fake@1")
    assert "absent" in found["link"]


def test_its_worker_is_not_the_load_of_others(script: Script, monkeypatch: pytest.MonkeyPatch):
    """A product keeps all cores busy, and that says nothing against it."""
    script(ceilings={"fp32": 100e9, "copy": 10e9}, noise=0.005)
    ours: list[tuple[list[int], int]] = []

    def watched(launches: list[Launched]) -> Noise:
        ours.extend((launched.pids, launched.hello.pid) for launched in launches if launched.hello is not None)
        return noise_around(launches)

    monkeypatch.setattr("deepstone.runner.ceilings.noise_around", watched)
    measured()
    assert ours
    assert all(pids == [pid] for pids, pid in ours)


def test_a_crash_costs_its_own_ceiling_alone(script: Script):
    script(
        ceilings={"fp32": 100e9, "bf16": 1e12, "fp64": 50e9, "copy": 10e9},
        fault={"at": "ceiling bf16", "kind": "segfault"},
    )
    found = measured()
    assert found["flops_per_s"]["bf16"]["absent"].startswith("crashed: ")
    assert set(found["flops_per_s"]) == {"fp32", "bf16", "fp64"}
    assert "median" in found["flops_per_s"]["fp64"]
    assert "median" in found["bytes_per_s"]["copy"]


def test_a_framework_that_does_not_start_has_no_entry(script: Script):
    script(fault={"at": "build", "kind": "missing"})
    found = measure_ceilings(FAKE, machine(), "cpu")
    assert found == Ceiling(device="cpu", framework="fake@1", absent="scripted: not there; install it")


def test_gpus_have_more_precisions_and_links_to_each_other(script: Script):
    boards = [Gpu(index=index, name="board", memory_bytes=2**30) for index in range(3)]
    with_boards = replace(machine(), description=replace(machine().description, gpus=boards))
    script(ceilings={"fp32": 1e13, "tf32": 1e14, "bf16": 2e14, "fp16": 2e14, "copy": 1e12, "link": 1e11})
    found: Any = measure_ceilings(FAKE, with_boards, "gpu:1").to_json()
    assert set(found["flops_per_s"]) == {"fp32", "tf32", "bf16", "fp16", "fp64"}
    assert set(found["link"]) == {"gpu:0", "gpu:2"}
    assert found["link"]["gpu:0"]["median"] == pytest.approx(1e11, rel=0.05)
    assert "absent" in found["threads"]


def test_kept_and_found_again(script: Script):
    script(ceilings={"fp32": 100e9, "copy": 10e9})
    assert isinstance(known_peaks(fake_job(), EFFECTIVE), Absent)
    found = measured()
    cache_peaks(convert(found, Ceiling), machine(), FAKE)
    peaks = known_peaks(fake_job(), EFFECTIVE)
    assert isinstance(peaks, LayerPeaks)
    assert peaks.flops_per_s["fp32"].median == found["flops_per_s"]["fp32"]["median"]
    assert "bf16" not in peaks.flops_per_s
    assert peaks.measured_with == "fake@1"


def test_other_threads_devices_and_machines_have_ceilings_of_their_own():
    cache_peaks(typed(), machine(), FAKE)
    more_threads = {**EFFECTIVE, "threads": Effect(value=8, source="observed")}
    gpu = {**EFFECTIVE, "device": Effect(value="gpu:0", source="observed")}
    elsewhere = replace(fake_job(), machine=replace(machine(), sha="0" * 64))
    for unknown in (known_peaks(fake_job(), more_threads), known_peaks(fake_job(), gpu)):
        assert isinstance(unknown, Absent)
        assert "run `deepstone doctor --peaks` first" in unknown.reason
    assert isinstance(known_peaks(elsewhere, EFFECTIVE), Absent)
    cache_peaks(typed(device="gpu:0", threads={"absent": "none"}), machine(), FAKE)
    assert isinstance(known_peaks(fake_job(), gpu), LayerPeaks)


def test_the_best_of_all_frameworks_is_the_machine_s():
    other = replace(FAKE, lock={**FAKE.lock, "fake": "2"})
    assert other.sha != FAKE.sha
    faster = {"median": 200e9, "low": 190e9, "high": 210e9, "n": 50}
    cache_peaks(typed(), machine(), FAKE)
    cache_peaks(typed(flops_per_s={"fp32": faster}, measured_with="other@2"), machine(), other)
    peaks = known_peaks(fake_job(), EFFECTIVE)
    assert isinstance(peaks, LayerPeaks)
    assert peaks.flops_per_s["fp32"].median == 200e9
    assert sorted(peaks.measured_with.split(", ")) == ["fake@1", "other@2"]
    cache_peaks(typed(), machine(), other)  # measured again: what it said before is gone
    again = known_peaks(fake_job(), EFFECTIVE)
    assert isinstance(again, LayerPeaks)
    assert again.flops_per_s["fp32"].median == 100e9


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"null",
        json.dumps({"schema": 99, **entry()}).encode(),
        json.dumps({"schema": 1, **entry(flops_per_s=3)}).encode(),
        json.dumps({"schema": 1, **entry(bytes_per_s={})}).encode(),
        json.dumps({"schema": 1, **entry(threads=None)}).encode(),
    ],
)
def test_a_damaged_file_is_as_good_as_none(cache: Path, damage: bytes):
    cache_peaks(typed(), machine(), FAKE)
    (kept,) = cache.glob("peaks/*/*.json")
    kept.write_bytes(damage)
    assert isinstance(known_peaks(fake_job(), EFFECTIVE), Absent)


numbers = st.one_of(st.floats(), st.integers(-5, 5), st.none(), st.text(max_size=3))


@given(median=numbers, low=numbers, high=numbers, n=numbers)
def test_no_quantity_of_a_damaged_file_becomes_a_ceiling(median, low, high, n):
    quantity = {"median": median, "low": low, "high": high, "n": n}
    try:
        peaks = peaks_of(typed(flops_per_s={"fp32": quantity}))
    except RefusedInputError:
        return
    if peaks is not None:
        known = peaks.flops_per_s["fp32"]
        assert 0 < known.low <= known.median <= known.high < float("inf")


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DEEPSTONE_CACHE", str(tmp_path / "file"))
    with pytest.raises(StoreError, match="DEEPSTONE_CACHE"):
        cache_peaks(typed(), machine(), FAKE)


def test_a_record_tells_its_share_of_the_peak(script: Script, store: Store):
    script()
    job, effort = fake_job(), Effort(budget_s=0.5)
    before = store.add(run_job(job, effort)).to_json()
    assert "run `deepstone doctor --peaks` first" in before["share_of_peak"]["absent"]  # type: ignore[index]
    cache_peaks(typed(), machine(), FAKE)
    record = store.add(run_job(job, effort)).to_json()
    share: Any = record["share_of_peak"]
    reached = record["cost"]["flops"] / record["summary"]["step_s"]["median"]  # type: ignore[typeddict-item]
    assert share["share"] == pytest.approx(reached / 100e9)
    assert (share["precision"], share["peak_flops_per_s"]) == ("fp32", 100e9)
    check_record(record)


def test_no_share_of_a_roofline_that_is_too_low(script: Script, store: Store):
    script()
    job = fake_job()
    for flops_per_s, is_known in ((100e12, True), (1.0, False)):
        rate = {"median": flops_per_s, "low": flops_per_s, "high": flops_per_s, "n": 50}
        cache_peaks(typed(flops_per_s={"fp32": rate}), machine(), FAKE)
        share = roofline_share(job, store.add(run_job(job, Effort(budget_s=0.5))))
        assert (isinstance(share, float) and share <= 1) if is_known else "doctor --peaks" in str(share)


def test_a_precision_without_a_ceiling_has_no_share(script: Script):
    script()
    cache_peaks(typed(), machine(), FAKE)
    record = run_job(fake_job(precision="bf16"), Effort(budget_s=0.5)).to_json()
    assert "bf16" in record["share_of_peak"]["absent"]  # type: ignore[index]
