"""--dry-run says what would be measured and does nothing; a record's command gives the same job again."""

from __future__ import annotations

import os

import pytest
from cli_kit import Cli, Result


def test_plan_in_words(cli: Cli) -> None:
    done = cli(
        "run", "cifarnet", "framework=fake", "batch=8,16", "precision=tf32", "device=cpu", "--dry-run"
    ).assert_ok()
    rows = done.out.splitlines()[3:]
    assert [row.split("  ")[0] for row in rows] == [
        "deepstone run cifarnet framework=fake device=cpu batch=8 precision=tf32",
        "deepstone run cifarnet framework=fake device=cpu batch=16 precision=tf32",
    ]
    assert all("TF32 is a format of GPU" in row for row in rows)
    assert done.err == ""
    assert not cli.store.exists()


def test_plan_in_json(cli: Cli) -> None:
    plan = cli("run", "vgg16", "framework=fake", "batch=1,2", "--dry-run", "--json").assert_ok().json
    assert [job["requested"]["batch"] for job in plan] == [1, 2]
    assert plan[1]["flops"] == 2 * plan[0]["flops"] > 0
    assert plan[0]["analytic_bytes"] > 3 * 4 * 138_357_544  # weights, gradients, momentum
    assert plan[0]["can_run"] == "yes"
    assert plan[0]["framework"] == "fake@1"
    assert plan[0]["job"] != plan[1]["job"]
    assert not cli.store.exists()
    assert list(cli.home.iterdir()) == []


def test_a_plan_tells_the_memory_of_every_process(cli: Cli) -> None:
    words = ("run", "cifarnet", "framework=fake", "batch=8", "processes=2", "scheme=data,server,pipeline", "--dry-run")
    plan = cli(*words, "--json").assert_ok().json
    assert [len(job["analytic_bytes_by_rank"]) for job in plan] == [2, 3, 2]
    assert all(job["analytic_bytes"] == max(job["analytic_bytes_by_rank"]) > 0 for job in plan)
    last = cli(*words).assert_ok().out.splitlines()[-1]
    assert " – " in last  # the stages of a pipeline do not need the same


def test_a_plan_needs_the_framework(torchless: Cli) -> None:
    torchless("run", "cifarnet", "--dry-run").assert_error(4, "no framework is installed")


@pytest.mark.parametrize("number", [0, 3])
def test_a_records_command_gives_the_same_job(measured: tuple[Cli, Result], number: int) -> None:
    cli, done = measured
    record = done.json[number]
    assert record["command"][0] == "deepstone"
    (again,) = cli(*record["command"][1:], "--dry-run", "--json").assert_ok().json
    assert again["job"] == record["job"]
    assert again["command"] == " ".join(record["command"])


def test_a_rerun_is_another_attempt_at_the_same_job(cli: Cli) -> None:
    words = (
        "run",
        "cifarnet",
        "framework=fake",
        "batch=4",
        "--budget",
        1,
        "--target",
        "1.5",
        "--launches",
        2,
        "--json",
    )
    first = cli(*words).assert_ok().json
    second = cli(*first["command"][1:], "--json").assert_ok().json
    assert second["job"] == first["job"]
    assert second["command"] == first["command"]
    assert [first["id"][20:], second["id"][20:]] == ["-1", "-2"]
    assert first["summary"]["interval"] == "across launches"
    assert len(second["samples"]["launches"]) == 2


def test_a_file_of_ones_own_is_a_model_with_its_hash(cli: Cli) -> None:
    text = "from deepstone.models.chains import cifarnet\n\n\ndef make():\n    return cifarnet()\n"
    (cli.home / "mine.py").write_text(text)
    record = cli("run", "mine.py:make", "framework=fake", "--budget", 1, "--json").assert_ok().json
    assert record["workload"]["source"] == str((cli.home / "mine.py").resolve())
    assert len(record["workload"]["file_sha256"]) == 64
    (again,) = cli(*record["command"][1:], "--dry-run", "--json").assert_ok().json
    assert again["job"] == record["job"]


def test_a_plan_tells_what_this_machine_lacks(cli: Cli) -> None:
    words = ("run", "cifarnet", "framework=fake", "affinity=9998", "--dry-run")
    (job,) = cli(*words, "--json").assert_ok().json
    assert job["can_run"].startswith("no: affinity=9998: this process may use CPUs")
    assert job["can_run"] in cli(*words).assert_ok().out
    plan = cli("comm", "framework=fake", "affinity=9998", "--dry-run", "--json").assert_ok().json
    assert {each["can_run"] for each in plan["jobs"]} == {job["can_run"]}
    tuned = cli("tune", "cifarnet", "framework=fake", "affinity=9998", "--dry-run", "--json").assert_ok().json
    assert tuned["can_run"] == job["can_run"]


def test_a_plan_of_scaling_shows_what_differs(cli: Cli) -> None:
    words = ("scale", "cifarnet", "framework=fake", "processes=1,2", "mode=weak", "batch=8/process", "base=all")
    shown = cli(*words, "--dry-run").assert_ok().out
    rows = [line.split() for line in shown.splitlines() if " × " in line and "fake" in line]
    each = max(1, len(os.sched_getaffinity(0)) // 2)
    assert [" ".join(row[:6]) for row in rows] == [
        "base, threads=auto batch=8 1 × auto",
        f"2 processes batch=16 2 × {each}",
    ]
    assert "at most 6 launches in 3 rounds: about " in shown
    plan = cli(*words, "--dry-run", "--json").assert_ok().json
    assert [(job["name"], job["round"]) for job in plan] == [
        (name, number) for name in ("base, threads=auto", "2 processes") for number in (1, 2, 3)
    ]
    assert not cli.store.exists()


def test_a_plan_of_a_comparison_shows_its_sides(cli: Cli) -> None:
    words = ("compare", "cifarnet", "framework=fake", "batch=8", "--dry-run")
    shown = cli(*words, "--", "layout=nhwc").assert_ok().out
    rows = [line.split()[:2] for line in shown.splitlines() if " × " in line and "fake" in line]
    assert rows == [["A", "layout=auto"], ["B", "layout=nhwc"]]
    assert "at most 24 launches" in shown
    plan = cli(*words, "--json", "--", "layout=nhwc").assert_ok().json
    assert [side["name"] for side in plan] == ["A", "B"]
