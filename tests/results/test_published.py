"""The records we publish are what this version would write: valid, whole, and measured as they claim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from factory import check_record

from deepstone.cli.show import record_lines
from deepstone.models.zoo import ZOO
from deepstone.report.runs import run_row
from deepstone.results.codec import as_record
from deepstone.store.importing import import_records
from deepstone.store.store import Store

RESULTS = Path(__file__).resolve().parents[2] / "results"
H200 = [json.loads(line) for line in (RESULTS / "h200" / "runs.jsonl").read_text().splitlines()]

JAX = [json.loads(line) for line in (RESULTS / "h200" / "jax.jsonl").read_text().splitlines()]


def test_published_files_can_be_imported(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    for path in sorted(RESULTS.glob("*/*.jsonl")):
        assert import_records(store, path).added == len(path.read_text().splitlines())


@pytest.mark.parametrize("record", H200, ids=lambda record: record["id"])
def test_gpu_records_hold_what_a_gpu_run_promises(record: dict[str, Any]) -> None:
    """What tests/backends/test_torch_gpu.py asks of a live GPU, asked of the records kept from one."""
    check_record(record)
    assert record["outcome"] == "ok"
    assert record["graph_sha"] == ZOO[record["workload"]["model"]].make().sha
    effective = record["setup"]["effective"]
    assert effective["device"] == {"value": "gpu:0", "source": "observed"}
    for axis, asked in record["setup"]["requested"].items():
        if asked != "auto" and axis != "framework":
            assert effective[axis]["value"] == asked, axis
    assert record["phases"]["method"] == "device events in steps of their own"
    phases = sum(record["phases"][f"{name}_s"]["median"] for name in ("data", "forward", "backward", "update"))
    assert phases == pytest.approx(record["summary"]["step_s"]["median"], rel=0.1)
    assert record["memory"]["device_reserved_bytes"] >= record["memory"]["device_allocated_bytes"]
    assert record["memory"]["device_allocated_bytes"] > record["memory"]["analytic_bytes"]
    assert record["energy"]["window_s"] >= 10 * record["energy"]["meters"][0]["update_period_s"]
    assert "<host>" in record["environment"]["machine"]["hostname"]
    assert "/" not in "".join(word for word in record["command"])


def test_records_of_jax_hold_what_a_gpu_run_promises() -> None:
    for record in JAX:
        check_record(record)
        assert record["outcome"] == "ok"
        assert record["setup"]["effective"]["framework"]["value"].startswith("jax@")
        assert record["setup"]["effective"]["device"] == {"value": "gpu:0", "source": "observed"}
        assert record["phases"]["method"] == "difference of separately compiled programs, interleaved"
        # XLA fuses layers, so not every activation of the graph is ever kept.
        assert record["memory"]["device_allocated_bytes"] > 0.8 * record["memory"]["analytic_bytes"]
        assert record["energy"]["joules_per_step"] > 0


def test_readme_table_tells_what_the_records_say() -> None:
    table = (RESULTS / "h200" / "README.md").read_text()
    for record in [*H200, *JAX]:
        rate = record["summary"]["samples_per_s"]["median"]
        assert (f"| {rate:,.0f} |" if rate >= 1000 else f"| {rate:.1f} |") in table, record["id"]


@pytest.mark.parametrize("path", sorted(RESULTS.glob("h200/tune-*.jsonl")), ids=lambda path: path.stem)
def test_searches_on_a_gpu_are_proven_and_told_as_they_are(path: Path) -> None:
    """Every answer that a README quotes: its winner is proven, and the numbers are those of its finals alone."""
    results = [json.loads(line) for line in path.read_text().splitlines()]
    runs = {each["id"]: each for each in results if "samples" in each}
    for answer in (each for each in results if each.get("kind") == "tune" and each["same"].get("ok")):
        assert answer["answer"] == "better"
        told = (RESULTS / "h200" / "README.md").read_text()
        winners = [answer["best"], *([answer["batch_free"]["best"]] if "best" in answer["batch_free"] else [])]
        for winner in winners:
            rates = [runs[name]["summary"]["samples_per_s"]["median"] for name in winner["runs"]]
            assert len(rates) == answer["rounds"] == 3
            assert min(rates) <= winner["samples_per_s"]["median"] <= max(rates)
            assert {look["kind"] for look in answer["looks"] if look["run"] in winner["runs"]} == {"final"}
            assert f"{winner['samples_per_s']['median']:,.0f}" in told
        if "best" in answer["batch_free"]:
            assert answer["batch_free"]["best"]["samples_per_s"]["low"] > 7950  # what others reached


def test_no_two_published_runs_have_one_name() -> None:
    """So that links lead to one run, whichever files a store has. A copy of a run has its name."""
    results = [json.loads(line) for path in RESULTS.glob("h200/*.jsonl") for line in path.read_text().splitlines()]
    began: dict[str, set[str]] = {}
    for each in results:
        if "samples" in each:
            began.setdefault(each["id"], set()).add(each["started_at"])
    assert {name: moments for name, moments in began.items() if len(moments) > 1} == {}


def test_a_phase_whose_interval_reaches_below_nothing_is_not_resolved() -> None:
    """Phases of a step that is one program are differences; an update takes next to nothing."""
    record = next(record for record in JAX if record["phases"]["update_s"]["low"] < 0)
    step = next(line for line in record_lines(as_record(record)) if line.startswith("  step"))
    assert "update not resolved (-" in step
    assert "not resolved" in dict(run_row(as_record(record), "here").rest)["phases"]
