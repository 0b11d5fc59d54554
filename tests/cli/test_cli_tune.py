"""`deepstone tune` on the scripted backend: the whole way, what it refuses, and what a kill leaves behind."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_kit import Cli

from deepstone.environments.find import find_environment
from deepstone.results.ceilings import Ceiling
from deepstone.results.quantity import Quantity
from deepstone.runner.job import Machine
from deepstone.runner.peaks import cache_peaks

SPEEDS = {
    "launch_noise": 0.003,  # drawn anew in every launch: nothing below may depend on luck
    "by": {
        "layout=nhwc": {"faster": 1.3},
        "precision=bf16-mixed": {"faster": 1.2},
        "threads=1": {"faster": 0.5},
        "engine=native": {"fault": {"at": "build", "kind": "unsupported"}},
    },
}
FIXED = ("processes=auto", "accumulate=1", "compile=auto", "isa=auto", "inter_threads=auto", "space_to_depth=off")
WORDS = ("cifarnet", "framework=fake", "batch=8", "optimizer=momentum", *FIXED)
SEARCHED = ("layout=auto,nhwc", "precision=auto,bf16-mixed", "threads=auto,1", "engine=auto,native")
# The scripted backend computes nothing, so it cannot be shown to train the same.
TUNE = ("tune", *WORDS, *SEARCHED, "--budget", "20s", "--same", "any")


def scripted(script: Any) -> dict[str, str]:
    return {"DEEPSTONE_FAKE": json.dumps(script)}


def test_the_command_beside_the_best_setup_has_the_size_of_images_that_was_given(cli: Cli) -> None:
    (cli.home / "net.prototxt").write_text(
        'layer { name: "data" type: "Data" top: "data" top: "label" data_param { batch_size: 4 } }\n'
        'layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" inner_product_param { num_output: 10 } }\n'
        'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip1" bottom: "label" top: "loss" }\n'
    )
    words = ("net.prototxt", "--input", "3x8x8", *WORDS[1:], "precision=auto,bf16-mixed", "threads=auto")
    fixed = ("layout=auto", "engine=auto", "--budget", "20s", "--same", "any")
    cli("tune", *words, *fixed, cwd=cli.home, **scripted(SPEEDS)).assert_ok()
    lines = (cli.home / "best.toml").read_text().splitlines()
    told = next(line for line in lines if line.startswith("# Use it: deepstone "))
    (planned,) = cli(*shlex.split(told)[4:], "--dry-run", "--json", cwd=cli.home).assert_ok().json
    assert planned["requested"]["precision"] == "bf16-mixed"


def test_it_finds_writes_and_stores_the_best(cli: Cli) -> None:
    done = cli(*TUNE, "--json", **scripted(SPEEDS)).assert_ok()
    answer = done.json
    assert (answer["kind"], answer["answer"]) == ("tune", "better")
    assert "doctor --peaks" in answer["bound"]["most_lost"]["absent"]
    assert "doubts" in answer
    assert answer["best"]["setup"] == {
        "framework": "fake",
        "batch": 8,
        "layout": "nhwc",
        "precision": "bf16-mixed",
    }
    assert answer["ratio"]["median"] == pytest.approx(1.56, rel=0.02)
    assert {look["run"] for look in answer["looks"]} == {path.stem for path in cli.runs()}
    (finding,) = (cli.store / "findings").glob("*.json")
    shown = cli("results", "show", finding.stem).assert_ok().out
    assert shown.startswith("model  cifarnet · batch 8 · train\n")
    assert "layout=nhwc" in shown
    # The setup is used again under its name, in records as words.
    record = cli("run", "cifarnet", "@best.toml", "threads=1", "--budget", "0.1", "--json").assert_ok().json
    assert record["setup"]["requested"]["layout"] == "nhwc"
    assert record["setup"]["requested"]["threads"] == 1
    assert not any(word.startswith("@") for word in record["command"])
    plan = cli("compare", "cifarnet", "framework=fake", "--dry-run", "--json", "--", "@best.toml").assert_ok().json
    assert plan[1]["requested"]["precision"] == "bf16-mixed"


def test_it_tells_where_the_best_setup_loses_its_time(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ceilings that are known. They are stored with the layers, which are timed within the budget."""
    monkeypatch.setenv("DEEPSTONE_CACHE", str(cli.cache))
    rate = Quantity.of(median=1e15, low=1e15, high=1e15, n=50)
    known = Ceiling(
        device="cpu",
        framework="fake@1",
        threads=1,
        flops_per_s={"fp32": rate},
        bytes_per_s={"copy": rate},
        measured_with="fake@1",
        measured_at="2026-11-15T03:40:12.123456Z",
    )
    cache_peaks(known, Machine.here(), find_environment("fake"))
    words = ("tune", *WORDS, "layout=auto,nhwc", "precision=auto", "threads=auto", "engine=auto", "affinity=auto")
    words += ("wait=auto", "allocator=auto", "--same", "any", "--budget", "15s", "-o", "t.html", "--json")
    answer = cli(*words, **scripted(SPEEDS)).assert_ok().json
    assert answer["best"]["setup"]["layout"] == "nhwc"
    bound = answer["bound"]
    lost = [each["lost_s"] for each in bound["most_lost"]]
    assert lost == sorted(lost, reverse=True)
    assert len(lost) == 3
    named = [each for each in bound["most_lost"] if "layer" in each]
    assert all(0 < each["layer_lost_s"] <= each["lost_s"] <= each["taken_s"] for each in named)
    layers = cli("results", "show", bound["layers"], "--json").assert_ok().json
    assert layers["kind"] == "layers"
    assert layers["setup"]["requested"]["layout"] == "nhwc"
    assert {each["layer"] for each in named} <= {row["name"] for row in layers["layers"]}
    assert layers["command"][:3] == ["deepstone", "layers", "cifarnet"]
    assert layers["command"][-4:] == ["--method", "in-place", "--budget", "5"]
    assert bound["layers"] in (cli.home / "t.html").read_text()


def test_what_no_longer_trains_once_it_is_timed_does_not_win(cli: Cli) -> None:
    words = ("tune", *WORDS, "layout=auto,nhwc", "precision=auto", "threads=auto,1", "engine=auto", "--same", "any")
    words += ("affinity=auto", "wait=auto", "allocator=auto")
    by = {"layout=nhwc": {"faster": 1.5, "updates": 12}, "threads=1": {"faster": 1.5, "loss": 2.0}}
    idle = {"launch_noise": 0.003, "by": by}
    answer = cli(*words, "--budget", "15s", "--json", **scripted(idle)).assert_ok().json
    assert answer["answer"] != "better"
    looks = [look for look in answer["looks"] if look["setup"].get("threads") is None]
    told = [look["samples_per_s"] for look in looks if look["setup"].get("layout") == "nhwc"]
    assert told
    assert all("changed no parameter" in each["absent"] for each in told)
    # At every level the answer names what was refused.
    assert any("changed no parameter" in doubt and "layout=nhwc" in doubt for doubt in answer["doubts"])
    losses = re.compile("threads=1: the loss of step 1 is 0.99.* in the default and 1.99.* in this setup")
    assert any(losses.search(doubt) for doubt in answer["doubts"])


def test_with_nothing_better_it_says_so(cli: Cli) -> None:
    words = ("tune", *WORDS, "layout=auto,nhwc", "threads=auto", "affinity=auto", "engine=auto", "precision=auto")
    slower = {"noise": 0.001, "by": {"layout=nhwc": {"faster": 0.7}}}
    done = cli(*words, "--budget", "12s", **scripted(slower)).assert_ok()
    assert "the default: nothing better was found" in done.out
    assert "best.toml" not in done.out
    assert not (cli.home / "best.toml").exists()


def test_a_space_of_one_setup_is_measured_once(cli: Cli) -> None:
    """With every axis given there is nothing to search, which is no failure."""
    words = ("tune", *WORDS, "layout=auto", "threads=auto", "affinity=auto", "engine=auto", "precision=auto")
    words += ("wait=auto", "allocator=auto", "checkpointing=off", "--budget", "12s")
    assert cli(*words, "--dry-run", "--json").assert_ok().json["looks"] == 1
    done = cli(*words, **scripted(SPEEDS)).assert_ok()
    assert len(cli.runs()) == 1
    assert "1 setup of 0 axes · 1 launch" in done.out
    assert "best   the default: there was nothing to search" in done.out
    answer = cli(*words, "--json", **scripted(SPEEDS)).assert_ok().json
    assert (answer["answer"], answer["space"]["setups"], len(answer["looks"])) == ("nothing better", 1, 1)


def test_a_default_beyond_the_limit_is_no_default_that_fails(cli: Cli) -> None:
    large, small = {"base": 100_000_000, "per_sample": 1000}, {"base": 1000, "per_sample": 1000}
    memory = {"launch_noise": 0.003, "memory": large, "by": {"precision=bf16-mixed": {"memory": small}}}
    words = ("tune", *WORDS, "precision=auto,bf16-mixed", "layout=auto", "threads=auto", "engine=auto", "wait=auto")
    words += (
        "affinity=auto",
        "allocator=auto",
        "--same",
        "any",
        "--limit",
        "memory=40M",
        "--budget",
        "8s",
        "-o",
        "t.html",
    )
    answer = cli(*words, "--json", **scripted(memory)).assert_ok().json
    assert (answer["answer"], answer["best"]["setup"]["precision"]) == ("better", "bf16-mixed")
    assert "95.4 MiB of memory, 40.0 MiB allowed" in answer["ratio"]["absent"]
    assert "does not run" not in answer["ratio"]["absent"]
    assert answer["why"] == []
    assert 'precision = "bf16-mixed"' in (cli.home / "best.toml").read_text()
    assert "breaks a limit" in (cli.home / "t.html").read_text()


def test_a_limit_that_nothing_keeps_is_no_success(cli: Cli) -> None:
    large = {"launch_noise": 0.003, "memory": {"base": 100_000_000, "per_sample": 1000}}
    words = ("tune", *WORDS, "precision=auto", "layout=auto,nhwc", "threads=auto", "engine=auto", "wait=auto")
    words += ("affinity=auto", "allocator=auto", "--limit", "memory=40M", "--budget", "6s", "--same", "any")
    why = (
        "nothing was found within the limits, and the default is beyond them too: 95.4 MiB of memory, 40.0 MiB allowed"
    )
    told = cli(*words, **scripted(large))
    assert told.code == 1
    assert f"best   none: {why}" in " ".join(told.out.split("\n       "))
    assert told.err.splitlines()[-1] == f"deepstone: {why}"
    answer = cli(*words, "--json", **scripted(large))
    assert answer.code == 1
    assert (answer.json["answer"], answer.json["doubts"][0]) == ("nothing better", why)
    assert not (cli.home / "best.toml").exists()


def test_a_better_batch_does_not_contradict_the_answer_at_the_one_asked_for(cli: Cli) -> None:
    plain = ("cifarnet", "framework=fake", "optimizer=momentum", *FIXED)
    words = ("tune", *plain, "batch=8,16", "layout=auto,nhwc", "threads=auto", "engine=auto", "precision=auto")
    words += ("affinity=auto", "wait=auto", "allocator=auto")
    faster = {"launch_noise": 0.003, "by": {"layout=nhwc": {"faster": 0.7}, "batch=8": {"step_s": 0.02}}}
    done = cli(*words, "--budget", "12s", **scripted(faster)).assert_ok()
    lines = {line[:6].strip(): line for line in done.out.splitlines() if line[:6].strip()}
    assert lines["best"].endswith("the default: nothing better was found at this batch")
    assert "batch=16" in lines["batch"]
    assert "batch=16" not in done.out.partition(lines["batch"])[0]
    assert "layout=nhwc" in done.out  # a setup at the batch that was asked for was in the finals


def test_a_budget_that_is_too_small_is_told(cli: Cli) -> None:
    slow = {"sleep": True, "step_s": 20.0}
    done = cli("tune", *WORDS, "layout=auto,nhwc", "--budget", "5s", **scripted(slow))
    assert done.code == 1
    last = done.err.splitlines()[-1]
    assert last.startswith("deepstone: no setup could be measured; the default: timeout: a launch may take 5 s")
    assert "give a larger budget, as --budget 120s" in last
    assert "--timeout" not in last
    assert not (cli.home / "best.toml").exists()


def test_a_figure_that_cannot_be_drawn_does_not_fail_the_search(cli: Cli) -> None:
    """There is no finalist, so there are no finals to draw."""
    broken = {"by": {"layout=nhwc": {"fault": {"at": "build", "kind": "unsupported"}}}}
    words = ("layout=auto,nhwc", "threads=auto", "affinity=auto", "engine=auto", "precision=auto", "wait=auto")
    done = cli("tune", *WORDS, *words, "--budget", "8s", "-o", "t.svg", **scripted(broken)).assert_ok()
    assert "t.svg was not drawn" in done.err
    assert not (cli.home / "t.svg").exists()


def test_if_nothing_runs_it_exits_with_1(cli: Cli) -> None:
    broken = {"fault": {"at": "build", "kind": "unsupported"}}
    done = cli("tune", *WORDS, "layout=auto,nhwc", "--budget", "60s", **scripted(broken))
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("deepstone: no setup could be measured; the default: unsupported")
    assert not (cli.home / "best.toml").exists()


def test_where_only_the_default_fails_the_answer_is_shown(cli: Cli) -> None:
    """Others ran, but nobody can show that they train the same. It is no success."""
    broken = {"launch_noise": 0.003, "by": {"layout=auto": {"fault": {"at": "build", "kind": "unsupported"}}}}
    words = ("tune", *WORDS, "layout=auto,nhwc", "threads=auto", "affinity=auto", "engine=auto", "precision=auto")
    words += ("wait=auto", "allocator=auto", "--same", "exact", "--budget", "8s")
    told = cli(*words, "-o", "t.html", **scripted(broken))
    assert told.code == 1
    assert "best   none: the default could not be measured" in told.out
    assert "layout=nhwc" in told.out
    assert told.err.splitlines()[-1].startswith("deepstone: the default could not be measured")
    assert "The default could not be measured" in (cli.home / "t.html").read_text()
    answer = cli(*words, "--json", **scripted(broken))
    assert answer.code == 1
    assert answer.json["answer"] != "better"
    assert any("absent" not in str(look["samples_per_s"]) for look in answer.json["looks"])
    assert not (cli.home / "best.toml").exists()


def test_a_dry_run_shows_the_space(reader: Cli) -> None:
    plan = reader("tune", "cifarnet", "framework=fake", "batch=32..100", "--dry-run", "--json").assert_ok().json
    axes = {axis["name"]: axis["values"] for axis in plan["space"]["axes"]}
    assert axes["batch"] == [32, 64, 100]
    assert axes["layout"][0] == "auto"
    fixed = {axis["name"]: axis["why"] for axis in plan["space"]["fixed"]}
    assert fixed["framework"] == "you gave its value"
    assert set(axes) | set(fixed) == {axis["name"] for axis in reader("axes", "--json").assert_ok().json}
    assert "searched over" in reader("tune", "cifarnet", "framework=fake", "--dry-run").assert_ok().out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("batch=32..8",), 2, "batch=32..8"),
        (("layout=a..b",), 2, "layout takes no range"),
        (("layot=nchw",), 2, "did you mean layout?"),
        (("seed=1,2",), 2, "seed: tune takes one value"),
        (("seed=0..3",), 2, "tune takes one value of seed: it is part of the workload"),
        (("threads=2..2",), 2, "threads=2..2: is one value; write it as threads=2"),
        (("--budget", "soon"), 2, "soon: is no time"),
        (("--budget", "1s"), 2, "at least 5 s"),
        (("--budget", "1ms"), 2, "1ms: is no time"),
        (("--limit", "disk=3"), 2, "disk=3"),
        (("--limit", "memory=2"), 2, "is more than the limit of memory, 2 B allowed"),
        (("--limit", "memroy=3G"), 2, "did you mean memory? write it as in memory=40G"),
        (("--limit", "memory=lots"), 2, "memory=lots"),
        (("--objective", "speed"), 2, "speed"),
        (("--objective", "energy:slow=2"), 2, "slowdown=NUMBER"),
        (("--same", "roughly"), 2, "roughly"),
        (("-o", "/nowhere/page.html"), 2, "no folder /nowhere"),
        (("-o", "page.pdf"), 2, "page.pdf"),
        (("@missing.toml",), 2, "best.toml only for a setup that is better than the default"),
        (("framework=cntk",), 4, "cntk is not installed"),
    ],
)
def test_what_it_refuses(reader: Cli, words: tuple[str, ...], code: int, told: str) -> None:
    framework = () if any(word.startswith("framework") for word in words) else ("framework=fake",)
    reader("tune", "cifarnet", *framework, *words).assert_error(code, told)


def test_a_folder_is_refused_before_the_search(cli: Cli) -> None:
    (cli.home / "page.html").mkdir()
    cli(*TUNE, "-o", "page.html", **scripted(SPEEDS)).assert_error(2, "page.html is a folder; name a file")
    assert not cli.runs()


def test_energy_without_a_meter(reader: Cli) -> None:
    done = reader("tune", "cifarnet", "framework=fake", "device=cpu", "--objective", "energy")
    if done.code == 4:  # a machine with RAPL that we may read would start to measure
        done.assert_error(4, "energy cannot be measured here")
        slower = ("tune", "cifarnet", "framework=fake", "device=cpu", "--objective", "throughput:slowdown=1.5")
        reader(*slower).assert_error(4, "slowdown=1.5 seeks the least energy among setups at most 1.5 times slower")
        plan = ("tune", "cifarnet", "framework=fake", "device=cpu", "--objective", "energy", "--dry-run")
        reader(*plan).assert_error(4, "energy cannot be measured here")


def test_a_number_is_a_time_in_seconds(reader: Cli) -> None:
    words = ("tune", "cifarnet", "framework=fake", "--dry-run", "--json", "--budget")
    looks = [reader(*words, budget).assert_ok().json["looks"] for budget in ("90", "90s", "1.5m")]
    assert looks[0] == looks[1] == looks[2]


def test_progress_tells_what_is_sought(cli: Cli) -> None:
    """Beside the rate, and a ratio with its name."""
    large, small = {"base": 100 * 2**20, "per_sample": 0}, {"base": 25 * 2**20, "per_sample": 0}
    memory = {"launch_noise": 0.003, "memory": large, "by": {"precision=bf16-mixed": {"memory": small}}}
    words = ("tune", *WORDS, "precision=auto,bf16-mixed", "layout=auto", "threads=auto", "engine=auto", "wait=auto")
    words += ("affinity=auto", "allocator=auto", "checkpointing=off", "--same", "any", "--objective", "memory")
    told = cli(*words, "--budget", "6s", **scripted(memory)).assert_ok()
    assert "precision=bf16-mixed: 25.0 MiB, " in told.err
    assert ", 0.250x the memory of the default: the best so far" in told.err
    assert "2 setups of 1 axis" in told.out
    # A ratio of memory is told as memory wherever it stands.
    assert re.search(r"noise \S+ % of memory", told.out)
    assert "ratios of memory; below 1x is less" in told.out
    assert re.search(r"precision +0\.250x █+  added 0\.250x .*, removed 0\.250x", told.out)
    assert "4.00x" not in told.out
    assert "# 0.250x (0.250 – 0.250) the memory of the default." in (cli.home / "best.toml").read_text()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[setup\n", "is no TOML"),
        ("layout = 'nhwc'\n", "has no table [setup]"),
        ("[setup]\nlayot = 'nhwc'\n", "did you mean layout?"),
        ("[setup]\nlayout = 'nhcw'\n", "layout=nhcw: not a value of layout"),
        ("[setup]\nlayout = true\n", "a value is text or a whole number"),
    ],
)
def test_a_setup_that_cannot_be_read(reader: Cli, tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "setup.toml"
    path.write_text(content)
    reader("run", "cifarnet", f"@{path}").assert_error(2, told)


def test_it_overwrites_no_file_of_others(cli: Cli) -> None:
    (cli.home / "best.toml").write_text("[setup]\nlayout = 'nhwc'\n")
    cli(*TUNE).assert_error(2, "was not written by `deepstone tune`")


def test_killed_it_goes_on(cli: Cli) -> None:
    """Twice, at any moment; every run that is stored is in the log, and none is measured again."""
    seen = 0
    for _ in range(2):
        process = subprocess.Popen(
            cli.command(*TUNE), env=cli.environment(**scripted(SPEEDS)), cwd=cli.home, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 120
        while _looks(cli) < seen + 2 and time.monotonic() < until:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert _looks(cli) >= seen + 2
        seen = _looks(cli)
    done = cli(*TUNE, "--json", **scripted(SPEEDS)).assert_ok()
    assert f"goes on after {seen} looks" in done.err
    answer = done.json
    assert answer["budget"]["calls"] == 3
    assert answer["best"]["setup"]["layout"] == "nhwc"
    assert len(answer["looks"]) > seen
    named = {look["run"] for look in answer["looks"]}
    assert named <= {path.stem for path in cli.runs()}
    assert len(cli.runs()) - len(named) <= 2  # a kill between a run and its line in the log


def test_the_same_search_is_not_done_twice_at_once(cli: Cli) -> None:
    process = subprocess.Popen(
        cli.command(*TUNE), env=cli.environment(**scripted(SPEEDS)), cwd=cli.home, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 120
    while not _looks(cli) and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGSTOP)
    seen = _looks(cli)
    cli(*TUNE, **scripted(SPEEDS)).assert_error(
        3, f"process {process.pid} is at this very search", "wait until it ends"
    )
    assert _looks(cli) == seen
    process.kill()
    process.wait()
    done = cli(*TUNE, "--json", **scripted(SPEEDS)).assert_ok()
    assert f"goes on after {seen} looks" in done.err
    assert done.json["budget"]["calls"] == 2


@pytest.mark.parametrize("more", [("--json",), ("--emit", "torch")])
def test_stopped_it_says_how_to_go_on(cli: Cli, more: tuple[str, ...]) -> None:
    """With all that the command was given; a store from the environment is named there again."""
    named = replace(cli, store=cli.home / "other store")
    words = ("tune", *WORDS, "layout=auto,nhwc", "--budget", "60s", "--same", "any", "--timeout", "50")
    if "--emit" in more:
        words = (*(word for word in words if word != "framework=fake"), "framework=fake,torch")
    process = subprocess.Popen(
        cli.command(*words, *more, "--store", named.store),
        env=cli.environment(**scripted(SPEEDS)),
        cwd=cli.home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 120
    while not _looks(named) and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert (process.returncode, out) == (130, "")
    last = err.splitlines()[-1]
    assert last.startswith("deepstone: interrupted; every look is stored; go on with: deepstone tune ")
    resume = shlex.split(last.partition("go on with: deepstone ")[2])
    assert {*more, "--store", str(named.store)} <= {*resume}
    (log,) = [path.stem for path in (named.store / "tunes").glob("*.json")]
    process = subprocess.Popen(
        cli.command(*resume), env=cli.environment(**scripted(SPEEDS)), cwd=cli.home, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    with process:
        assert any("looks of an earlier call" in line for line in process.stderr)
        process.kill()
    assert [path.stem for path in (named.store / "tunes").glob("*.json")] == [log]
    assert not cli.store.exists()


def _looks(cli: Cli) -> int:
    for path in (cli.store / "tunes").glob("*.json"):
        return len(json.loads(path.read_text())["looks"])
    return 0


def test_the_code_of_a_given_setup_needs_no_search(cli: Cli) -> None:
    (cli.home / "best.toml").write_text('[setup]\nlayout = "nhwc"\nbatch = 4\n')
    given = ("tune", "cifarnet", "framework=torch", "@best.toml", "--emit", "torch", "--dry-run")
    code = cli(*given).assert_ok().out
    ast.parse(code)
    assert "class Network(nn.Module):" in code
    assert "BATCH = 4" in code
    assert "memory_format=torch.channels_last" in code
    cli(*given, "precision=fp32,bf16-mixed").assert_error(2, "give precision one value")
    cli(*given, "checkpointing=on").assert_error(2, "checkpointing=on")
    (cli.home / "other.toml").write_text('[setup]\nframework = "fake"\n')
    other = ("tune", "cifarnet", "@other.toml", "--emit", "torch", "--dry-run")
    cli(*other).assert_error(2, "the setup that you give is one of fake; use --emit fake, or give framework=torch")
    ast.parse(cli(*other, "framework=torch").assert_ok().out)
    assert not cli.runs()


def test_what_is_emitted_is_what_is_searched(cli: Cli) -> None:
    """A framework that is not searched is refused at once, and one that is emitted is searched if none is named."""
    words = ("tune", "cifarnet", "--emit", "jax", "--budget", "20s")
    cli(*words, "framework=torch,fake").assert_error(2, "no setup in jax, only in fake, torch; give framework=jax")
    without = cli(*words, "--limit", "memory=2")  # ends before the search
    assert without.code != 0
    assert "searches framework=jax only, because of --emit" in without.err
    assert not cli.runs()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--emit", "torhc"), "did you mean torch"),
        (("--emit", "torch"), "no setup in torch"),
        (("--emit", "fake"), "no code"),
    ],
)
def test_code_that_cannot_be_written_is_refused_before_anything_is_measured(
    cli: Cli, words: tuple[str, ...], reason: str
) -> None:
    cli(*TUNE, *words, **scripted(SPEEDS)).assert_error(2, reason)
    assert not cli.runs()
