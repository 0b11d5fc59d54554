"""Several processes as a user types them: run, scale, verify, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_kit import Cli, script

SCALE = ("scale", "cifarnet", "framework=fake", "batch=96", "processes=1,2", "--rounds", 2, "--budget", 0.3)
FASTER = script(noise=0.001, by={"processes=2": {"step_s": 0.006}})


def test_a_run_tells_of_communication(cli: Cli) -> None:
    words = ("run", "cifarnet", "framework=fake", "processes=2", "batch=8/process", "--budget", 0.3)
    done = cli(*words, DEEPSTONE_FAKE=script(noise=1e-6)).assert_ok()
    assert "batch 16" in done.out
    assert "communication 3.00 ms" in done.out


def test_a_trace_has_a_track_for_every_process(cli: Cli, tmp_path: Path) -> None:
    words = ("run", "cifarnet", "framework=fake", "batch=8", "--budget", 0.3, "--trace", tmp_path / "trace.json")
    cli(*words, "processes=2", DEEPSTONE_FAKE=script(noise=0.001)).assert_ok()
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {1, 2}
    assert {"forward", "backward", "bucket 1", "update"} <= {event["name"] for event in events}
    cli(*words).assert_error(2, "deepstone layers")
    cli(*words, "processes=2,4").assert_error(2, "one job")
    cli(*words, "processes=2", "--no-phases").assert_error(2, "one of the two")
    nowhere = (*words[:-1], tmp_path / "nowhere" / "trace.json")
    cli(*nowhere, "processes=2").assert_error(2, "no folder")
    done = cli(*words, "processes=2", DEEPSTONE_FAKE=script(timeline={"absent": "scripted: not told"}))
    assert (done.code, "no trace: scripted: not told" in done.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("processes=0",), "processes"),
        (("processes=2/nod",), "4/node"),
        (("batch=8/proc",), "8/process"),
        (("interface=a b",), "interface"),
        (("overlap=maybe",), "overlap"),
    ],
)
def test_wrong_words(reader: Cli, words: tuple[str, ...], told: str) -> None:
    reader("run", "cifarnet", *words).assert_error(2, told)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("processes=3", "batch=32"), "batch=8/process"),
        (("processes=2", "phase=forward"), "phase=train"),
        (("overlap=off",), "there is one"),
        (("launcher=mpirun",), "processes=2"),
        (("processes=2", "transport=mpi", "launcher=torchrun"), "mpirun or srun"),
        (("nodes=2", "launcher=local"), "mpirun or srun"),
        (("processes=2", "collective=reduce-broadcast", "overlap=on"), "overlap=off"),
        (("processes=2", "collective=reduce-broadcast", "compression=onebit"), "compression=none"),
        (("processes=2", "overlap=off", "bucket=4"), "no buckets"),
        (("processes=2", "collective=reduce-broadcast", "bucket=4"), "no buckets"),
        (("processes=2", "device=cpu", "transport=nccl"), "gloo"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_told_before_anything_starts(reader: Cli, words: tuple[str, ...], why: str) -> None:
    (job,) = reader("run", "cifarnet", "framework=fake", *words, "--dry-run", "--json").assert_ok().json
    assert why in job["can_run"]


@pytest.mark.parametrize("command", ["layers", "conv", "memory"])
def test_what_looks_into_one_process_refuses_several(reader: Cli, command: str) -> None:
    reader(command, "cifarnet", "framework=fake", "processes=2").assert_error(2, "one process")


class TestScale:
    def test_in_json_and_again_without_measuring(self, cli: Cli, tmp_path: Path) -> None:
        first = cli(*SCALE, "--json", "-o", tmp_path / "scale.svg", DEEPSTONE_FAKE=FASTER).assert_ok()
        answer = first.json
        assert (answer["mode"], [point["processes"] for point in answer["points"]]) == ("strong", [1, 2])
        one, two = answer["points"]
        assert one["speedup"]["median"] == pytest.approx(1.0, rel=0.05)
        assert two["speedup"]["median"] == pytest.approx(10 / 6, rel=0.05)
        assert two["efficiency"]["median"] == pytest.approx(5 / 6, rel=0.05)
        assert two["exposed_s"]["median"] > 0
        assert len(two["runs"]) == 2
        assert "speed-up" in (tmp_path / "scale.svg").read_text()
        runs = len(cli.runs())
        again = cli(*SCALE, "--json", DEEPSTONE_FAKE=FASTER).assert_ok()
        assert again.json["points"] == answer["points"]
        assert len(cli.runs()) == runs

    def test_in_words(self, cli: Cli) -> None:
        weak = ("scale", "cifarnet", "framework=fake", "batch=8/process", "processes=1,2", "mode=weak", "base=same")
        done = cli(*weak, "--rounds", 1, "--budget", 0.3, DEEPSTONE_FAKE=script(noise=0.001)).assert_ok()
        assert "weak scaling over one process with threads=" in done.out
        assert done.out.splitlines()[-1].split()[:2] == ["2", "16"]

    @pytest.mark.parametrize(("step_s", "base", "rounds_of_one_thread"), [(0.005, "threads=1", 2), (0.05, "auto", 1)])
    def test_fewer_threads_are_the_base_where_they_are_faster(
        self, cli: Cli, step_s: float, base: str, rounds_of_one_thread: int
    ) -> None:
        fake = script(noise=0.001, by={"threads=1": {"step_s": step_s}})
        answer = cli(*SCALE, "--json", DEEPSTONE_FAKE=fake).assert_ok().json
        assert base in answer["base"]["setup"]
        words = [json.loads(path.read_text())["record"]["setup"]["requested"] for path in cli.runs()]
        alone = [each for each in words if each.get("processes") == 1]
        assert len([each for each in alone if each.get("threads") == 1]) == rounds_of_one_thread

    def test_the_same_answer_from_an_export(self, cli: Cli, tmp_path: Path) -> None:
        answer = cli(*SCALE, "--json", DEEPSTONE_FAKE=FASTER).assert_ok().json
        runs, export = len(cli.runs()), tmp_path / "runs.jsonl"
        cli("results", "export", "-o", export).assert_ok()
        again = cli(*SCALE, "--from", export, "--json", "--store", tmp_path / "empty").assert_ok().json
        assert again["points"] == answer["points"]
        assert len(cli.runs()) == runs
        more = cli(*SCALE[:-4], "--rounds", 3, "--from", export)
        more.assert_error(2, "in round 3")
        cli(*SCALE, "--from", tmp_path / "nothing.jsonl").assert_error(2, "nothing.jsonl")

    @pytest.mark.parametrize(("scheme", "counts"), [("pipeline", "1,2"), ("server", "2"), ("sharded", "2")])
    def test_other_schemes_over_one_plain_process(self, cli: Cli, scheme: str, counts: str) -> None:
        words = ("scale", "cifarnet", "framework=fake", "batch=96", f"processes={counts}", f"scheme={scheme}")
        answer = cli(*words, "--no-phases", "--rounds", 1, "--budget", 0.3, "--json", DEEPSTONE_FAKE=FASTER).assert_ok()
        assert answer.json["points"][-1]["processes"] == 2
        requested = [json.loads(path.read_text())["record"]["setup"]["requested"] for path in cli.runs()]
        schemes = {each["processes"]: each.get("scheme", "auto") for each in requested}
        assert schemes == {1: "auto", 2: scheme}

    def test_rates_alone(self, cli: Cli) -> None:
        answer = cli(*SCALE, "--no-phases", "--json", DEEPSTONE_FAKE=FASTER).assert_ok().json
        assert "--no-phases" in answer["command"]
        assert answer["points"][1]["speedup"]["median"] == pytest.approx(10 / 6, rel=0.05)
        assert answer["points"][1]["exposed_s"] == {"absent": "not measured in these runs"}
        records = [json.loads(path.read_text())["record"] for path in cli.runs()]
        assert all("absent" in record["phases"] for record in records)
        assert all("--no-phases" in record["command"] for record in records)

    def test_long_steps_of_what_cannot_be_the_base_are_only_looked_at(self, cli: Cli) -> None:
        """One thread takes five times as long; its steps are too long for a run that is not needed."""
        fake = script(noise=0.001, step_s=1.0, by={"threads=1": {"step_s": 5.0}})
        words = (*SCALE, "--json", "--no-phases", "--rounds", 1)
        answer = cli(*words, DEEPSTONE_FAKE=fake).assert_ok().json
        assert answer["base"]["setup"] == "threads=auto"
        requested = [json.loads(path.read_text())["record"]["setup"]["requested"] for path in cli.runs()]
        assert [each for each in requested if each["processes"] == 1 and each.get("threads") == 1] == []

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (("cifarnet",), "processes=1,2,4"),
            (("cifarnet", "processes=1,2", "mode=wek"), "did you mean weak"),
            (("cifarnet", "processes=1,2", "bas=all"), "did you mean base"),
            (("cifarnet", "processes=1,2", "mode=weak", "batch=8"), "8/process"),
            (("cifarnet", "processes=1,2", "layout=nchw,nhwc"), "one value"),
        ],
    )
    def test_wrong_words(self, reader: Cli, words: tuple[str, ...], told: str) -> None:
        reader("scale", *words).assert_error(2, told)


@pytest.mark.slow
def test_verify_proves_that_it_is_the_same_training(reader: Cli) -> None:
    found = reader("verify", "cifarnet", "framework=torch", "processes=2", "threads=1", "--json").assert_ok().json
    data = found["parallel"]["data"]
    assert data["ok"] is True
    assert data["gradient"]["relative_error"] <= 1e-9
    assert data["update"]["relative_error"] <= 1e-9
    assert data["fp32"]["ok"] is True
    assert "no batch norm" in data["global_statistics"]["absent"]
    assert len(data["loss"]) == 3
