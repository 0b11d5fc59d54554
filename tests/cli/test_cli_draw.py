"""`deepstone draw`: what it writes, and one line for every file that it cannot draw from or to."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_kit import Cli, script, without
from report.made_up import conv_result, layers_result, memory_result

MISSING, USAGE = 4, 2


def saved(cli: Cli, result: dict[str, Any], name: str = "result.json") -> Path:
    path = cli.home / name
    path.write_text(json.dumps(result))
    return path


@pytest.mark.parametrize(
    ("name", "begins", "figures"),
    [
        ("out.svg", b"<?xml", ["bars"]),
        ("out.PNG", b"\x89PNG", ["bars"]),
        ("out.html", b"<!DOCTYPE html>", ["bars", "groups", "roofline"]),
    ],
)
def test_a_result_becomes_a_file(cli: Cli, name: str, begins: bytes, figures: list[str]) -> None:
    result = saved(cli, layers_result("cifarnet"))
    done = cli("draw", result, "-o", name, "--json").assert_ok()
    assert done.json == {"file": name, "figures": figures}
    assert done.err == ""
    assert (cli.home / name).read_bytes().startswith(begins)
    assert sorted(path.name for path in cli.home.iterdir() if path.is_file()) == sorted([name, "result.json"])


def test_the_kind_of_result_decides(cli: Cli) -> None:
    for name, result in (("algorithms", conv_result("cifarnet")), ("memory", memory_result("cifarnet"))):
        done = cli("draw", saved(cli, result), "-o", "out.svg").assert_ok()
        assert done.out == ""
        assert done.err == f"out.svg: {name}\n"


def test_a_figure_by_its_name(cli: Cli) -> None:
    result = saved(cli, layers_result("cifarnet"))
    cli("draw", result, "-o", "out.svg", "--figure", "roofline").assert_ok()
    assert "arithmetic intensity" in (cli.home / "out.svg").read_text()
    cli("draw", result, "-o", "out.svg", "--figure", "rooflin").assert_error(USAGE, "rooflin", "roofline")


def test_a_file_that_is_there_is_overwritten_whole(cli: Cli) -> None:
    result = saved(cli, layers_result("cifarnet"))
    target = cli.home / "out.svg"
    target.write_text("old")
    cli("draw", result, "-o", target).assert_ok()
    assert target.read_bytes().startswith(b"<?xml")
    target.write_text("old")
    cli("draw", saved(cli, {"kind": "layers", "layers": []}), "-o", target).assert_error(USAGE, "is missing")
    assert target.read_text() == "old"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[1]", "a list"),
        (b"[" * 100_000, "nested"),
        (b'{"kind": "layers", "model": NaN}', "NaN"),
        (b'{"kind": "layers", "kind": "layers"}', "twice"),
        (b'{"kind": "run"}', "kind 'run'"),
        (b"{}", "kind"),
        (b'{"kind": "layers", "model": "x", "layers": [{"name": "a", "forward_s": 1e999}]}', "finite"),
        (b'{"kind": "layers", "model": "\x1b[31m\\u001b[0m"}', "JSON"),
        (b'{"kind": "\\u001b[31m"}', "x1b"),
        (b'{"outcome": "oom", "failure": {"reason": "too big"}}', "oom: too big"),
    ],
)
def test_files_that_are_no_result(cli: Cli, content: bytes, told: str) -> None:
    path = cli.home / "result.json"
    path.write_bytes(content)
    done = cli("draw", path, "-o", "out.svg")
    done.assert_error(USAGE, "result.json", told)
    assert "\x1b" not in done.err
    assert not (cli.home / "out.svg").exists()


def test_a_file_of_a_hundred_megabytes(cli: Cli) -> None:
    path = cli.home / "result.json"
    with path.open("wb") as file:
        file.truncate(100 * 10**6)
    cli("draw", path, "-o", "out.svg").assert_error(USAGE, "larger than 64 MiB")


def test_files_that_cannot_be_read(cli: Cli) -> None:
    cli("draw", "nowhere.json", "-o", "out.svg").assert_error(USAGE, "nowhere.json", "no such file")
    cli("draw", ".", "-o", "out.svg").assert_error(USAGE, "cannot read")
    os.mkfifo(cli.home / "pipe.json")
    cli("draw", "pipe.json", "-o", "out.svg").assert_error(USAGE, "not a regular file")


def test_places_that_cannot_be_written(cli: Cli) -> None:
    result = saved(cli, layers_result("cifarnet"))
    cli("draw", result, "-o", "out.pdf").assert_error(USAGE, "out.pdf", ".svg, .png or .html")
    cli("draw", result, "-o", "/proc/out.svg").assert_error(USAGE, "/proc/out.svg", "name another file")
    cli("draw", result, "-o", "nowhere/out.svg").assert_error(USAGE, "nowhere/out.svg")
    (cli.home / "folder.svg").mkdir()
    cli("draw", result, "-o", "folder.svg").assert_error(USAGE, "folder.svg")
    cli("draw", result).assert_error(USAGE, "-o")


@pytest.fixture(scope="module")
def without_drawers(tmp_path_factory: pytest.TempPathFactory, reader: Cli) -> Cli:
    """A machine that has all packages but those for figures."""
    folder = tmp_path_factory.mktemp("no-figures") / "packages"
    start, variables = without(folder, "matplotlib", "jinja2")
    return replace(reader, start=start, more=variables)


@pytest.mark.parametrize(("name", "library"), [("out.svg", "matplotlib"), ("out.html", "jinja2")])
def test_without_the_libraries_that_draw(without_drawers: Cli, name: str, library: str) -> None:
    result = saved(without_drawers, layers_result("cifarnet"))
    without_drawers("models").assert_ok()
    told = (library, "from the clone: pip install -e '.[figures]'")
    without_drawers("draw", result, "-o", name).assert_error(MISSING, *told)


@pytest.mark.parametrize("kind", ["svg", "html"])
def test_a_run_of_the_store(cli: Cli, kind: str) -> None:
    done = cli("run", "cifarnet", "framework=fake", "batch=8", "--launches", 2, "--budget", 0.3, "--json").assert_ok()
    target = cli.home / f"run.{kind}"
    drawn = cli("draw", done.json["id"][:6], "-o", target, "--json").assert_ok().json
    assert drawn["figures"] == ["run"]
    text = target.read_text()
    for word in ("cifarnet", "forward", "backward", "update", "launch 2", "Timing samples"):
        assert word in text


def test_runs_that_cannot_be_drawn(cli: Cli) -> None:
    cli("draw", "abc", "-o", "run.svg").assert_error(3, "no store")
    fault = script(fault={"at": "build", "kind": "error"})
    failed = cli("run", "cifarnet", "framework=fake", "--json", DEEPSTONE_FAKE=fault).json
    cli("draw", failed["id"], "-o", "run.svg").assert_error(2, failed["id"], "nothing was measured", "crashed")
    cli("draw", "abc", "-o", "run.svg").assert_error(2, "no run or finding 'abc' in the store")
    cli("draw", "abc.json", "-o", "run.svg").assert_error(2, "abc.json")
