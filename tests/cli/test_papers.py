"""`deepstone papers`: verdicts without measuring, plans, single claims, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

from cli_kit import Cli

from deepstone.results import codec
from deepstone.store.store import Store

H200 = Path(__file__).resolve().parents[2] / "results" / "h200"
NOTHING = ("--time", "0.01 s")  # everything is left out, so a study runs without measuring


def test_all_verdicts_without_a_store(reader: Cli) -> None:
    done = reader("papers").assert_ok()
    for id in ("kim-1", "kim-15", "awan-1", "awan-10"):
        assert id in done.out
    assert not reader.store.exists()


def test_verdicts_of_other_machines_are_merged(reader: Cli) -> None:
    papers = reader("papers", "--also", H200, "--json").assert_ok().json
    assert [paper["name"] for paper in papers] == ["awan2017", "kim2017"]
    claims = {claim["id"]: claim for paper in papers for claim in paper["claims"]}
    assert claims["kim-2"]["verdict"] == "no longer matters"
    assert claims["kim-2"]["by_machine"][0]["machine"] == "NVIDIA H200"


def test_runs_and_findings_of_the_store_count(cli: Cli) -> None:
    cli("results", "import", H200 / "runs.jsonl").assert_ok()
    store = Store.open(cli.store)
    labs = json.loads((H200 / "conv-alexnet-kim-fp32.json").read_text())
    lab = {**labs, **labs.pop("batches")["256"]}
    finding = store.findings.add(codec.as_bare_finding({**lab, "task": "ab" * 32, "outcome": "ok"}))
    papers = cli("papers", "--json").assert_ok().json
    claims = {claim["id"]: claim for paper in papers for claim in paper["claims"]}
    assert claims["kim-2"]["verdict"] == "reversed"
    assert claims["kim-7"]["findings"] == [finding.id]


def test_a_damaged_run_is_told_and_the_others_count(cli: Cli) -> None:
    cli("results", "import", H200 / "runs.jsonl").assert_ok()
    cli.runs()[0].write_text("broken")
    done = cli("papers", "--json").assert_ok()
    assert "damaged" in done.err
    assert len(done.json) == 2


def test_one_paper_from_what_is_there(reader: Cli, tmp_path: Path) -> None:
    saved = tmp_path / "kim.json"
    done = reader("papers", "kim2017", "--no-run", "--also", H200 / "runs.jsonl", "-o", saved).assert_ok()
    assert "REVERSED" in done.out
    assert "wrong in the paper itself" in done.out
    paper = json.loads(saved.read_text())
    assert (paper["kind"], paper["name"], paper["scale"]) == ("paper", "kim2017", "small")
    assert len(paper["claims"]) == 15
    assert all(chart["kind"] == "chart" for chart in paper["charts"])


def test_a_claim_and_its_rule(reader: Cli) -> None:
    told = reader("papers", "kim2017", "--claim", "kim-3").assert_ok().out
    for word in ("4x", "Fig 9", "algorithm choice", "relative error", "paper_batches"):
        assert word in told
    assert reader("papers", "kim2017", "--claim", "kim-3", "--json").assert_ok().json["id"] == "kim-3"


def test_a_plan(reader: Cli) -> None:
    small = reader("papers", "kim2017", "--dry-run").assert_ok().out
    assert "alexnet-kim" in small
    assert "batch=256" not in small
    assert "batch=256" in reader("papers", "kim2017", "--dry-run", "--scale", "paper").assert_ok().out
    assert not reader.store.exists()


def test_what_there_was_no_time_for_leaves_every_claim_a_verdict(cli: Cli) -> None:
    done = cli("papers", "kim2017", *NOTHING, "--json").assert_ok()
    assert len(done.json["claims"]) == 15
    assert "left out: alexnet-kim batch=8" in done.err
    state = json.loads((cli.store / "studies" / "kim2017-small.json").read_text())
    assert {task["state"] for task in state["tasks"]} <= {"left out", "pruned"}
    assert state["resume"].startswith("deepstone papers kim2017 --scale small --time")


def test_refusals(reader: Cli, tmp_path: Path) -> None:
    reader("papers", "kim2071").assert_error(2, "kim2017")
    reader("papers", "kim2017", "--claim", "kim-77").assert_error(2, "kim-7")
    reader("papers", "kim2017", "--scale", "smal").assert_error(2, "small")
    reader("papers", "kim2017", "--no-run", "-o", "x.txt").assert_error(2, ".json")
    reader("papers", "kim2017", "--no-run", "-o", tmp_path / "no" / "x.json").assert_error(2, "no folder")
    reader("papers", "--claim", "kim-1").assert_error(2, "needs the name of a paper")
    reader("papers", "kim2017", "--time", "soon").assert_error(2, "soon")


def test_bad_files_are_told_before_anything_is_measured(cli: Cli, tmp_path: Path) -> None:
    odd = tmp_path / "odd.jsonl"
    odd.write_text('{"schema": 1, "kind": "conv"}\n{"what": 1}\n')
    cli("papers", "kim2017", "--also", odd, *NOTHING).assert_error(2, "odd.jsonl, line 2")
    cli("papers", "kim2017", "--also", tmp_path / "none.json", *NOTHING).assert_error(2, "none.json")
    assert cli.runs() == []
