"""A run of one sample has no interval, wherever it is read: as this version writes it, and as earlier ones did."""

from __future__ import annotations

import csv
import io
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from factory import JsonRecord, check_record, typed, typed_records
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.analysis.cases import cases, measure_named
from deepstone.analysis.contrast import contrast_cases
from deepstone.analysis.gate import NOT_COMPARABLE, judge
from deepstone.cli.show import record_lines
from deepstone.measure.statistics import Quantity
from deepstone.report.figures import make_figure
from deepstone.report.files import as_result
from deepstone.report.runs import run_row
from deepstone.results.codec import as_record
from deepstone.results.quantity import ONE_SAMPLE
from deepstone.store.export.mllog import export_mllog
from deepstone.store.export.prometheus import export_prometheus
from deepstone.store.export.tables import export_csv
from deepstone.store.importing import import_records
from deepstone.store.rows import row_of
from deepstone.store.store import Store

PUBLISHED = Path(__file__).resolve().parents[2] / "results" / "two-cores" / "eight-years.jsonl"


def _published() -> dict[str, Any]:
    records = (json.loads(line) for line in PUBLISHED.read_text().splitlines())
    return next(record for record in records if record["summary"].get("step_s", {}).get("n") == 1)


@pytest.fixture(params=["as written now", "as written earlier"])
def lone(request: pytest.FixtureRequest) -> JsonRecord:
    record = _published()
    step = record["summary"]["step_s"]
    assert step["low"] == step["high"] == step["median"]
    if request.param == "as written now":
        for key in ("step_s", "samples_per_s"):
            record["summary"][key] = Quantity.without_interval(record["summary"][key]["median"]).to_json()
        record["doubts"].append({"code": "interval_too_wide", "detail": "the median has no interval"})
    return check_record(record)


def test_the_terminal_and_the_report_say_why(lone: JsonRecord) -> None:
    line = next(line for line in record_lines(as_record(lone)) if "images/s" in line)
    assert ONE_SAMPLE in line
    assert " – " not in line
    row = run_row(as_record(lone), "here")
    assert row.interval == ONE_SAMPLE
    assert ONE_SAMPLE in dict(row.rest)["speed"]


def test_it_is_measured_but_compared_with_nothing(lone: JsonRecord) -> None:
    (case,) = cases([as_record(lone)])
    speed = case.samples_per_s
    assert isinstance(speed, Quantity)
    assert not speed.has_interval
    assert case.is_thin
    other: Any = deepcopy(lone)
    other["setup"]["requested"]["layout"] = "nhwc"
    (another,) = cases(typed_records([other]))
    assert isinstance(contrast_cases(case, replace(another, key="another"), {"layout"}), Absent)
    (judged,) = judge([as_record(lone)], [as_record(lone)]).jobs
    assert judged.verdict == NOT_COMPARABLE


def test_a_figure_draws_no_whisker_and_says_so(lone: JsonRecord) -> None:
    (case,) = cases([as_record(lone)])
    points = []
    for name in ("images_per_s", "step_s", "peak_bytes"):
        found = measure_named(name).of(case)
        assert isinstance(found, Quantity)
        points.append({"x": name, "y": found.to_json()})
    chart = {"kind": "chart", "title": "t", "x": {}, "y": {}, "series": [{"name": "s", "points": points}]}
    figure = make_figure(as_result(chart), None)
    (panel,) = figure.panels
    values = [segment.value for row in panel.rows for bar in row.bars for segment in bar]  # type: ignore[union-attr]
    assert [(value.low, value.high) for value in values] == [(None, None)] * 3
    assert any(ONE_SAMPLE in line and "3 numbers" in line for line in figure.caption)


def test_exports_leave_the_ends_out(lone: JsonRecord) -> None:
    (cells,) = csv.DictReader(io.StringIO("".join(export_csv([typed(lone)]))))
    assert cells["samples_per_s_n"] == "1"
    assert "samples_per_s_low" not in cells
    gauges = "".join(export_prometheus([typed(lone)]))
    assert "deepstone_samples_per_second{" in gauges
    assert "deepstone_samples_per_second_low" not in gauges
    stats = next(line for line in export_mllog([typed(lone)]) if "tracked_stats" in line)
    assert set(json.loads(stats.removeprefix(":::MLLOG "))["value"]) == {"throughput", "step_s"}
    row = row_of(typed(lone))
    assert (row.step_s_median is None, row.step_s_low, row.step_s_high) == (False, None, None)


def test_it_can_be_imported_and_listed(lone: JsonRecord, tmp_path: Path) -> None:
    path = tmp_path / "lone.jsonl"
    path.write_text(json.dumps(lone) + "\n")
    store = Store.open(tmp_path / "store")
    assert import_records(store, path).added == 1
    (row,) = store.list().rows
    assert row.step_s_low is None
