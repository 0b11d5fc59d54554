"""Exports: whole records as JSONL, flat tables as CSV."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from factory import JsonRecord, make_record, typed

from deepstone.store.export.jsonl import export_jsonl
from deepstone.store.export.tables import export_csv


def table(*records: JsonRecord, redact: bool = True) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("".join(export_csv(map(typed, records), redact=redact)), newline="")))


def test_jsonl_is_one_record_per_line():
    records = [make_record(batch=batch) for batch in (1, 2)]
    lines = list(export_jsonl(map(typed, records), redact=False))
    assert [json.loads(line) for line in lines] == records
    assert all(line.count("\n") == 1 for line in lines)


def test_exports_are_redacted_unless_told_not_to():
    record = make_record(outcome="crashed")
    for export in (export_jsonl, export_csv):
        assert "alice" not in "".join(export(map(typed, [record])))
        assert "alice" in "".join(export(map(typed, [record]), redact=False))


def test_csv_has_one_line_per_run_and_units_in_its_names():
    ok, failed = table(make_record(batch=8, step_s=0.5), make_record(batch=16, outcome="oom"))
    assert (ok["batch"], ok["outcome"], ok["step_s_median"], ok["step_s_low"]) == ("8", "ok", "0.5", "0.495")
    assert (ok["samples_per_s_median"], ok["phase_update_s_median"]) == ("16.0", "-1e-06")
    assert (ok["memory_host_peak_bytes"], ok["startup_import_s"], ok["cost_flops"]) == (
        "123456789",
        "1.25",
        "1234567890",
    )
    assert (ok["requested_layout"], ok["effective_layout"], ok["framework"]) == ("auto", "nchw", "torch")
    assert ok["doubts"] == "too_short_to_time"
    assert (failed["outcome"], failed["step_s_median"], failed["failure_signal"]) == ("oom", "", "SIGSEGV")


def test_csv_of_nothing_is_an_empty_header():
    assert list(export_csv([])) == ["\n"]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\n=1", "＝1"])
def test_no_cell_is_a_formula(text: str):
    record: Any = make_record(outcome="crashed")
    record["failure"]["reason"] = text
    (row,) = table(record)
    assert row["failure_reason"] == f"'{text}"


def test_a_cell_may_hold_commas_quotes_and_lines():
    record: Any = make_record(outcome="crashed")
    record["failure"]["reason"] = 'a,"b"\nc\rd'
    (row,) = table(record)
    assert row["failure_reason"] == 'a,"b"\nc\rd'
