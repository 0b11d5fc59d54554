"""The convolution lab on a scripted backend: what is best, what the mix saves, and what a crash costs."""

from __future__ import annotations

from typing import Any

import pytest
from fake_jobs import fake_job, set_script

from deepstone.absent import Absent
from deepstone.algorithms.catalog import REFERENCES
from deepstone.algorithms.problem import PASSES
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.models.load import LoadedModel
from deepstone.report.figures import make_figure
from deepstone.report.files import as_result
from deepstone.runner.conversation import JobFailed
from deepstone.runner.convolutions.lab import LabEffort, equal_convolutions, new_lab, run_lab
from deepstone.runner.convolutions.report import joined_reports, lab_report
from deepstone.runner.convolutions.results import Lab
from deepstone.runner.job import Job

EFFORT = LabEffort(budget_s=0.2, timeout_s=60)


def three_layers() -> Graph:
    """Two of the three convolutions are equal, and the first needs no gradient of its input."""
    b = Builder("three")
    x = b.conv("conv1", b.input("data", (4, 8, 8)), channels=4, kernel=5, stride=2, pad=2)
    x = b.conv("conv2", x, channels=4, kernel=3, pad=1)
    x = b.conv("conv3", x, channels=4, kernel=3, pad=1, bias=False)
    b.softmax_cross_entropy("loss", b.flatten("flatten", b.global_pool("pool", x)))
    return b.build()


def job(graph: Graph | None = None, **axes: Any) -> Job:
    plain = fake_job(**axes)
    if graph is None:
        return plain
    model = LoadedModel(graph=graph, name=graph.name, source="zoo", file_sha256="")
    return Job(
        model=model,
        request=plain.request,
        environment=plain.environment,
        machine=plain.machine,
        command=("deepstone", "conv", "three"),
    )


def found(wanted: Job) -> tuple[Lab, dict[str, Any]]:
    lab = new_lab()
    run_lab(wanted, EFFORT, lab)
    return lab, lab_report(wanted, lab).to_json()


def timed(report: dict[str, Any], direction: str = "forward", layer: int = 0) -> dict[str, Any]:
    results = report["layers"][layer]["results"]
    return {each["algorithm"]: each for each in results if each["pass"] == direction and each["kind"] == "timed"}


def test_the_best_is_found_and_what_the_mix_would_save(monkeypatch: pytest.MonkeyPatch) -> None:
    set_script(monkeypatch, algorithms={"picked one": 0.004, "faster": 0.001, "never": "too large"}, noise=0.001)
    _, report = found(job(three_layers()))
    assert [layer["name"] for layer in report["layers"]] == ["conv1", "conv2"]
    assert report["layers"][1]["equal"] == ["conv3"]
    assert report["layers"][0]["in_step"] == {"forward": 1, "data": 0, "weight": 1}
    assert report["layers"][1]["in_step"] == {"forward": 2, "data": 2, "weight": 2}
    for layer in report["layers"]:
        assert layer["best"] == dict.fromkeys(PASSES, "faster")
    results = timed(report)
    assert results["picked one"]["picked"]
    assert not results["faster"]["picked"]
    assert results["faster"]["time_s"]["median"] == pytest.approx(0.001, rel=0.01)
    assert results["never"]["time_s"] == results["never"]["relative_error"] == {"absent": "too large"}
    # Forward and weight gradient of three layers, the data gradient of all but the first: 8 runs.
    mix = report["mix"]
    assert mix["picked_s"]["median"] == pytest.approx(8 * 0.004, rel=0.02)
    assert mix["best_s"]["median"] == pytest.approx(8 * 0.001, rel=0.02)
    assert mix["saved_s"]["median"] == pytest.approx(mix["picked_s"]["median"] - mix["best_s"]["median"])
    assert mix["saved_share"]["median"] == pytest.approx(0.75, rel=0.02)
    for part in mix.values():
        assert 0 < part["low"] <= part["median"] <= part["high"]


def test_a_difference_within_the_noise_is_no_better_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    set_script(monkeypatch, algorithms={"picked one": 0.004, "no faster": 0.00399}, noise=0.05)
    _, report = found(job())
    assert report["layers"][0]["best"] == dict.fromkeys(PASSES, "picked one")
    assert report["mix"]["saved_s"]["median"] == report["mix"]["saved_s"]["high"] == 0


def test_timings_of_few_samples_are_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run takes longer than the budget, so it is timed three times."""
    set_script(monkeypatch, algorithms={"endless": 5.0, "quick": 0.001})
    _, report = found(job(phase="forward"))
    assert timed(report)["endless"]["time_s"]["n"] == 3
    (doubt,) = report["doubts"]
    assert doubt["code"] == "few_samples"
    assert doubt["detail"].startswith("1 of 2 timings rest on few samples, the fewest on 3")


def test_few_samples_do_not_show_what_would_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two algorithms of three samples each: the faster is soon the faster by chance."""
    set_script(monkeypatch, algorithms={"endless": 5.0, "long": 4.0})
    _, report = found(job(phase="forward"))
    assert {each["time_s"]["n"] for each in timed(report).values()} == {3}
    assert report["layers"][0]["best"] == {"forward": "endless"}
    mix = report["mix"]
    assert mix["picked_s"]["median"] == pytest.approx(5.0, rel=0.1)
    for part in ("best_s", "saved_s", "saved_share"):
        assert "budget" in mix[part]["absent"]
    assert "is not known" in " ".join(make_figure(as_result(report), None).caption)


def test_forward_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    set_script(monkeypatch, algorithms={"one": 0.002})
    _, report = found(job(three_layers(), phase="forward"))
    assert {each["pass"] for layer in report["layers"] for each in layer["results"]} == {"forward"}
    assert report["mix"]["picked_s"]["median"] == pytest.approx(3 * 0.002, rel=0.05)


def test_references_have_counts_and_errors_but_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    set_script(monkeypatch, algorithms={"one": 0.002})
    _, report = found(job(three_layers()))
    for layer in report["layers"]:
        references = [each for each in layer["results"] if each["kind"] == "reference"]
        assert len(references) == 3 * len(REFERENCES)
        assert all("absent" in each["time_s"] for each in references)
    strided, plain = ({(e["algorithm"], e["pass"]): e for e in layer["results"]} for layer in report["layers"])
    assert "stride 2x2" in strided["numpy fft", "weight"]["flops"]["absent"]
    assert plain["numpy winograd-2x2", "data"]["relative_error"] < 1e-5
    assert 0 < plain["numpy winograd-2x2", "data"]["transform_flops"] < plain["numpy winograd-2x2", "data"]["flops"]
    assert plain["numpy direct", "forward"]["flops"] == 2 * 8 * 4 * 4 * 9 * 16
    assert plain["numpy direct", "forward"]["workspace_bytes"] == 0


@pytest.mark.parametrize("at", ["attempt", "timing"])
@pytest.mark.parametrize("kind", ["segfault", "error"])
def test_an_algorithm_that_takes_the_worker_down_spares_the_others(
    monkeypatch: pytest.MonkeyPatch, at: str, kind: str
) -> None:
    fault = {"at": f"{at} deadly", "kind": kind}
    set_script(monkeypatch, algorithms={"before": 0.002, "deadly": 0.001, "after": 0.004}, fault=fault)
    lab, report = found(job())
    for direction in PASSES:
        results = timed(report, direction)
        told = "SIGSEGV" if kind == "segfault" else "scripted failure"
        assert results["deadly"]["time_s"]["absent"].startswith("crashed: ")
        assert told in results["deadly"]["time_s"]["absent"]
        assert results["before"]["time_s"]["median"] == pytest.approx(0.002, rel=0.05)
        assert results["after"]["time_s"]["median"] == pytest.approx(0.004, rel=0.05)
    assert lab.failures == []


def test_out_of_memory_is_told_and_the_worker_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = {"at": "attempt large", "kind": "memory_error"}
    set_script(monkeypatch, algorithms={"large": 0.001, "small": 0.002}, fault=fault)
    _, report = found(job())
    assert timed(report)["large"]["time_s"]["absent"] == "oom: MemoryError: scripted"
    assert report["layers"][0]["best"]["forward"] == "small"
    assert "was not timed" in report["mix"]["absent"]


def test_a_hang_is_ended_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    set_script(monkeypatch, algorithms={"one": 0.001, "stuck": 0.001}, fault={"at": "attempt stuck", "kind": "hang"})
    wanted, lab = job(phase="forward"), new_lab()
    run_lab(wanted, LabEffort(budget_s=0.05, timeout_s=4), lab)
    results = timed(lab_report(wanted, lab).to_json())
    assert results["stuck"]["time_s"]["absent"].startswith("timeout: ")
    assert "median" in results["one"]["time_s"]


def test_workers_that_keep_dying_end_the_lab_with_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepstone.runner.convolutions.lab._MOST_RESTARTS", 1)
    set_script(monkeypatch, algorithms={"deadly": 0.001, "one": 0.002}, fault={"at": "attempt deadly", "kind": "exit"})
    lab, report = found(job(three_layers()))
    assert "median" in timed(report)["one"]["time_s"]
    assert len(lab.failures) == 5
    assert "workers have ended before their time" in report["failures"][-1]


def test_what_no_backend_can_do_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    set_script(monkeypatch)
    with pytest.raises(JobFailed, match="does not let an algorithm be chosen") as refused:
        found(job())
    assert refused.value.outcome == "unsupported"


def test_reports_of_several_batches_stand_under_their_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    set_script(monkeypatch, algorithms={"one": 0.001})
    jobs = {batch: job(batch=batch, phase="forward") for batch in (2, 4)}
    reports = {batch: lab_report(wanted, found(wanted)[0]) for batch, wanted in jobs.items()}
    result: Any = joined_reports(reports).to_json()
    assert (result["kind"], result["model"], result["schema"]) == ("conv", "small", 1)
    assert list(result["batches"]) == ["2", "4"]
    flops = [timed(result["batches"][each])["one"]["flops"] for each in ("2", "4")]
    assert flops[1] == 2 * flops[0]
    assert joined_reports({2: reports[2]}) is reports[2]


def test_a_bias_makes_no_other_convolution() -> None:
    names = list(equal_convolutions(three_layers(), 8).values())
    assert names == [("conv1",), ("conv2", "conv3")]


def test_a_lab_in_which_nothing_was_tried_says_so() -> None:
    report: Any = lab_report(job(), new_lab()).to_json()
    assert report["device"] == Absent("nothing could be tried").to_json()
    assert report["layers"] == []
    assert "absent" in report["mix"]
