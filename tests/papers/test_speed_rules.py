"""Rules that rest on runs: setups against each other, devices against each other."""

from __future__ import annotations

from typing import Any

import pytest
from measured_runs import rounds, run
from papers_kit import apply

from deepstone.measure.statistics import Quantity
from deepstone.papers.evidence import evidence_of
from deepstone.records.schema import Record

LAYOUT: dict[str, Any] = {
    "models": ["alexnet-owt"],
    "a": {"layout": "nchw"},
    "b": {"layout": "nhwc"},
    "differ_in": ["layout"],
}


def ratio(records: list[Record], **parameters: Any) -> Any:
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
    assert "tell too little" in answer.why


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
        records, a={}, b={}, b_default=["layout"], differ_in=["layout"], best=True, beyond=["precision"], published=2.0
    )
    assert answer.word == "no longer matters"
    assert "with precision free too, 4.00" in answer.why


def test_equal() -> None:
    records = [*rounds(100, 101, 99, algorithm="benchmark"), *rounds(101, 100, 100, algorithm="heuristic")]
    sides: dict[str, Any] = {"a": {"algorithm": "benchmark"}, "b": {"algorithm": "heuristic"}}
    assert ratio(records, **sides, differ_in=["algorithm"], judged="equal").word == "holds"


def test_doubts_are_told() -> None:
    slow = rounds(100, 101, 102, layout="nhwc", doubts=["throttling"])
    assert "doubts: throttling" in ratio([*rounds(200, 202, 204, layout="nchw"), *slow]).why


def devices(cores: int, **parameters: Any) -> Any:
    cpu, gpu = run(100, machine="node"), run(3000, machine="box", gpu=True)
    cpu["environment"]["machine"]["cpu"]["usable_cores"] = cores
    given = {"models": ["alexnet-owt"], "over": "gpu", "least_cores": 16, **parameters}
    return apply("device ratio", evidence_of([cpu, gpu], []), 1.18, **given)


def test_a_gpu_over_a_many_core_cpu() -> None:
    answer = devices(68)
    assert answer.word == "holds"
    assert answer.measured.median == pytest.approx(30)
    assert "GPU of box" in answer.why


def test_a_cpu_of_two_cores_does_not_test_a_claim_about_many() -> None:
    answer = devices(2)
    assert answer.word == "not testable here"
    assert isinstance(answer.measured, Quantity)
    assert "2 cores" in answer.why


def test_only_the_named_gpus_count() -> None:
    assert devices(68, gpus=["K80"]).word == "not testable here"
    assert devices(68, over="cpu", gpus=["box"]).word == "reversed"
