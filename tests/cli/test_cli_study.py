"""`deepstone study`, typed as a user would."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cli_kit import Cli, code_and_imports, first_line, script

STUDY = """title = "A small study"
[effort]
repetitions = 2
budget = 0.05
target = 50
[[jobs]]
model = "cifarnet"
framework = "fake"
vary = "one"
batch = [1, 2]
layout = ["nchw", "nhwc"]
"""


@pytest.fixture
def file(cli: Cli) -> Path:
    path = cli.home / "small.toml"
    path.write_text(STUDY)
    return path


def test_planned_run_and_found_done(cli: Cli, file: Path) -> None:
    plan = cli("study", "small.toml", "--dry-run").assert_ok()
    assert not cli.store.exists()
    assert plan.out.count("FLOPs, roughly") == 3
    assert "6 tasks: 6 to measure, in random order within each round.\nAbout " in plan.out
    done = cli("study", "small.toml").assert_ok()
    assert done.out.startswith("study small: 6 done\n\nWhat was found:\n  · cifarnet trains at ")
    lines = done.err.splitlines()
    assert [line.split()[0] for line in lines] == [f"[{number}/6]" for number in range(1, 7)]
    assert all("done: cifarnet framework=fake batch=" in line and "images/s; stored " in line for line in lines)
    assert len(cli.runs()) == 6
    again = cli("study", "small.toml").assert_ok()
    assert (again.out, again.err) == (done.out, "")
    assert "Nothing is left to measure." in cli("study", "small.toml", "--dry-run").assert_ok().out


def test_it_ends_with_advice_and_the_page_begins_with_it(cli: Cli, file: Path) -> None:
    faster = script(by={"layout=nhwc": {"step_s": 0.005}}, seed=3)
    done = cli("study", "small.toml", "--report", "small.html", DEEPSTONE_FAKE=faster).assert_ok()
    said, advice = done.out.split("\nAdvice: ")
    assert "layout=nhwc" not in said
    assert advice.startswith("Use layout=nhwc: 2.0")
    runs = advice.splitlines()[-1].split()[1:]
    assert set(runs) <= {path.stem for path in cli.runs()}
    page = (cli.home / "small.html").read_text()
    assert page.index("Use layout=nhwc: 2.0") < page.index("cifarnet trains at ")


def test_the_page_about_it(cli: Cli, file: Path) -> None:
    done = cli("study", "small.toml", "--report", "small.html").assert_ok()
    assert done.err.splitlines()[-1] == "The page about it: small.html"
    page = (cli.home / "small.html").read_text()
    assert "cifarnet trains at " in page
    assert all(run.stem in page for run in cli.runs())
    assert "--report small.html" in json.loads((cli.store / "studies" / "small.json").read_text())["resume"]


def test_a_page_that_cannot_be_written_is_told_before_anything_is_measured(cli: Cli, file: Path) -> None:
    cli("study", "small.toml", "--report", "nowhere/small.html").assert_error(2, "nowhere")
    cli("study", "small.toml", "--report", "small.pdf").assert_error(2, "must end in .html")
    assert not cli.store.exists()


def test_json_of_the_plan_and_of_the_end(cli: Cli, file: Path) -> None:
    plan = cli("study", "small.toml", "--dry-run", "--json").assert_ok().json
    assert plan["estimate_s"] == pytest.approx(sum(task["estimate_s"] for task in plan["tasks"]))
    assert [task["round"] for task in plan["tasks"]] == [1, 1, 1, 2, 2, 2]
    state = cli("study", "small.toml", "--json").assert_ok().json
    assert [task["id"] for task in state["tasks"]] == [task["id"] for task in plan["tasks"]]
    assert state == json.loads((cli.store / "studies" / "small.json").read_text())


def test_words_and_options_change_it(cli: Cli, file: Path) -> None:
    words = ("study", "small.toml", "batch=4", "phase=forward", "--repetitions", 1, "--budget", 0.1)
    state = cli(*words, "--json").assert_ok().json
    assert [task["title"] for task in state["tasks"] if not task["changed"]] == [
        "cifarnet framework=fake batch=4 layout=nchw phase=forward"
    ]
    assert len(state["tasks"]) == 2
    assert state["name"].startswith("small-")
    assert state["resume"] == "deepstone study small.toml batch=4 phase=forward --budget 0.1 --repetitions 1"
    assert state["tasks"][0]["command"][-2:] == ["--budget", "0.1"]


def test_what_failed_and_what_was_left_out_is_named(cli: Cli, file: Path) -> None:
    fault = {"at": "step", "step": 0, "kind": "error"}
    done = cli("study", "small.toml", DEEPSTONE_FAKE=script(by={"layout=nhwc": {"fault": fault}}))
    assert done.code == 1
    failed = "failed: cifarnet framework=fake batch=1 layout=nhwc (2 rounds): crashed: RuntimeError: scripted failure\n"
    assert done.out.startswith(f"{failed}study small: 4 done, 2 failed\n")
    retried = cli("study", "small.toml", "--rerun", "failed").assert_ok()
    assert retried.out.startswith("study small: 6 done\n")
    late = cli("study", "small.toml", "batch=8", "--time", "5 s", "--budget", 100).assert_ok()
    assert late.out.startswith("left out: cifarnet framework=fake batch=8 layout=nchw (2 rounds): it takes about ")
    assert "study small-" in late.out
    assert "For what was left out: deepstone study small.toml batch=8 --time '5 s' --budget 100\n" in late.out


def test_a_bar_on_a_terminal(cli: Cli, file: Path) -> None:
    done = cli.on_terminal("study", "small.toml", "--repetitions", 1, error_too=True)
    assert done.code == 0
    assert done.out.startswith("study small: 3 done\n")
    assert "0/3, " in done.err
    assert " left · cifarnet base, round 1: " in done.err
    assert " left · cifarnet layout=nhwc, round 1: " in done.err
    assert "measuring" in done.err
    assert done.err.count("; stored ") == 3


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_tells_how_to_go_on(cli: Cli, file: Path, number: int, code: int, word: str) -> None:
    process = subprocess.Popen(
        cli.command("study", "small.toml", "--budget", 3, "--repetitions", 1),
        env=cli.environment(DEEPSTONE_FAKE=script(sleep=True, step_s=0.15, warmup=[1])),
        cwd=cli.home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert first_line(process.stderr).startswith("[1/3] done")
    time.sleep(0.3)  # into the second
    process.send_signal(number)
    out, err = process.communicate(timeout=200)
    assert process.returncode == code
    resume = "deepstone study small.toml --budget 3 --repetitions 1"
    assert err == f"deepstone: {word}; what is stored is kept; go on with: {resume}\n"
    assert out == ""
    state = json.loads((cli.store / "studies" / "small.json").read_text())
    assert sorted(task["state"] for task in state["tasks"]) == ["done", "waiting", "waiting"]
    assert state["resume"] == resume
    assert list(cli.store.glob("claims/*.claim")) == []
    rest = cli(*resume.split()[1:]).assert_ok()
    assert rest.out.startswith("study small: 3 done\n")
    assert len(cli.runs()) == 3


def test_studies_that_come_with_it(reader: Cli) -> None:
    listed = reader("study", "--list", "--json").assert_ok().json
    assert "quick" in [study["name"] for study in listed]
    assert "quick" in reader("study", "--list").assert_ok().out
    plan = reader("study", "quick", "framework=fake", "--dry-run", "--json").assert_ok().json
    assert {task["kind"] for task in plan["tasks"]} >= {"run", "layers", "peaks"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("study",), "--list"),
        (("study", "quik"), "did you mean quick?"),
        (("study", "gone.toml"), "no file gone.toml"),
        (("study", "small.toml", "bach=3"), "did you mean batch"),
        (("study", "small.toml", "--rerun", "sometimes"), "always, failed, never"),
        (("study", "small.toml", "--time", "soon"), "20 min"),
        (("study", "small.toml", "batch=1,2,3", "threads=1", "--repetitions", "x"), "x"),
    ],
)
def test_wrong_words(cli: Cli, file: Path, words: tuple[str, ...], told: str) -> None:
    cli(*words).assert_error(2, told)
    assert not cli.store.exists()


def test_a_mistake_in_the_file(cli: Cli, file: Path) -> None:
    file.write_text(STUDY.replace("layout", "layuot"))
    cli("study", "small.toml").assert_error(2, "small.toml, line 11: layuot: no such key; did you mean layout?")
    file.write_text(STUDY + "threads = { from = 1, to = 4096, step = 1 }\nseed = { from = 1, to = 9999, step = 1 }\n")
    cli("study", "small.toml").assert_error(2, "small.toml, line 6: the study would have", "and more than 10,000")
    file.write_text(STUDY.replace('"fake"', '"jax@0.0.1"'))
    cli("study", "small.toml").assert_error(4, "jax@0.0.1 is not installed")
    assert not cli.store.exists()


def test_a_store_of_another_version_is_refused(cli: Cli, file: Path) -> None:
    cli.store.mkdir()
    (cli.store / "format").write_text("deepstone store 9\n")
    for words in (("study", "small.toml"), ("study", "small.toml", "--dry-run")):
        cli(*words).assert_error(3, "another version of Deepstone", "--store DIR")


def test_help_and_completion(reader: Cli) -> None:
    helped = reader("study", "--help").assert_ok()
    assert helped.out.startswith("Usage: deepstone study [OPTIONS] [FILE|NAME] [AXIS=VALUE]...\n")
    assert "Examples:" in helped.out
    offered = reader(_DEEPSTONE_COMPLETE="complete_bash", COMP_WORDS="deepstone\nstudy\nqui", COMP_CWORD="2")
    assert offered.out.split() == ["quick"]


def test_a_mistake_is_told_before_anything_heavy_is_imported(cli: Cli, file: Path) -> None:
    file.write_text(STUDY.replace("layout", "layuot"))
    code, imported = code_and_imports(cli, "study", str(file))
    assert code == "2"
    assert not {"numpy", "psutil", "rich"} & set(imported)


def test_a_dry_run_tells_what_this_machine_lacks(cli: Cli, file: Path) -> None:
    file.write_text('title = "x"\n[[jobs]]\nmodel = "cifarnet"\nframework = "fake"\nprocesses = 2\nnodes = [1, 2]\n')
    told = cli("study", str(file), "--dry-run").assert_ok().out
    assert "cannot run here: nodes=2" in told
    assert "--hosts" in told


def test_a_dry_run_of_a_script_writes_nothing(cli: Cli, file: Path) -> None:
    words = ("study", str(file), "--submit", "slurm", "--part", "3")
    shown = cli(*words, "--dry-run").assert_ok().out
    assert "#SBATCH --array=1-3\n" in shown
    assert cli(*words, "--dry-run", "--json").assert_ok().json["script"] == shown
    assert not list(cli.home.glob("*.sbatch"))
    cli(*words).assert_ok()
    (written,) = cli.home.glob("*.sbatch")
    assert written.read_text() == shown
