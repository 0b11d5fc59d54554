"""A record that our own rules refuse is our mistake: it is saved, said, and costs nothing else that was measured."""

from __future__ import annotations

import json
from pathlib import Path

from cli_kit import Cli, script

WRONG = {"layer/with/slashes": 1}
FAKE = script(details=WRONG)
FAKE_ONE_SIDE = script(by={"batch=8": {"details": WRONG}})


def saved(folder: Path) -> list[Path]:
    return list(folder.glob("deepstone-refused-*.json"))


def test_run_saves_it_and_says_where(cli: Cli, tmp_path: Path) -> None:
    done = cli("run", "cifarnet", "framework=fake", "--budget", 0.1, DEEPSTONE_FAKE=FAKE, TMPDIR=str(tmp_path))
    (path,) = saved(tmp_path)
    done.assert_error(1, "layer/with/slashes", str(path))
    content = json.loads(path.read_text())
    assert content["samples"]["launches"][0]["ranks"][0]["blocks"]
    assert cli.runs() == []


def test_the_other_runs_of_a_list_are_kept(cli: Cli, tmp_path: Path) -> None:
    words = ("run", "cifarnet", "framework=fake", "batch=4,8,16", "--budget", 0.1, "--json")
    done = cli(*words, DEEPSTONE_FAKE=FAKE_ONE_SIDE, TMPDIR=str(tmp_path))
    assert done.code == 1
    assert [record["workload"]["batch"] for record in done.json] == [4, 16]
    assert len(cli.runs()) == 2
    assert len(saved(tmp_path)) == 1


def test_a_comparison_keeps_its_other_side_and_its_answer(cli: Cli, tmp_path: Path) -> None:
    words = ("compare", "cifarnet", "framework=fake", "batch=4", "--", "batch=8", "--budget", 0.5, "--json")
    done = cli(*words, DEEPSTONE_FAKE=FAKE_ONE_SIDE, TMPDIR=str(tmp_path))
    assert done.code == 1
    assert done.json["a"]["outcome"] == "ok"
    assert set(done.json["b"]) == {"absent"}
    assert done.json["ratio"]["n"] >= 3
    assert len(cli.runs()) == len(saved(tmp_path)) == 1


def test_a_study_goes_on(cli: Cli, tmp_path: Path) -> None:
    study = tmp_path / "small.toml"
    study.write_text(
        "[effort]\nrepetitions = 1\nbudget = 0.1\n"
        '[[jobs]]\nmodel = "cifarnet"\nframework = "fake"\nbatch = [4, 8, 16]\n'
    )
    done = cli("study", study, "--json", DEEPSTONE_FAKE=FAKE_ONE_SIDE, TMPDIR=str(tmp_path))
    states = [task["state"] for task in done.json["tasks"]]
    assert sorted(states) == ["done", "done", "failed"], done.err
    assert done.code == 1
    assert len(cli.runs()) == 2
    assert len(saved(tmp_path)) == 1
