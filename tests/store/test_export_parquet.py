"""What we write as Parquet is read back with types by pyarrow, and holds what the CSV holds."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import Any

import pyarrow as arrow
import pyarrow.parquet
from depth import examples
from factory import JsonRecord, make_record, typed
from hostile import records
from hypothesis import given
from hypothesis import strategies as st

from deepstone.store.export.tables import export_csv, export_parquet


def table(*runs: JsonRecord, redact: bool = False) -> Any:
    return pyarrow.parquet.read_table(io.BytesIO(export_parquet(map(typed, runs), redact=redact)))


def test_numbers_are_numbers_and_times_are_times():
    found = table(make_record(batch=8, step_s=0.5), make_record(batch=16, outcome="oom"))
    assert found.schema.field("batch").type == arrow.int64()
    assert found.schema.field("step_s_median").type == arrow.float64()
    assert found.schema.field("model").type == arrow.string()
    assert found.schema.field("started_at").type == arrow.timestamp("us", tz="UTC")
    rows = found.to_pylist()
    assert (rows[0]["step_s_median"], rows[1]["step_s_median"]) == (0.5, None)
    assert (rows[0]["failure_signal"], rows[1]["failure_signal"]) == (None, "SIGSEGV")
    assert rows[0]["started_at"] == datetime(2026, 11, 15, 3, 40, 12, 123456, tzinfo=UTC)


def test_an_axis_that_is_a_word_here_and_a_number_there_is_text():
    found = table(*(make_record(requested={"framework": "torch", "threads": threads}) for threads in (2, "auto")))
    assert found["requested_threads"].to_pylist() == ["2", "auto"]


def test_it_has_the_columns_of_the_csv():
    runs = [make_record(), make_record(batch=3, outcome="oom")]
    header = next(csv.reader(export_csv(map(typed, runs), redact=False)))
    assert table(*runs).column_names == header


def test_nothing_is_an_empty_table():
    assert table().num_rows == 0


def test_it_is_redacted_unless_told_not_to():
    record = make_record(outcome="crashed")
    assert "alice" not in str(table(record, redact=True).to_pylist())
    assert "alice" in str(table(record).to_pylist())


@given(st.lists(records(), min_size=1, max_size=4))
@examples(40)
def test_whatever_a_model_is_called(runs: list[JsonRecord]):
    found = table(*runs)
    assert found["model"].to_pylist() == [record["workload"]["model"] for record in runs]
    assert found["effective_layout"].to_pylist() == [record["setup"]["effective"]["layout"]["value"] for record in runs]
