"""Rules that rest on runs: setups against each other, devices against each other."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from factory import JsonRecord
from measured_runs import rounds, run
from papers_kit import apply, evidence_of

from deepstone.measure.statistics import Quantity
from deepstone.papers.gather import read_elsewhere
from deepstone.papers.judge import judged_claim
from deepstone.papers.paper import load_paper
from deepstone.results.identity import canonical_sha256

H200 = Path(__file__).resolve().parents[2] / "results" / "h200"

LAYOUT: dict[str, Any] = {
    "models": ["alexnet-owt"],
    "a": {"layout": "nchw"},
    "b": {"layout": "nhwc"},
    "differ_in": ["layout"],
}


def ratio(records: list[JsonRecord], **parameters: Any) -> Any:
    published = parameters.pop("published", 1.15)
    return apply("speed ratio", evidence_of(records, []), published, **{**LAYOUT, **parameters})


def test_rounds_are_paired() -> None:
    """The second round is half as fast on both sides; that must not widen the interval."""
    records = [*rounds(120, 60, 121, layout="nchw"), *rounds(100, 50, 101, layout="nhwc")]
    answer = ratio(records)
    assert answer.word == "holds"
    assert answer.measured.median == pytest.approx(1.2, rel=0.01)
    assert len(answer.runs) == 6
    assert "3 rounds" in answer.why
    assert "batch 32" in answer.setup


def test_reversed() -> None:
    answer = ratio([*rounds(100, 101, 102, layout="nchw"), *rounds(200, 202, 204, layout="nhwc")])
    assert answer.word == "reversed"


def test_single_processes_measured_apart_have_a_wider_interval() -> None:
    """5 % between two processes is nothing, however narrow the interval of each."""
    answer = ratio([run(105, layout="nchw"), run(100, layout="nhwc")])
    assert isinstance(answer.measured, Quantity)
    assert answer.measured.low < 1
    assert answer.word == "undecided"


def test_what_differs_in_more_is_not_compared() -> None:
    answer = ratio([run(105, layout="nchw", precision="bf16"), run(100, layout="nhwc")])
    assert answer.word == "not testable here"
    assert "layout" in answer.why


def test_what_contrasts_refuse_is_told() -> None:
    few = [run(105, layout="nchw"), run(100, layout="nhwc")]
    for record in few:
        record["summary"]["samples_per_s"]["n"] = 1  # type: ignore[typeddict-item]
    answer = ratio(few)
    assert answer.word == "not testable here"
    assert "too little" in answer.why


def test_the_best_case_is_the_best_shown() -> None:
    """Not the highest median: a single wild run must not win."""
    records = [
        *rounds(100, 101, 99),
        *rounds(150, 151, 149, layout="nhwc"),
        *rounds(80, 300, 160, compile="default"),
    ]
    options = ["layout", "compile"]
    answer = ratio(records, a={}, b={}, b_default=options, differ_in=options, best=True, published=2.0)
    assert answer.measured.median == pytest.approx(1.5, rel=0.01)
    assert "layout=nhwc" in answer.setup
    assert answer.word == "weaker"


def test_what_more_freedom_gives_is_said_and_not_judged() -> None:
    records = [*rounds(100, 101, 99), *rounds(101, 102, 100, layout="nhwc"), *rounds(400, 404, 396, precision="bf16")]
    answer = ratio(
        records,
        a={},
        b={},
        b_default=["layout"],
        differ_in=["layout"],
        best=True,
        beyond={"precision": "fp32"},
        published=2.0,
    )
    assert answer.word == "no longer matters"
    assert "precision would add 4.00" in answer.why


def test_equal() -> None:
    records = [*rounds(100, 101, 99, algorithm="benchmark"), *rounds(101, 100, 100, algorithm="heuristic")]
    sides: dict[str, Any] = {"a": {"algorithm": "benchmark"}, "b": {"algorithm": "heuristic"}}
    assert ratio(records, **sides, differ_in=["algorithm"], judged="equal").word == "holds"


def test_doubts_are_told() -> None:
    slow = rounds(100, 101, 102, layout="nhwc", doubts=["throttling"])
    assert "doubts: throttling" in ratio([*rounds(200, 202, 204, layout="nchw"), *slow]).why


DEVICES: dict[str, Any] = {"models": ["alexnet-owt"], "over": "gpu", "least_cores": 16, "far": 1.5}


def on_cpu(images_per_s: float, *, cores: int, machine: str = "node", **settings: Any) -> JsonRecord:
    record = run(images_per_s, machine=machine, **settings)
    record["environment"]["machine"]["cpu"]["usable_cores"] = cores
    return record


def devices(*cpus: JsonRecord, gpu: float = 3000.0, **parameters: Any) -> Any:
    records = [*cpus, run(gpu, machine="box", gpu=True)]
    return apply("device ratio", evidence_of(records, []), 1.18, bound="up to", **{**DEVICES, **parameters})


def test_a_gpu_far_ahead_of_a_many_core_cpu_does_not_confirm_a_small_lead() -> None:
    answer = devices(on_cpu(100, cores=68))
    assert answer.word == "reversed"
    assert answer.measured.median == pytest.approx(30)
    assert "GPU of box" in answer.why
    assert "machine=" not in answer.setup


def test_a_gpu_a_little_ahead_of_a_many_core_cpu() -> None:
    of_both = {"interval": "across launches", "share": 0.001}
    cpu, gpu = run(100, machine="node", **of_both), run(115, machine="box", gpu=True, **of_both)
    cpu["environment"]["machine"]["cpu"]["usable_cores"] = 68
    assert apply("device ratio", evidence_of([cpu, gpu], []), 1.18, bound="up to", **DEVICES).word == "holds"


def test_a_cpu_of_two_cores_does_not_test_a_claim_about_many() -> None:
    answer = devices(on_cpu(100, cores=2))
    assert answer.word == "not testable here"
    assert isinstance(answer.measured, Quantity)
    assert "2 cores" in answer.why


def test_a_small_cpu_does_not_stand_in_the_way_of_a_large_one() -> None:
    """The ratio to the small one is larger, but says nothing about the claim."""
    answer = devices(on_cpu(10, cores=2, machine="laptop"), on_cpu(2900, cores=68))
    assert answer.measured.median == pytest.approx(3000 / 2900)
    assert "laptop" not in answer.setup


def test_other_work_is_not_compared_between_devices() -> None:
    """Neither inference, nor native kernels, nor another precision that the device chose by itself."""
    for other in ({"phase": "forward"}, {"engine": "native"}, {"effective": {"precision": "bf16"}}):
        assert devices(on_cpu(100, cores=68, **other)).word == "not testable here"


def test_runs_of_both_devices_that_tell_too_little_are_named_as_the_reason() -> None:
    assert "too little" in devices(on_cpu(100, cores=68, samples=1)).why


def test_only_the_named_gpus_count() -> None:
    assert devices(on_cpu(100, cores=68), gpus=["K80"]).word == "not testable here"
    assert devices(on_cpu(100, cores=68), over="cpu", gpus=["box"]).word == "reversed"


def as_on_a_cpu(record: JsonRecord, *, speed_ratio: float) -> JsonRecord:
    """The record of a GPU, as if the same work had run on a CPU of 68 cores at another speed."""
    twin: Any = copy.deepcopy(record)
    twin["setup"]["requested"]["device"] = "cpu"
    twin["identity"]["requested"]["device"] = "cpu"
    twin["setup"]["effective"]["device"] = {"value": "cpu", "source": "observed"}
    twin["environment"]["machine"]["cpu"]["usable_cores"] = 68
    rate = twin["summary"]["samples_per_s"]
    twin["summary"]["samples_per_s"] = {
        key: value if key == "n" else value * speed_ratio for key, value in rate.items()
    }
    twin["job"] = canonical_sha256(twin["identity"])
    twin["id"] = f"{twin['job'][:20]}-1"
    return twin


@pytest.mark.parametrize(("speed_ratio", "word"), [(0.01, "reversed"), (1.0, "undecided"), (2.0, "reversed")])
@pytest.mark.parametrize(("file", "framework"), [("runs.jsonl", "torch 2.11.0"), ("jax.jsonl", "jax 0.11.2")])
def test_a_recorded_gpu_against_a_cpu(file: str, framework: str, speed_ratio: float, word: str) -> None:
    """What ran is named, whichever framework it was; and 100 times ahead is no lead of 18 %."""
    records: list[Any] = [record.to_json() for record in read_elsewhere(H200 / file)[0]]
    alexnet = next(
        record
        for record in records
        if record["workload"]["model"] == "alexnet-kim" and record["setup"]["requested"]["precision"] == "fp32"
    )
    [claim] = [claim for claim in load_paper("awan2017").claims if claim.id == "awan-3"]
    twin = as_on_a_cpu(alexnet, speed_ratio=speed_ratio)
    [verdict] = judged_claim(claim, evidence_of([alexnet, twin], []))
    assert verdict.answer.word == word
    assert verdict.answer.setup.count(framework) == 2
    assert ("torch" in verdict.answer.setup) == ("torch" in framework)
