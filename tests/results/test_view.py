"""One view of a record: the same fields, labels and words in every output."""

from __future__ import annotations

import pytest
from factory import typed_record
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.cli.show import record_lines, show_table
from deepstone.report.runs import run_row, speed_heading
from deepstone.results.record import Record
from deepstone.results.view import FIELDS, flat, label, rate, words


@pytest.fixture(params=["ok", "oom"])
def record(request: pytest.FixtureRequest) -> Record:
    return typed_record(outcome=request.param)


def test_every_column_is_a_field_or_a_part_of_one(record: Record) -> None:
    names = [field.name for field in FIELDS.values() if field.columns is not None]
    found = [
        next(name for name in reversed(names) if column == name or column.startswith(f"{name}_"))
        for column in flat(record)
    ]
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


def of_tokens(record: Record, per_sample: int) -> Record:
    """The same run of a model whose samples are made of tokens."""
    summary = record.summary
    assert not isinstance(summary, Absent)
    workload = replace(record.workload, sample="sample", unit="token", units_per_sample=per_sample)
    units_per_s = summary.step_s.inverse(record.workload.batch * per_sample)
    return replace(record, workload=workload, summary=replace(summary, units_per_s=units_per_s))


def test_people_count_tokens_where_samples_are_made_of_them() -> None:
    plain = typed_record(step_s=0.25, batch=8)
    tokens = of_tokens(plain, 64)
    assert (plain.workload.things, tokens.workload.things) == ("images", "tokens")
    slow, fast = rate(plain), rate(tokens)
    assert slow is not None
    assert fast is not None
    assert fast.median == pytest.approx(64 * slow.median)
    rows = [run_row(each, "here") for each in (plain, tokens)]
    assert [row.rate for row in rows] == ["32.0", "2,048 tokens/s"]
    assert [speed_heading([row]) for row in rows] == ["images/s", "speed"]


@pytest.mark.parametrize("both", [False, True])
def test_a_table_says_what_is_counted(both: bool, capsys: pytest.CaptureFixture[str]) -> None:
    plain = typed_record(step_s=0.25, batch=8)
    tokens = of_tokens(plain, 64)
    show_table([plain, tokens] if both else [tokens, tokens])
    shown = capsys.readouterr().out
    assert "2,048" in shown
    assert "images/s" in shown if both else "images" not in shown
    assert "tokens/s" in shown
