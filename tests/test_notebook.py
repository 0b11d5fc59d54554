"""`deepstone.open`: a store as records and as a data frame, and an example that runs."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from factory import typed_draft

import deepstone
from deepstone.errors import MissingError, StoreError, UsageError
from deepstone.notebook import Results
from deepstone.store.store import Store

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = Store.open(tmp_path / "store")
    store.add(typed_draft(batch=8, step_s=0.5, started_at="2026-01-01T00:00:00.000000Z"))
    store.add(typed_draft(batch=16, outcome="oom", started_at="2026-01-02T00:00:00.000000Z"))
    asked = {"framework": "jax", "device": "cpu", "layout": "nhwc", "threads": "auto"}
    store.add(typed_draft(batch=32, model="vgg16", requested=asked, started_at="2026-01-03T00:00:00.000000Z"))
    return tmp_path / "store"


@pytest.fixture
def results(folder: Path) -> Results:
    return deepstone.open(folder)


def test_runs_are_whole_records_oldest_first(results: Results):
    runs = results.runs()
    assert [run["workload"]["batch"] for run in runs] == [8, 16, 32]
    assert runs[0]["samples"]["launches"]


def test_filters_are_columns_and_axes(results: Results):
    def batches(**filters: object) -> list[int]:
        return [run["workload"]["batch"] for run in results.runs(**filters)]

    assert batches(model="vgg16") == [32]
    assert batches(outcome="ok", framework="torch") == [8]
    assert batches(threads=2) == [8, 16]
    assert batches(model="none") == []
    with pytest.raises(UsageError, match="did you mean model"):
        results.runs(modle="vgg16")


def test_a_frame_has_a_row_per_run_and_tidy_columns(results: Results):
    frame = results.to_pandas()
    assert list(frame["batch"]) == [8, 16, 32]
    assert frame.started_at.dtype == "datetime64[ns, UTC]"
    first = frame.iloc[0]
    assert (first["samples_per_s"], first["samples_per_s_low"], first["step_s"]) == pytest.approx(
        (16.0, 8 / 0.505, 0.5)
    )
    assert (first["layout"], first["effective_layout"], first["framework"]) == ("auto", "nchw", "torch")
    assert (first["memory_host_peak_bytes"], first["doubts"]) == (123_456_789, "too_short_to_time")
    assert math.isnan(frame.iloc[1]["samples_per_s"])
    assert frame.iloc[1]["outcome"] == "oom"
    assert list(frame["threads"]) == ["2", "2", "auto"]
    assert frame.job.nunique() == 3


def test_numbers_can_be_calculated_with(results: Results):
    frame = results.to_pandas(outcome="ok")
    assert (frame["batch"] / frame["step_s"]).tolist() == pytest.approx(frame["samples_per_s"].tolist())


def test_arrow_has_the_same_columns(results: Results):
    assert results.to_arrow().column_names == list(results.to_pandas().columns)


def test_a_store_without_runs_is_an_empty_frame(tmp_path: Path):
    Store.open(tmp_path / "empty")
    assert len(deepstone.open(tmp_path / "empty").to_pandas()) == 0
    assert deepstone.open(tmp_path / "empty").findings() == []


def test_a_record_cannot_take_the_name_of_another_column(tmp_path: Path):
    store = Store.open(tmp_path / "store")
    store.add(typed_draft(requested={"id": "mine", "samples_per_s": "mine", "outcome": "mine"}))
    (row,) = deepstone.open(tmp_path / "store").to_pandas().to_dict("records")
    assert (row["outcome"], row["samples_per_s"]) == ("ok", 640.0)
    assert row["id"] != "mine"


def test_a_damaged_record_is_left_out_with_a_warning(folder: Path, results: Results):
    results.runs()
    bad = sorted(folder.glob("runs/*/*.json"))[0]
    bad.write_text("{}")
    with pytest.warns(UserWarning, match=f"damaged record {bad}"):
        assert len(results.runs()) == 2


def test_the_store_of_the_environment_and_the_default_one(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DEEPSTONE_STORE", str(folder))
    assert len(deepstone.open().runs()) == 3
    monkeypatch.delenv("DEEPSTONE_STORE")
    folder.rename(folder.with_name("deepstone"))
    monkeypatch.setenv("XDG_DATA_HOME", str(folder.parent))
    assert len(deepstone.open().runs()) == 3


def test_no_store_there(tmp_path: Path):
    with pytest.raises(StoreError, match="there is no store in"):
        deepstone.open(tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("package", "call", "line"),
    [("pandas", "to_pandas", ".[notebook]"), ("pyarrow", "to_arrow", ".[parquet]")],
)
def test_without_the_package(results: Results, monkeypatch: pytest.MonkeyPatch, package: str, call: str, line: str):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingError) as refused:
        getattr(results, call)()
    assert f"pip install -e '{line}'" in str(refused.value)


def run_python(*words: str) -> Any:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=200, check=False, cwd=ROOT)


def test_importing_the_package_imports_next_to_nothing():
    code = "import sys; before = set(sys.modules); import deepstone; print(sorted(set(sys.modules) - before))"
    assert run_python("-c", code).stdout == "['deepstone']\n"


def test_the_example_runs(folder: Path):
    done = run_python("examples/notebook.py", str(folder))
    assert done.returncode == 0, done.stderr
    assert "vgg16" in done.stdout
    assert "widest interval: 2.0%" in done.stdout


def test_the_example_says_what_to_do_when_there_is_nothing(tmp_path: Path):
    Store.open(tmp_path / "empty")
    done = run_python("examples/notebook.py", str(tmp_path / "empty"))
    assert done.returncode == 1
    assert "deepstone run cifarnet" in done.stderr
