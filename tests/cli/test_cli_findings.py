"""What `layers`, `conv`, `memory`, `caffe time` and `doctor --peaks` measure is in the store, and comes out of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_kit import Cli, Result, script

MIB = 2**20
GPU = {"effective": {"device": "gpu:0"}, "memory": {"base": 100 * MIB, "per_sample": MIB, "limit": 1000 * MIB}}
FAKE_CONV = script(algorithms={"slow": 0.004, "quick": 0.001}, noise=0.001)
LAYERS = ("layers", "cifarnet", "framework=fake", "batch=8", "--budget", 1)


def kept(cli: Cli) -> list[str]:
    return sorted(path.stem for path in cli.store.glob("findings/*.json"))


def told_ids(done: Result) -> list[str]:
    return [line.removeprefix("stored ") for line in done.err.splitlines() if line.startswith("stored ")]


def test_layers_are_listed_shown_exported_reported_and_deleted(cli: Cli, tmp_path: Path) -> None:
    done = cli(*LAYERS, "--json").assert_ok()
    found = done.json
    assert told_ids(done) == kept(cli) == [found["id"]]
    assert cli.runs() == []
    listed = cli("results", "list").assert_ok().out
    assert found["id"] in listed
    assert "layers" in listed
    (row,) = cli("results", "list", "--json", "framework=fake", "batch=8").assert_ok().json
    assert (row["id"], row["kind"], row["model"], row["batch"], row["outcome"]) == (
        found["id"],
        "layers",
        "cifarnet",
        8,
        "ok",
    )
    assert cli("results", "list", "--json", "batch=16").assert_ok().json == []
    shown = cli("results", "show", found["id"][:8]).assert_ok().out
    assert shown.startswith("cifarnet · batch 8 · train · fake 1")
    assert "command: deepstone layers cifarnet" in shown
    stored = cli("results", "show", found["id"], "--json").assert_ok().json
    assert {key: stored[key] for key in found} == found
    assert stored["identity"]["requested"]["batch"] == 8
    exported = cli("results", "export").assert_ok().out
    assert [json.loads(line)["id"] for line in exported.splitlines()] == [found["id"]]
    cli("report", "--markdown", tmp_path / "report.md").assert_ok()
    assert "cifarnet" in (tmp_path / "report.md").read_text()
    cli("results", "delete", found["id"][:10]).assert_ok()
    assert kept(cli) == []


def test_each_framework_and_each_attempt_is_a_finding(cli: Cli) -> None:
    memory = ("memory", "cifarnet", "framework=fake", "batch=8")
    first = cli(*memory, "--json", DEEPSTONE_FAKE=script(**GPU)).assert_ok().json
    second = cli(*memory, "--largest-batch", "--json", DEEPSTONE_FAKE=script(**GPU)).assert_ok().json
    assert [first["id"][-2:], second["id"][-2:]] == ["-1", "-2"]
    assert "largest batch" in cli("results", "show", second["id"]).assert_ok().out


def test_convolutions_of_each_batch(cli: Cli) -> None:
    words = ("conv", "cifarnet", "batch=2,4", "framework=fake", "phase=forward", "--json")
    done = cli(*words, DEEPSTONE_FAKE=FAKE_CONV).assert_ok()
    found = done.json
    assert "id" not in found
    assert sorted(part["id"] for part in found["batches"].values()) == kept(cli)
    one = found["batches"]["4"]["id"]
    assert cli("results", "show", one).assert_ok().out.startswith("cifarnet  batch 4")


def test_what_fails_is_kept_as_a_finding_too(cli: Cli) -> None:
    fault = script(fault={"at": "build", "kind": "error"})
    done = cli("layers", "cifarnet", "framework=fake", DEEPSTONE_FAKE=fault)
    assert done.code == 1
    (id,) = kept(cli)
    shown = cli("results", "show", id).assert_ok().out
    assert "crashed" in shown
    (row,) = cli("results", "list", "outcome=crashed", "--json").assert_ok().json
    assert row["id"] == id


def test_a_store_named_on_the_command_line(cli: Cli, tmp_path: Path) -> None:
    other = tmp_path / "S"
    done = cli("memory", "cifarnet", "framework=fake", "--store", other).assert_ok()
    assert not cli.store.exists()
    assert told_ids(done)[0] in cli("results", "list", "--store", other).assert_ok().out


def test_a_place_that_is_no_store_is_told_before_measuring(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cli(*LAYERS, "--store", tmp_path / "file").assert_error(3, "file")


def test_a_store_that_refuses_costs_no_measurement(cli: Cli, tmp_path: Path) -> None:
    """Its folder of findings is a file: it is printed, saved elsewhere, imported later."""
    cli("memory", "cifarnet", "framework=fake").assert_ok()
    cli("results", "delete", kept(cli)[0]).assert_ok()
    (cli.store / "findings").rmdir()
    (cli.store / "findings").write_text("")
    done = cli(*LAYERS, "--json", TMPDIR=str(tmp_path))
    assert done.code == 3
    assert done.json["layers"]
    assert "id" not in done.json
    assert "the finding is saved in" in done.err
    (saved,) = tmp_path.glob("deepstone-*.json")
    (cli.store / "findings").unlink()
    cli("results", "import", saved).assert_ok()
    assert len(kept(cli)) == 1


def test_a_store_without_anything_to_measure_is_refused(cli: Cli) -> None:
    cli("doctor", "--store", cli.store).assert_error(2, "--store: only --peaks measures")


@pytest.mark.deep
def test_measured_ceilings_are_stored(cli: Cli) -> None:
    done = cli("doctor", "--peaks", "--json").assert_ok()
    assert sorted(done.json["findings"]) == kept(cli)
    assert "product" in cli("results", "show", kept(cli)[0]).assert_ok().out
    assert {row["kind"] for row in cli("results", "list", "--json").assert_ok().json} == {"peaks"}
