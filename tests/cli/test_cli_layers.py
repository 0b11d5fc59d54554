"""`deepstone layers`, typed as a user would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_kit import Cli, script

FAKE = ("layers", "cifarnet", "framework=fake", "--budget", 1)


def test_a_table_and_what_the_step_is_made_of(cli: Cli) -> None:
    done = cli(*FAKE).assert_ok()
    assert done.out.startswith("cifarnet · batch 32 · train · fake 1 on cpu (fp32, nchw, native)\n")
    for name in ("conv1", "norm1", "pool3", "ip1", "loss"):
        assert f"\n{name} " in done.out
    assert "none is the remainder" in done.out
    assert "\nconvolutions (3) take " in done.out
    assert cli.runs() == []  # layers are looked at; a run is what `run` measures


def test_json_has_the_keys_of_the_contract(cli: Cli) -> None:
    found = cli(*FAKE, "--json").assert_ok().json
    assert {"method", "step_s", "sum_s", "update_s", "gaps_s", "layers", "groups", "doubts"} <= set(found)
    assert {"median", "low", "high", "n"} == set(found["step_s"])
    for layer in found["layers"]:
        assert {"name", "op", "forward_s", "backward_s", "flops", "share", "bound", "isolated"} <= set(layer)
    assert found["command"][:4] == ["deepstone", "layers", "cifarnet", "framework=fake"]


def test_the_window_is_kept(cli: Cli) -> None:
    shown = cli.on_terminal(*FAKE, columns=80)
    assert shown.code == 0
    assert max(map(len, shown.out.splitlines())) <= 80


def test_deep_networks_show_what_costs_most(cli: Cli) -> None:
    words = ("layers", "resnet50", "framework=fake", "batch=1", "--budget", 0.5, "--method", "in-place")
    short, long = cli(*words).assert_ok(), cli(*words, "--all").assert_ok()
    assert " others " in short.out
    assert " others " not in long.out
    assert "\nlayer4.2.relu3 " in long.out or "\nlayer4.2." in long.out
    assert len(short.out.splitlines()) < 60 < len(long.out.splitlines())


def test_real_layers_with_kernels_trace_and_figure(cli: Cli) -> None:
    trace, figure = cli.home / "trace.json", cli.home / "layers.svg"
    words = ("layers", "cifarnet", "framework=torch", "batch=2", "--budget", 0.5, "--json")
    found = cli(*words, "--kernels", "--trace", trace, "-o", figure).assert_ok().json
    assert found["layers"][0]["name"] == "conv1"
    assert any("conv1" in kernel.get("layers", []) for kernel in found["kernels"]["kernels"])
    assert trace.stat().st_size > 1000
    assert figure.read_text().count("<svg") == 1


@pytest.mark.parametrize("as_json", [True, pytest.param(False, marks=pytest.mark.deep)], ids=["json", "words"])
def test_a_framework_that_fails_spares_the_others(cli: Cli, as_json: bool) -> None:
    fault = {"at": "step", "step": 0, "kind": "error"}
    words = ("layers", "cifarnet", "framework=fake,torch", "batch=2", "--budget", 0.3, "--method", "in-place")
    done = cli(*words, *(["--json"] if as_json else []), DEEPSTONE_FAKE=script(fault=fault))
    assert done.code == 1
    if not as_json:
        assert "\nfake: crashed: RuntimeError: scripted failure" in done.out
        return
    frameworks: dict[str, Any] = done.json["frameworks"]
    assert frameworks["fake"]["outcome"] == "crashed"
    assert "scripted failure" in frameworks["fake"]["failure"]["reason"]
    assert frameworks["torch"]["outcome"] == "ok"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("layers", "cifarnet", "--method", "alone"), 2, "in-place"),
        (("layers", "cifarnet", "batch=1,2"), 2, "only framework may list several"),
        (("layers", "cifarnet", "framework=fake,torch", "--trace", "t.json"), 2, "one framework"),
        (("layers", "cifarnet", "-o", "no/such/folder/f.svg"), 2, "make it first"),
        (("layers", "cifarnett"), 2, "cifarnet"),
        (("layers", "cifarnet", "bathc=2"), 2, "batch"),
        (("layers", "cifarnet", "framework=tensorflow@9"), 4, "tensorflow"),
    ],
)
def test_mistakes_are_told_in_one_line(reader: Cli, words: tuple[str, ...], code: int, told: str) -> None:
    reader(*words).assert_error(code, told)


def test_a_figure_of_no_known_kind_is_refused_before_measuring(reader: Cli, tmp_path: Path) -> None:
    reader("layers", "cifarnet", "framework=fake", "-o", tmp_path / "layers.docx").assert_error(2, ".svg")
