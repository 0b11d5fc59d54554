"""One view of a record: the same fields, labels and words in every output."""

from __future__ import annotations

import pytest
from factory import typed_record

from deepstone.absent import Absent
from deepstone.cli.show import record_lines
from deepstone.report.runs import run_row
from deepstone.results.record import Record
from deepstone.results.view import FIELDS, flat, label, words


@pytest.fixture(params=["ok", "oom"])
def record(request: pytest.FixtureRequest) -> Record:
    return typed_record(outcome=request.param)


def test_every_column_is_a_field_or_a_part_of_one(record: Record) -> None:
    names = [field.name for field in FIELDS.values() if field.columns is not None]
    found = [next(name for name in reversed(names) if column == name or column.startswith(f"{name}_")) for column in flat(record)]
    assert found == sorted(found, key=names.index)


def test_no_column_is_absent_or_a_list(record: Record) -> None:
    assert all(isinstance(cell, (str, int, float, bool)) for cell in flat(record).values())


@pytest.mark.parametrize("name", ["startup", "memory"])
def test_terminal_and_page_say_the_same(record: Record, name: str) -> None:
    told = words(record, name)
    on_page = dict(run_row(record, "here").rest)
    in_terminal = [line for line in record_lines(record) if line.startswith(f"  {label(name)}: ")]
    assert in_terminal == ([f"  {label(name)}: {told}"] if told else [])
    assert on_page.get(label(name), "") == told


def test_the_words_of_numbers_are_those_of_the_record() -> None:
    record = typed_record(step_s=0.25, batch=8)
    assert not isinstance(record.summary, Absent)
    assert words(record, "step_s") == "250 ms"
    assert words(record, "samples_per_s") == "32.0"
    assert flat(record)["samples_per_s_median"] == record.summary.samples_per_s.median


def test_what_a_failed_run_lacks_is_empty() -> None:
    record = typed_record(outcome="oom")
    assert [words(record, name) for name in ("samples_per_s", "span", "step_s", "speed", "samples")] == [""] * 5
    assert words(record, "failure").startswith("oom: ")
