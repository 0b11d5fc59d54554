"""What Tab offers, asked for the way shells ask."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from cli_kit import Cli


def bash(cli: Cli, line: str) -> list[str]:
    """As bash does: words are broken at = and :, and only what stands after the last break is replaced."""
    words: list[str] = []
    for word in line.split(" "):
        pieces = word.replace("=", "\n=\n").replace(":", "\n:\n").split("\n")
        # A break at the end of the line is itself the word that is being completed.
        words += [piece for piece in pieces if piece] or [""]
    return _ask(cli, "complete_bash", COMP_WORDS="\n".join(words), COMP_CWORD=str(len(words) - 1))


def fish(cli: Cli, line: str) -> list[str]:
    return _ask(cli, "complete_fish", _TYPER_COMPLETE_ARGS=line, _TYPER_COMPLETE_FISH_ACTION="get-args")


def _ask(cli: Cli, how: str, **variables: str) -> list[str]:
    done = cli(_DEEPSTONE_COMPLETE=how, **variables)
    assert done.err == ""
    return done.out.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("deepstone ru", ["run"]),
        ("deepstone results ex", ["export"]),
        ("deepstone run al", ["alexnet", "alexnet-owt", "alexnet-kim"]),
        ("deepstone models resnet15", ["resnet152"]),
        ("deepstone run cifarnet in", ["inter_threads=", "input_grad=", "input=", "interface="]),
        ("deepstone run cifarnet ba", ["batch=", "batch=8/process", "batch=32"]),
        ("deepstone run cifarnet layout=", ["auto", "nchw", "nhwc"]),
        ("deepstone run cifarnet layout=n", ["nchw", "nhwc"]),
        ("deepstone run cifarnet batch=8 layout=nchw,n", ["nchw,nhwc"]),
        ("deepstone run cifarnet device=gpu", ["gpu"]),
        ("deepstone run cifarnet nonsense=", []),
        ("deepstone compare cifarnet batch=8 -- layout=nh", ["nhwc"]),
        ("deepstone run cifarnet --bud", ["--budget"]),
        ("deepstone env add mx", ["mxnet", "mxnet@1.9.1"]),
        ("deepstone env remove ", []),
    ],
)
def test_bash(reader: Cli, line: str, offered: list[str]) -> None:
    assert bash(reader, line) == offered


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("deepstone run al", ["alexnet", "alexnet-owt", "alexnet-kim"]),
        ("deepstone run cifarnet layout=n", ["layout=nchw", "layout=nhwc"]),
    ],
)
def test_fish(reader: Cli, line: str, offered: list[str]) -> None:
    assert fish(reader, line) == offered


def test_environments_that_are_there(reader: Cli, tmp_path: Path) -> None:
    manifest = {"format": 1, "name": "jax@0.4.1", "framework": "jax", "version": "0.4.1", "kind": "adopted"}
    more = {"python": "/p", "recipe_sha": "", "made_at": "", "size_bytes": 0, "variables": {}, "lock": {"python": "3"}}
    (tmp_path / "jax@0.4.1").mkdir()
    (tmp_path / "jax@0.4.1" / "environment.json").write_text(json.dumps(manifest | more))
    cli = replace(reader, more={"DEEPSTONE_ENVIRONMENTS": str(tmp_path)})
    assert bash(cli, "deepstone env remove j") == ["jax@0.4.1"]
    assert bash(cli, "deepstone env doctor jax@") == ["jax@0.4.1"]


def test_the_script_to_install_names_the_command(reader: Cli) -> None:
    done = reader("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1").assert_ok()
    assert "_DEEPSTONE_COMPLETE=complete_bash" in done.out


def test_ids_of_runs(cli: Cli) -> None:
    folder = cli.store / "runs" / "ab"
    folder.mkdir(parents=True)
    for name in ("ab12-1", "ab34-1"):
        (folder / f"{name}.json").write_text("{}")
    assert sorted(bash(cli, "deepstone results show ab")) == ["ab12-1", "ab34-1"]
    assert bash(cli, "deepstone results show ab3") == ["ab34-1"]
    assert bash(cli, "deepstone results delete zz") == []
    elsewhere = f"deepstone results show --store {cli.home} ab"
    assert fish(cli, elsewhere) == []
