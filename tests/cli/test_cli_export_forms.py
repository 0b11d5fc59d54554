"""`deepstone results export --format …`: the forms for other programs, and where they can be written."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet
import pytest
from cli_kit import Cli, Result
from factory import typed_draft
from prometheus_client.parser import text_string_to_metric_families

from deepstone.store.store import Store

USAGE, STORE, MISSING = 2, 3, 4


@pytest.fixture
def filled(cli: Cli) -> Cli:
    store = Store.open(cli.store)
    for batch in (8, 16):
        store.add(typed_draft(batch=batch, outcome="ok" if batch == 8 else "crashed"))
    return cli


def test_real_runs_in_every_form(measured: tuple[Cli, Result], tmp_path: Path) -> None:
    cli, _ = measured
    cli("results", "export", "--format", "parquet", "-o", tmp_path / "runs.parquet").assert_ok()
    table = pyarrow.parquet.read_table(tmp_path / "runs.parquet")
    assert table["outcome"].to_pylist() == ["ok", "crashed", "ok", "crashed"]
    text = cli("results", "export", "--format", "prometheus").assert_ok().out
    names = {family.name: len(family.samples) for family in text_string_to_metric_families(text)}
    assert (names["deepstone_ok"], names["deepstone_samples_per_second"]) == (4, 2)
    lines = cli("results", "export", "outcome=ok", "--format", "mllog").assert_ok().out.splitlines()
    assert all(line.startswith(":::MLLOG {") for line in lines)
    assert sum('"key": "run_stop"' in line for line in lines) == 2


def test_parquet_is_not_printed(filled: Cli) -> None:
    filled("results", "export", "--format", "parquet").assert_error(USAGE, "-o FILE")


def test_without_pyarrow(filled: Cli, tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ModuleNotFoundError('No module named pyarrow')\n")
    done = filled("results", "export", "--format", "parquet", "-o", "runs.parquet", PYTHONPATH=str(tmp_path))
    done.assert_error(MISSING, "from the clone: pip install -e '.[parquet]'")
    assert not (filled.home / "runs.parquet").exists()


@pytest.mark.parametrize("form", ["parquet", "prometheus"])
def test_a_file_is_replaced_at_once_and_nothing_is_left_beside_it(filled: Cli, form: str) -> None:
    target = filled.home / "runs.out"
    target.write_text("old")
    held = target.open()  # a reader in the middle of the old file must not see the new one grow
    filled("results", "export", "--format", form, "-o", "runs.out").assert_ok()
    with held:
        assert held.read() == "old"
    assert target.stat().st_size > 500
    assert [path.name for path in filled.home.iterdir()] == ["runs.out"]


@pytest.mark.parametrize("form", ["csv", "parquet", "mllog", "prometheus"])
def test_where_it_cannot_be_written(filled: Cli, form: str) -> None:
    filled("results", "export", "--format", form, "-o", "none/x").assert_error(USAGE, "cannot write none/x", "-o")


def test_a_form_that_is_none(filled: Cli) -> None:
    filled("results", "export", "--format", "xml").assert_error(USAGE, "--format", "prometheus")


@pytest.mark.parametrize(
    ("form", "indexed"), [("jsonl", True), ("jsonl", False), ("parquet", True), ("prometheus", True)]
)
def test_a_damaged_record_is_skipped_named_and_told_by_the_exit_code(filled: Cli, form: str, indexed: bool) -> None:
    if indexed:
        filled("results", "list").assert_ok()
    bad, *good = filled.runs()
    bad.write_text("{}")
    done = filled("results", "export", "--format", form, "-o", "out")
    done.assert_error(STORE, f"damaged record {bad}")
    if form == "jsonl":
        lines = (filled.home / "out").read_text().splitlines()
        assert [json.loads(line)["id"] for line in lines] == [run.stem for run in good]


def test_a_damaged_finding_is_told_too(filled: Cli) -> None:
    bad = filled.store / "findings" / f"{'0' * 20}-1.json"
    bad.parent.mkdir(exist_ok=True)
    bad.write_text("{}")
    filled("results", "export", "-o", "out").assert_error(STORE, f"damaged record {bad}")
