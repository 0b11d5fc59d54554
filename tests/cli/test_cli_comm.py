"""`deepstone comm` as a user types it, on the scripted backend: what is planted is found, stored and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_kit import Cli, script

SHORT = ("framework=fake", "size=1K..1M", "--launches", 2, "--budget", 4)
PLANTED = {"alpha_s": 2e-4, "beta_s_per_byte": 3e-9, "compute_slowdown": 1.4, "communication_slowdown": 2.5}
MPI = {"alpha_s": 1e-4, "beta_s_per_byte": 1.5e-9}


@pytest.fixture(scope="module")
def planted() -> str:
    return script(noise=0.005, network=PLANTED, by={"transport=mpi": {"network": MPI}})


def curve(answer: Any, operation: str, transport: str) -> Any:
    (found,) = [each for each in answer["curves"] if (each["operation"], each["transport"]) == (operation, transport)]
    return found


def test_what_is_planted_is_found_stored_and_drawn(cli: Cli, planted: str, tmp_path: Path) -> None:
    words = ("transport=gloo,mpi", "processes=2", "operation=allreduce,p2p", "--under-load")
    done = cli("comm", *words, *SHORT, "--json", "-o", tmp_path / "comm.svg", DEEPSTONE_FAKE=planted).assert_ok()
    answer = done.json
    assert (answer["kind"], answer["outcome"], answer["interval"]) == ("comm", "ok", "across launches")
    reduced = curve(answer, "allreduce", "gloo")
    assert [point["bytes"] for point in reduced["points"]] == [1024 * 4**power for power in range(6)]
    for point in reduced["points"]:
        time_s = 2e-4 + 3e-9 * point["bytes"]
        assert point["checked"] is True
        assert point["time_s"]["median"] == pytest.approx(time_s, rel=0.03)
        assert point["algbw"]["median"] == pytest.approx(point["bytes"] / time_s, rel=0.03)
        assert point["busbw"]["median"] == pytest.approx(point["algbw"]["median"])  # 2 (n - 1) / n of two is 1
        assert len(point["rounds_s"]) == 2
    (segment,) = reduced["fit"]["segments"]
    assert segment["alpha_s"] == pytest.approx(2e-4, rel=0.05)
    assert segment["beta_s_per_byte"] == pytest.approx(3e-9, rel=0.05)
    # A message goes there and back in the scripted backend, and half of that counts.
    assert curve(answer, "p2p", "gloo")["points"][0]["time_s"]["median"] == pytest.approx(2e-4, rel=0.05)
    load = reduced["under_load"]
    assert load["compute_slowdown"]["median"] == pytest.approx(1.4, rel=0.05)
    assert load["communication_slowdown"]["median"] == pytest.approx(2.5, rel=0.05)
    assert "under_load" not in curve(answer, "p2p", "gloo")
    ratios = [each for each in answer["ratios"] if each["operation"] == "allreduce"]
    assert len(ratios) == 6
    for ratio in ratios:
        assert (ratio["a"], ratio["b"], ratio["verdict"]) == ("gloo", "mpi", "b faster")
        assert ratio["time_ratio"]["low"] < 2.0 < ratio["time_ratio"]["high"] * 1.05
    assert "All-reduce" in (tmp_path / "comm.svg").read_text()

    listed = cli("results", "list", "--json").assert_ok().out
    assert answer["id"] in listed
    shown = cli("results", "show", answer["id"]).assert_ok().out
    assert "all-reduce, 2 processes" in shown
    assert "deepstone comm transport=gloo,mpi" in shown
    cli("results", "export", "-o", "all.jsonl").assert_ok()
    other = Cli(store=tmp_path / "other", cache=cli.cache, home=cli.home)
    other("results", "import", "all.jsonl").assert_ok()
    again = other("results", "show", answer["id"], "--json").assert_ok().json
    assert [each["points"] for each in again["curves"]] == [each["points"] for each in answer["curves"]]
    assert again["ratios"] == answer["ratios"]
    assert "/" not in " ".join(word for each in again["curves"] for word in each["launcher"]["argv"])
    other("draw", answer["id"], "-o", tmp_path / "again.svg", "--figure", "time").assert_ok()


def test_a_wrong_result_is_no_number(cli: Cli) -> None:
    wrong = script(noise=0.005, ranks={"1": {"network": {"wrong": {"broadcast": "1 of 256 numbers"}}}})
    words = ("comm", "processes=2", "operation=allreduce,broadcast", *SHORT)
    done = cli(*words, "--json", DEEPSTONE_FAKE=wrong)
    assert done.code == 1
    bad = next(each for each in done.json["curves"] if each["operation"] == "broadcast")
    assert all(point["checked"] is False for point in bad["points"])
    assert all("rank 1: 1 of 256 numbers" in point["time_s"]["absent"] for point in bad["points"])
    assert all("absent" in point["busbw"] for point in bad["points"])
    good = next(each for each in done.json["curves"] if each["operation"] == "allreduce")
    assert all(point["checked"] for point in good["points"])


def test_a_model_sends_its_own_buckets(cli: Cli) -> None:
    fake = script(noise=0.005, network=PLANTED, buckets=[4_000_000, 1_000_000, 1_000_000])
    words = ("comm", "cifarnet", "framework=fake", "processes=2", "--launches", 2, "--budget", 4)
    answer = cli(*words, "--json", DEEPSTONE_FAKE=fake).assert_ok().json
    (found,) = answer["curves"]
    assert answer["model"] == "cifarnet"
    assert found["buckets"]["bytes"] == [4_000_000, 1_000_000, 1_000_000]
    assert found["buckets"]["sum_s"]["median"] == pytest.approx(3 * 2e-4 + 3e-9 * 6_000_000, rel=0.03)
    assert [point["bytes"] for point in found["points"]] == [1_000_000, 4_000_000]
    shown = cli("results", "show", answer["id"]).assert_ok().out
    assert "a step: 3.81 MiB + 977 KiB + 977 KiB" in shown


def test_what_fails_does_not_lose_the_rest(cli: Cli) -> None:
    crashing = script(noise=0.005, by={"transport=mpi": {"fault": {"at": "transfer", "kind": "segfault"}}})
    words = ("comm", "transport=gloo,mpi", "processes=2", "operation=allreduce", *SHORT)
    done = cli(*words, "--json", DEEPSTONE_FAKE=crashing)
    assert done.code == 1
    assert [each["transport"] for each in done.json["curves"]] == ["gloo"]
    (failed,) = done.json["failed"]
    assert (failed["transport"], failed["outcome"]) == ("mpi", "crashed")
    assert "rank" in failed["reason"]


def test_sizes_too_long_for_the_budget_are_left_out_and_said(cli: Cli) -> None:
    slow = script(noise=0.005, network={"alpha_s": 1e-4, "beta_s_per_byte": 1e-6})
    words = ("comm", "processes=2", "operation=allreduce", "framework=fake", "size=1K..16M", "--launches", 1)
    (found,) = cli(*words, "--budget", 1, "--json", DEEPSTONE_FAKE=slow).assert_ok().json["curves"]
    assert found["points"][-1]["bytes"] < 2**20
    assert "--budget" in found["left_out"]


def test_a_plan_starts_nothing(reader: Cli) -> None:
    plan = reader("comm", "transport=gloo,mpi", "processes=2,4", "--dry-run", "--json").assert_ok().json
    assert [(job["transport"], job["processes"], job["launcher"]) for job in plan["jobs"]] == [
        ("gloo", 2, "local"),
        ("mpi", 2, "mpirun"),
        ("gloo", 4, "local"),
        ("mpi", 4, "mpirun"),
    ]
    in_words = reader("comm", "processes=2", "--dry-run").assert_ok().out
    assert "sizes: 1.00 KiB" in in_words


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("operation=alreduce",), "did you mean allreduce"),
        (("size=1M..1K",), "reversed"),
        (("processes=1",), "processes=2 or more"),
        (("cifarnt", "processes=2"), "did you mean cifarnet"),
        (("processes=2", "-o", "comm.pdf"), ".svg"),
    ],
)
def test_wrong_words(reader: Cli, words: tuple[str, ...], told: str) -> None:
    reader("comm", *words).assert_error(2, told)


def test_a_rule_that_is_broken_is_told(cli: Cli) -> None:
    done = cli("comm", "framework=fake", "device=cpu", "transport=nccl", "processes=2")
    assert done.code == 1
    assert "NCCL moves data between GPUs" in done.out
