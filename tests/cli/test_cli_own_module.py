"""A torch module of one's own at the command line: measured, told of, and refused where one must see inside."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from cli_kit import Cli

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "my_model.py"
MODEL = f"{EXAMPLE}:make"
USAGE, MISSING = 2, 4


def test_it_is_run(cli: Cli) -> None:
    record = cli("run", MODEL, "batch=8", "device=cpu", "threads=1", "--budget", 0.3, "--json").assert_ok().json
    assert record["outcome"] == "ok"
    assert record["workload"]["model"] == "my_model:make"
    assert record["workload"]["source"] == str(EXAMPLE)
    assert record["workload"]["file_sha256"] == hashlib.sha256(EXAMPLE.read_bytes()).hexdigest()
    assert set(record["cost"]["flops"]) == set(record["cost"]["bytes"]) == {"absent"}
    assert set(record["memory"]["analytic_bytes"]) == {"absent"}
    assert record["setup"]["effective"]["layout"] == {"value": "nchw", "source": "observed"}
    shown = cli("results", "show", record["id"]).assert_ok().out
    assert "images/s" in shown
    assert "FLOP" not in shown
    exported = cli("results", "export").assert_ok().out
    assert str(EXAMPLE) not in exported


def test_tokens_stand_beside_samples(cli: Cli) -> None:
    words = (f"{EXAMPLE.parent / 'gpt.py'}:make", "batch=2", "device=cpu", "threads=1")
    record = cli("run", *words, "--budget", 0.3, "--json").assert_ok().json
    assert record["outcome"] == "ok"
    workload, summary = record["workload"], record["summary"]
    assert (workload["sample"], workload["unit"], workload["units_per_sample"]) == ("sample", "token", 64)
    assert summary["units_per_s"]["median"] == pytest.approx(64 * summary["samples_per_s"]["median"])
    shown = cli("results", "show", record["id"]).assert_ok().out
    assert " samples/s " in shown
    assert " tokens/s " in shown
    assert "images" not in shown
    listed = cli("results", "list").assert_ok().out
    assert "tokens/s" in listed
    assert "images/s" not in listed
    page = cli.home / "page.html"
    cli("report", "-o", page).assert_ok()
    assert "images/s" not in page.read_text()
    figure = cli.home / "run.svg"
    cli("draw", record["id"], "-o", figure).assert_ok()
    assert "tokens/s" in figure.read_text()


def test_layers_of_a_module_by_class_and_block(cli: Cli) -> None:
    words = (f"{EXAMPLE.parent / 'gpt.py'}:make", "batch=2", "device=cpu", "threads=1", "--budget", 0.3)
    figure = cli.home / "gpt.svg"
    found = cli("layers", *words, "-o", figure, "--json").assert_ok().json
    rows = {row["name"]: row for row in found["layers"]}
    assert rows["blocks.3.attention.out"]["op"] == "Linear"
    assert rows["blocks.3.attention.scaled_dot_product_attention()"]["flops"]["forward"] > 0
    assert {"blocks.0 (Block)", "blocks.3 (Block)"} <= {group["name"] for group in found["blocks"]}
    assert {group["name"]: group["layers"] for group in found["classes"]} == {"Block": 4, "Attention": 4}
    for groups in (found["groups"], found["blocks"]):
        assert sum(group["share"] for group in groups) == pytest.approx(1)
    assert figure.read_bytes().startswith(b"<?xml")
    shown = cli("results", "show", found["id"]).assert_ok().out
    assert "class, with all inside" in shown


def test_an_optimizer_that_the_file_does_not_have(cli: Cli) -> None:
    done = cli("run", f"{EXAMPLE.parent / 'lstm.py'}:make", "batch=2", "optimizer=own", "--json")
    record = done.json
    assert record["outcome"] == "unsupported"
    assert "needs a function optimizer(parameters)" in record["failure"]["reason"]


def test_it_is_told_of(reader: Cli) -> None:
    shown = reader("models", MODEL).assert_ok().out
    assert f"my_model:make: the torch module that make in {EXAMPLE} returns" in shown
    assert "images 3×32×32, 10 classes, 112,394 parameters" in shown
    shown = reader("models", f"{EXAMPLE.parent / 'lstm.py'}:make").assert_ok().out
    assert "x 50×batch×32 float32, kind batch int64 below 10, 50 frames a sample, 59,018 parameters" in shown


def test_it_is_not_verified(reader: Cli) -> None:
    reader("verify", MODEL).assert_error(USAGE, "is a torch module of your own", "verify needs a graph")


def test_it_is_not_compared_across_frameworks(reader: Cli) -> None:
    done = reader("compare", MODEL, "--", "framework=fake")
    done.assert_error(USAGE, "is a torch module of your own", "compare across frameworks needs a graph")


def test_without_torch(torchless: Cli) -> None:
    torchless("run", MODEL).assert_error(
        MISSING, "framework torch is not installed", "from the clone: pip install -e '.[torch]'"
    )


def test_a_mistake_in_the_file_is_told_with_its_line(cli: Cli) -> None:
    path = cli.home / "net.py"
    path.write_text("from torch import nn\n\ndef make():\n    return nn.Linear()\n")
    cli("run", "net.py:make").assert_error(USAGE, f"{path}, line 4: TypeError: ")
    assert not cli.store.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("models", "MODEL"),
        ("models", "MODEL", "--export", "net.json"),
        ("run", "MODEL"),
        ("compare", "MODEL", "--", "batch=2"),
        ("layers", "MODEL"),
        ("memory", "MODEL"),
        ("conv", "MODEL"),
        ("verify", "MODEL"),
    ],
    ids=" ".join,
)
def test_every_command_ends_a_file_that_does_not(cli: Cli, words: tuple[str, ...]) -> None:
    path = cli.home / "net.py"
    path.write_text("while True: pass\n")
    named = [word.replace("MODEL", f"{path}:make") for word in words]
    cli(named[0], named[1], "--timeout", "0.3", *named[2:]).assert_error(USAGE, "net.py:make", "0.3 s", "--timeout")


def test_a_file_that_exits_with_0_is_an_error(cli: Cli) -> None:
    path = cli.home / "net.py"
    path.write_text("import os\nos._exit(0)\n")
    cli("run", "net.py:make").assert_error(USAGE, f"{path}:make", "exited with code 0")
