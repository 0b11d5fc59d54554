"""`deepstone report`: what it writes from a store and from files, and one line for what it cannot do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from cli_kit import Cli, Result, without
from report.made_up_book import paper
from report.made_up_charts import bars_chart

MISSING, STORE, USAGE = 4, 3, 2


@pytest.fixture(scope="module")
def told(measured: tuple[Cli, Result], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A report on two runs that went well and two that did not, in every form at once."""
    cli, _ = measured
    folder = tmp_path_factory.mktemp("told")
    words = ["report", "-o", "report.html", "--figures", "figures", "--markdown", "report.md", "--json"]
    return folder, cli(*words, cwd=folder).assert_ok()


def test_a_page_figures_markdown_and_json(told: tuple[Path, Result]) -> None:
    folder, done = told
    page = (folder / "report.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "crashed" in page
    assert done.json["kind"] == "report"
    assert len(done.json["runs"]) == 4
    assert len(done.json["failures"]) == 1
    pictures = sorted(path.name for path in (folder / "figures").iterdir())
    assert pictures
    assert {Path(name).suffix for name in pictures} == {".svg", ".png"}
    for name in pictures:
        if name.endswith(".svg"):
            ElementTree.parse(folder / "figures" / name)
    text = (folder / "report.md").read_text()
    linked = [line for line in text.splitlines() if line.startswith("![")]
    assert linked
    assert all((folder / line.partition("](")[2].rstrip(")")).is_file() for line in linked)


def test_messages_go_to_standard_error(told: tuple[Path, Result]) -> None:
    _, done = told
    assert "report.html: 4 runs" in done.err
    assert "as SVG and PNG" in done.err


def test_filters_choose_runs(measured: tuple[Cli, Result]) -> None:
    cli, _ = measured
    assert len(cli("report", "outcome=ok", "--json").assert_ok().json["runs"]) == 2
    assert len(cli("report", "batch=8", "layout=nchw", "--json").assert_ok().json["runs"]) == 1
    cli("report", "layuot=nchw", "--json").assert_error(USAGE, "layuot", "layout")
    cli("report", "model=vgg16", "--json").assert_error(USAGE, "nothing to report", "results list")


def exported(cli: Cli, path: Path) -> Path:
    cli("results", "export", "-o", path).assert_ok()
    return path


def storeless(cli: Cli) -> Cli:
    """A user who names no store and has none."""
    return replace(cli, more={"DEEPSTONE_STORE": "", "XDG_DATA_HOME": str(cli.home)})


def test_files_are_taken_in_and_a_run_counts_once(measured: tuple[Cli, Result], tmp_path: Path) -> None:
    cli, _ = measured
    file = exported(cli, tmp_path / "runs.jsonl")
    assert len(cli("report", "--also", file, "--json").assert_ok().json["runs"]) == 4
    assert len(storeless(cli)("report", "--also", file, "--json").assert_ok().json["runs"]) == 4


def test_a_folder_of_records_findings_charts_and_papers(cli: Cli, h200: Path) -> None:
    for name, content in results().items():
        (cli.home / f"{name}.json").write_text(json.dumps(content))
    cli("results", "import", h200 / "runs.jsonl").assert_ok()
    done = cli("report", "--also", h200, "--also", "chart.json", "--paper", "paper.json", "--json").assert_ok()
    found = done.json
    titles = [chapter["title"] for chapter in found["chapters"]]
    assert titles[0] == "Performance analysis of CNN frameworks for GPUs"
    assert {"Results", "Where the time goes", "Where memory goes"} <= set(titles)
    lines = [line for path in h200.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert len(found["runs"]) == sum("job" in json.loads(line) for line in lines)
    assert found["machines"][0]["name"].startswith("NVIDIA H200")
    figures = [figure["name"] for chapter in found["chapters"] for figure in chapter["figures"]]
    assert {"made-up-bars", "algorithms", "bars", "memory"} <= set(figures)


def results() -> dict[str, dict[str, Any]]:
    return {"chart": bars_chart(), "paper": paper()}


@pytest.fixture
def h200() -> Path:
    return Path(__file__).parents[2] / "results" / "h200"


def test_what_is_something_else_is_passed_over_in_a_folder_and_refused_by_name(cli: Cli) -> None:
    folder = cli.home / "mixed"
    folder.mkdir()
    (folder / "notes.json").write_text('{"kind": "doctor"}')
    (folder / "chart.json").write_text(json.dumps(results()["chart"]))
    done = storeless(cli)("report", "--also", folder, "--markdown", "out.md").assert_ok()
    assert "passed over" in done.err
    assert "notes.json" in done.err
    cli("report", "--also", folder / "notes.json", "--json").assert_error(USAGE, "notes.json", "kind 'doctor'")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.jsonl", b"{", "not JSON"),
        ("a.jsonl", b"", "not JSON"),
        ("a.json", b"[]", "a list"),
        ("a.json", b'{"kind": "chart"}', "title: is missing"),
        ("a.json", b'{"kind": "paper", "name": "x", "title": "y", "claims": 3}', "claims"),
        ("a.json", b'{"kind": "study", "name": "x"}', "tasks: is missing"),
        ("a.json", b'{"kind": "chart", "schema": 9}', "schema 9"),
        ("a.json", b'{"schema": 1, "job": "x"}', "job: must be"),
        ("a.json", b'{"kind": "\\u001b[31m"}', "x1b"),
    ],
)
def test_files_that_are_no_good(cli: Cli, name: str, content: bytes, told: str) -> None:
    (cli.home / name).write_bytes(content)
    done = cli("report", "--also", name, "-o", "out.html")
    done.assert_error(USAGE, name, told)
    assert not (cli.home / "out.html").exists()


def test_places_that_will_not_do(measured: tuple[Cli, Result], tmp_path: Path) -> None:
    cli, _ = measured

    def refused(*words: object, told: Iterable[str]) -> None:
        cli("report", *words, cwd=tmp_path).assert_error(USAGE, *told)

    refused(told=["-o FILE.html"])
    refused("-o", "out.pdf", told=["out.pdf", ".html", "--figures"])
    refused("-o", "nowhere/out.html", told=["nowhere"])
    refused("--markdown", "/proc/out.md", told=["/proc/out.md"])
    refused("--figures", "/proc/figures", told=["/proc/figures"])
    refused("--also", "nowhere.jsonl", "--json", told=["nowhere.jsonl"])
    (tmp_path / "empty").mkdir()
    refused("--also", "empty", "--json", told=["empty", ".jsonl"])
    refused("--study", "nosuch", "--json", told=["nosuch", "no such study"])


def test_no_store(reader: Cli, tmp_path: Path) -> None:
    reader("report", "-o", "out.html", "--store", tmp_path / "no-store").assert_error(STORE, "no-store")


def test_a_damaged_run_is_told_and_the_others_come(cli: Cli) -> None:
    cli("run", "cifarnet", "framework=fake", "batch=2,4", "--budget", 0.1).assert_ok()
    cli("results", "list").assert_ok()
    path = cli.runs()[0]
    path.write_bytes(path.read_bytes().replace(b'"outcome":"ok"', b'"outcome":"oo"'))
    done = cli("report", "--json")
    assert done.code == STORE
    assert len(done.json["runs"]) == 1
    assert done.err.count("damaged record") == 1
    cli.runs()[1].write_text("{}")
    nothing = cli("report", "--json")
    assert (nothing.code, nothing.out) == (STORE, "")
    assert nothing.err.count("damaged record") == 2


@pytest.fixture(scope="module")
def without_drawers(tmp_path_factory: pytest.TempPathFactory, measured: tuple[Cli, Result]) -> Cli:
    """The same user on a machine that has all packages but those for figures."""
    folder = tmp_path_factory.mktemp("no-figures") / "packages"
    start, variables = without(folder, "matplotlib", "jinja2")
    return replace(measured[0], start=start, more=variables)


def test_without_the_libraries_that_draw(without_drawers: Cli, tmp_path: Path) -> None:
    install = "from the clone: pip install -e '.[figures]'"
    without_drawers("report", "-o", tmp_path / "out.html").assert_error(MISSING, "jinja2", install)
    without_drawers("report", "--figures", tmp_path / "out").assert_error(MISSING, "matplotlib", install)
    without_drawers("report", "--markdown", tmp_path / "out.md").assert_ok()


NUMBER_AS_TEXT = re.compile(r"[-+]?\d[\d,.]*(e[-+]?\d+)?( ?(%|×|[a-zA-Zµ]{1,6}(/s)?))?")


def texts_in(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from texts_in(item, f"{where}.{key}")
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from texts_in(item, f"{where}[{at}]")
    elif isinstance(value, str):
        yield where, value


def test_numbers_are_numbers_in_json(cli: Cli, h200: Path) -> None:
    result = storeless(cli)("report", "--also", h200, "--json").assert_ok().json
    assert [(where, text) for where, text in texts_in(result) if NUMBER_AS_TEXT.fullmatch(text)] == []
    figures = [figure for chapter in result["chapters"] for figure in chapter["figures"]]
    assert figures
    for figure in figures:
        assert len(figure["units"]) == len(figure["headings"])
        for row in figure["rows"]:
            for cell, unit in zip(row, figure["units"], strict=True):
                assert isinstance(cell, str) <= (unit == "")
    run = next(run for run in result["runs"] if run["outcome"] == "ok")
    assert run["images_per_s"] == run["summary"]["samples_per_s"]["median"]
    assert run["memory"]["device_allocated_bytes"] > 0
