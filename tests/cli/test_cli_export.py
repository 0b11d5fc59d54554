"""`deepstone models NAME --export FILE`, and the files that it writes given back as models."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cli_kit import Cli

from deepstone.exchange.load import load_model
from deepstone.models.zoo import ZOO

USAGE, MISSING = 2, 4


@pytest.mark.parametrize("form", ["onnx", "json"])
def test_a_model_comes_back_as_it_was(cli: Cli, form: str) -> None:
    target = cli.home / f"net.{form}"
    done = cli("models", "cifarnet", "--export", target).assert_ok()
    assert (done.out, done.err) == ("", f"wrote {target}\n")
    assert load_model(str(target)).graph.to_json() == ZOO["cifarnet"].make().to_json()
    assert [path.name for path in cli.home.iterdir()] == [target.name]


def test_a_model_for_caffe_comes_back_as_the_same_network(cli: Cli) -> None:
    target = cli.home / "net.prototxt"
    cli("models", "alexnet", "--export", target).assert_ok()
    assert load_model(str(target)).graph.shapes == ZOO["alexnet"].make().shapes


def test_a_file_is_written_over_only_when_asked(cli: Cli) -> None:
    target = cli.home / "net.json"
    target.write_text("mine")
    cli("models", "cifarnet", "--export", target).assert_error(USAGE, "net.json is there already", "--force")
    assert target.read_text() == "mine"
    done = cli("models", "cifarnet", "--export", "net.json", "--force", "--json").assert_ok()
    assert done.json == {"name": "cifarnet", "file": "net.json"}
    assert json.loads(target.read_text())["name"] == "cifarnet"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--export", "x.onnx"), ("--export needs the NAME",)),
        (("cifarnet", "--export", "x.pdf"), ("x.pdf", ".onnx, .json, .prototxt")),
        (("cifarnet", "--export", "onnx"), ("onnx", ".onnx, .json, .prototxt")),
        (("cifarnet", "--export", "none/x.onnx"), ("there is no folder", "none")),
        (("cifarnet", "--export", "folder.onnx"), ("folder.onnx is a folder",)),
        (("cifarnet", "--export", "/proc/x.json"), ("cannot write /proc/x.json",)),
    ],
)
def test_where_it_cannot_be_written(cli: Cli, words: tuple[str, ...], told: tuple[str, ...]) -> None:
    (cli.home / "folder.onnx").mkdir()
    cli("models", *words).assert_error(USAGE, *told)


def test_an_onnx_file_is_run_like_any_model(cli: Cli) -> None:
    target = cli.home / "net.onnx"
    cli("models", "cifarnet", "--export", target).assert_ok()
    record = cli("run", target, "framework=fake", "--budget", 0.5, "--json").assert_ok().json
    assert record["workload"]["source"] == str(target)
    assert record["cost"]["flops"] > 0
    assert record["graph_sha"] == ZOO["cifarnet"].make().sha


def test_an_onnx_file_that_is_none(cli: Cli) -> None:
    (cli.home / "net.onnx").write_text("no")
    cli("run", "net.onnx").assert_error(USAGE, "net.onnx is not an ONNX file")
    assert not cli.store.exists()


def test_without_the_onnx_package(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "onnx.py").write_text("raise ModuleNotFoundError('No module named onnx')\n")
    (cli.home / "net.onnx").write_text("no")
    for words in (("run", "net.onnx"), ("models", "cifarnet", "--export", "x.onnx")):
        cli(*words, PYTHONPATH=str(tmp_path)).assert_error(MISSING, "from the clone: pip install -e '.[onnx]'")


def test_the_list_of_models_needs_no_package(reader: Cli) -> None:
    code = (
        "import sys, deepstone.cli.commands, deepstone.cli.models\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('onnx', 'google')])"
    )
    done = Cli(store=reader.store, cache=reader.cache, home=reader.home, start=(sys.executable, "-c", code))()
    assert done.assert_ok().out == "[]\n"
