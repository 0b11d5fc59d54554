"""`compare MODEL A -- B`: what stands where, and what it answers."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from cli_kit import Cli, first_line, script

SLOWER = script(noise=0.002, by={"layout=nhwc": {"step_s": 0.008}})


def plan(cli: Cli, *words: str) -> list[dict[str, object]]:
    return [job["requested"] for job in cli("compare", *words, "--dry-run", "--json").assert_ok().json]


def test_what_follows_overrides_for_b_alone(reader: Cli) -> None:
    a, b = plan(reader, "cifarnet", "framework=fake", "batch=8", "layout=nchw", "--", "layout=nhwc")
    assert (a["batch"], a["layout"]) == (8, "nchw")
    assert (b["batch"], b["layout"], b["framework"]) == (8, "nhwc", "fake")


def test_options_may_follow_in_any_order(reader: Cli) -> None:
    a, b = plan(reader, "cifarnet", "framework=fake", "--", "--budget", "3", "batch=8", "--store", "x=y", "seed=1")
    assert (a["batch"], a["seed"]) == (32, 0)
    assert (b["batch"], b["seed"]) == (8, 1)


def test_every_later_side_overrides_what_holds_for_all(reader: Cli) -> None:
    words = ("cifarnet", "framework=fake", "layout=nhwc", "--", "batch=64", "--", "layout=nchw", "--budget", "2")
    sides = plan(reader, *words)
    assert [(side["batch"], side["layout"]) for side in sides] == [(32, "nhwc"), (64, "nhwc"), (32, "nchw")]


def test_nothing_before_the_first_means_the_defaults(reader: Cli) -> None:
    assert [side["batch"] for side in plan(reader, "cifarnet", "--", "batch=64", "--", "batch=128")] == [32, 64, 128]


@pytest.mark.parametrize(
    ("before", "beside", "batches"),
    [((), (), [8, 8]), (("batch=64",), (), [64, 64]), ((), ("batch=16",), [32, 16])],
)
def test_a_setup_from_a_file_does_the_same_work(
    reader: Cli, tmp_path: Path, before: tuple[str, ...], beside: tuple[str, ...], batches: list[int]
) -> None:
    """A file of tune has the batch that was asked for there."""
    path = tmp_path / "best.toml"
    path.write_text('[setup]\nbatch = 8\nlayout = "nhwc"\nphase = "forward"\n')
    sides = plan(reader, "cifarnet", "framework=fake", *before, "--", f"@{path}", *beside)
    assert [side["batch"] for side in sides] == batches
    assert [side["layout"] for side in sides] == ["auto", "nhwc"]
    assert [side["phase"] for side in sides] == ["forward", "forward"]


def test_both_sides_may_be_the_same(reader: Cli) -> None:
    a, b = plan(reader, "cifarnet", "framework=fake", "batch=8", "--", "batch=8")
    assert a == b


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("cifarnet", "batch=8"), ("two setups", " -- ")),
        (("cifarnet", "batch=8", "--"), ("nothing follows",)),
        (("cifarnet", "--", "batch=8", "--", "--json"), ("nothing follows",)),
        (("cifarnet", *(word for seed in range(26) for word in ("--", f"seed={seed}"))), ("at most 26",)),
        (("cifarnet", "--", "batch=8", "--input", "224"), ("--input", "3x224x224")),
        (("cifarnet", "--", "batch=8", "--input", "3x8x8"), ("--input", "own size")),
        (("cifarnet", "batch=8,9", "--", "batch=8"), ("batch", "one value")),
        (("cifarnet", "--", "batch=8,9"), ("batch", "one value")),
        (("cifarnet", "--", "bach=8"), ("bach", "batch")),
        (("cifarnet", "--", "batch"), ("'batch'", "AXIS=VALUE")),
        (("cifarnet", "--pairs", "3", "--", "batch=8"), ("--pairs",)),
        (("cifarnet", "--", "batch=8", "--budget"), ("--budget",)),
        (("--", "batch=8"), ("MODEL",)),
        ((), ("MODEL",)),
    ],
    ids=lambda value: " ".join(value) or "nothing",
)
def test_usage(reader: Cli, words: tuple[str, ...], told: tuple[str, ...]) -> None:
    reader("compare", *words).assert_error(2, *told)


@pytest.mark.parametrize("words", [("-h",), ("cifarnet", "--", "-h"), ("cifarnet", "--", "batch=8", "--help")])
def test_help_wherever_it_is_asked_for(reader: Cli, words: tuple[str, ...]) -> None:
    assert reader("compare", *words).assert_ok().out.startswith("Usage: deepstone compare")


def test_answer_in_json(cli: Cli) -> None:
    words = ("compare", "cifarnet", "framework=fake", "batch=8", "--", "layout=nhwc", "--budget", 0.5, "--json")
    done = cli(*words, DEEPSTONE_FAKE=SLOWER).assert_ok()
    answer = done.json
    assert set(answer) == {"a", "b", "ratio", "verdict", "pairing", "stopped", "sameness"}
    ratio = answer["ratio"]
    assert set(ratio) == {"median", "low", "high", "n"}
    assert 3 <= ratio["n"] <= 12
    assert str(ratio["n"]) in answer["stopped"]
    assert 1.2 < ratio["low"] <= ratio["median"] <= ratio["high"] < 1.3  # 10 ms over 8 ms
    assert answer["verdict"] == "b faster"
    for name, other in (("a", "b"), ("b", "a")):
        side = answer[name]
        assert side["outcome"] == "ok"
        assert side["comparison"]["side"] == name
        assert side["comparison"]["other_job"] == answer[other]["job"]
        assert len(side["samples"]["launches"]) == ratio["n"]
    assert sorted(path.stem for path in cli.runs()) == sorted([answer["a"]["id"], answer["b"]["id"]])
    expected, first, *stored = done.err.splitlines()
    assert expected.startswith("compares in 3 to 12 fresh pairs of processes: at most ")
    assert first.startswith("the first pair took ")
    assert stored == [f"stored {answer['a']['id']}", f"stored {answer['b']['id']}"]
    command = answer["b"]["command"]
    assert " ".join(command) == "deepstone compare cifarnet framework=fake batch=8 --budget 0.5 -- layout=nhwc"
    again = cli(*command[1:], "--dry-run", "--json").assert_ok().json
    assert [job["job"] for job in again] == [answer["a"]["job"], answer["b"]["job"]]


THREE = ("compare", "cifarnet", "framework=fake", "batch=8", "--", "layout=nhwc", "--", "seed=3", "--budget", 0.5)


def test_three_sides_in_json(cli: Cli) -> None:
    done = cli(*THREE, "--json", DEEPSTONE_FAKE=SLOWER).assert_ok()
    answer = done.json
    assert set(answer) == {"sides", "ratios", "ranks", "pairing", "stopped", "sameness"}
    assert [side["comparison"]["side"] for side in answer["sides"]] == ["a", "b", "c"]
    assert [(ratio["a"], ratio["b"]) for ratio in answer["ratios"]] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [ratio["verdict"] for ratio in answer["ratios"]] == ["b faster", "no difference shown", "b faster"]
    for ratio in answer["ratios"]:
        assert set(ratio) == {"a", "b", "median", "low", "high", "n", "verdict"}
        assert ratio["low"] <= ratio["median"] <= ratio["high"]
    assert answer["ranks"][0] == ["b"]
    assert sorted(answer["ranks"][1]) == ["a", "c"]
    assert sorted(path.stem for path in cli.runs()) == sorted(side["id"] for side in answer["sides"])
    command = answer["sides"][2]["command"]
    assert command[-4:] == ["--", "layout=nhwc", "--", "seed=3"]
    again = cli(*command[1:], "--dry-run", "--json").assert_ok().json
    assert [job["job"] for job in again] == [side["job"] for side in answer["sides"]]


def test_three_sides_are_ranked_in_words(cli: Cli) -> None:
    done = cli(*THREE, DEEPSTONE_FAKE=SLOWER).assert_ok()
    rows = [line for line in done.out.splitlines() if line.startswith(("1. ", "2. "))]
    assert rows[0].startswith("1. B")
    assert {rows[1][:4], rows[2][:4]} == {"2. A", "2. C"}
    assert "1.25 (1.2" in rows[1]
    assert "verdict: B fastest, then " in done.out
    assert "fresh groups of 3 processes" in done.err


def test_one_of_three_that_fails_leaves_no_ranking(cli: Cli) -> None:
    done = cli("compare", "cifarnet", "framework=fake", "device=cpu", "--", "seed=3", "--", "precision=tf32", "--json")
    assert done.code == 1
    assert done.json["sides"][2]["outcome"] == "unsupported"
    assert set(done.json["ratios"]) == {"absent"}


def test_answer_in_words_when_there_is_no_difference(cli: Cli) -> None:
    words = ("compare", "cifarnet", "framework=fake", "batch=8", "--budget", 0.5, "--", "batch=8")
    done = cli(*words, DEEPSTONE_FAKE=script(noise=0.0005)).assert_ok()
    lines = done.out.splitlines()
    assert lines[0].startswith("A  cifarnet · batch 8")
    assert "time per sample, A over B: 1.00    95 % interval" in done.out
    assert lines[-1] == "verdict: no difference shown"
    assert len(cli.runs()) == 2  # two attempts at one job


def test_a_winner_whose_lead_is_not_known(cli: Cli, tmp_path: Path) -> None:
    launches = str(tmp_path / "launches")
    disturbed = script(noise=0.01, launch_noise=0.3, launches=launches, by={"layout=nhwc": {"step_s": 0.0004}})
    words = ("compare", "cifarnet", "framework=fake", "batch=8", "layout=nchw", "--pairs", 8, "--budget", 2)
    done = cli(*words, "--", "layout=nhwc", DEEPSTONE_FAKE=disturbed).assert_ok()
    assert "verdict: b faster\nwhich side is faster is known, not by how much: the interval is wider" in done.out


def test_a_side_that_fails_leaves_no_verdict(cli: Cli) -> None:
    done = cli("compare", "cifarnet", "framework=fake", "device=cpu", "--", "precision=tf32", "--json")
    assert done.code == 1
    assert done.json["b"]["outcome"] == "unsupported"
    assert set(done.json["ratio"]) == set(done.json["verdict"]) == set(done.json["a"]) == {"absent"}
    assert len(cli.runs()) == 1


def test_what_was_measured_before_a_signal_is_stored(cli: Cli) -> None:
    """Of every side the processes that ended; there is no verdict."""
    slow = script(noise=0.002, sleep=True, step_s=0.02)
    words = ("compare", "cifarnet", "framework=fake", "--", "layout=nhwc", "--budget", 20, "--pairs", 10)
    process = subprocess.Popen(
        cli.command(*words), env=cli.environment(DEEPSTONE_FAKE=slow), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    while not first_line(process.stderr).startswith("the first pair took"):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=200)
    assert process.returncode == 143
    assert err.endswith("deepstone: terminated; what was measured is stored, without a verdict\n")
    records = [json.loads(path.read_text())["record"] for path in cli.runs()]
    assert sorted(record["setup"]["requested"]["layout"] for record in records) == ["auto", "nhwc"]
    assert all(record["outcome"] == "ok" for record in records)
