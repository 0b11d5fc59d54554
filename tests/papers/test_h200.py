"""Verdicts on what was measured on an H200 and is kept with the sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deepstone.papers.evidence import Evidence, evidence_of
from deepstone.papers.gather import read_elsewhere
from deepstone.papers.judge import judged_paper
from deepstone.papers.paper import load_paper

RESULTS = Path(__file__).resolve().parents[2] / "results" / "h200"


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    """Of the files that these tests were written for; others may be added to the folder."""
    names = (
        "runs.jsonl",
        "kim2017.jsonl",
        "jax.jsonl",
        "conv-alexnet-kim-fp32.json",
        "conv-alexnet-kim.json",
        "layers-alexnet-kim.json",
        "layers-alexnet-owt.json",
        "layers-resnet50.json",
    )
    read = [read_elsewhere(RESULTS / name) for name in names]
    return evidence_of(
        [record for records, _ in read for record in records], [each for _, some in read for each in some]
    )


@pytest.fixture(scope="module")
def claims(evidence: Evidence) -> dict[str, Any]:
    papers = [judged_paper(load_paper(name), evidence, scale=None).to_json() for name in ("kim2017", "awan2017")]
    return {claim["id"]: claim for paper in papers for claim in paper["claims"]}


def test_runs_and_findings_are_of_one_machine(evidence: Evidence) -> None:
    assert [place.name for place in evidence.places] == ["NVIDIA H200"]


def test_every_verdict_carries_its_number_and_what_it_rests_on(claims: dict[str, Any]) -> None:
    for claim in claims.values():
        if claim["verdict"] != "not testable here":
            assert claim["measured"]["low"] <= claim["measured"]["median"] <= claim["measured"]["high"]
            assert claim["setup"]
            assert claim["runs"] or claim["findings"] or claim["machine"] == "none, counted"


def test_the_layout_no_longer_matters_to_alexnet_in_fp32(claims: dict[str, Any]) -> None:
    assert claims["kim-2"]["verdict"] == "no longer matters"
    assert "with torch" in claims["kim-2"]["why"]


def test_options_alone_gain_less_than_they_did(claims: dict[str, Any]) -> None:
    assert claims["kim-1"]["verdict"] == "weaker"
    assert "paired within a round" in claims["kim-1"]["why"]
    assert "precision would add 3.75 (3.57 – 3.95)" in claims["kim-1"]["why"]
    assert "with the options together 3.92" in claims["kim-1"]["why"]


def test_the_choice_of_algorithm_gives_less_than_the_four_times_that_the_paper_exceeds(claims: dict[str, Any]) -> None:
    assert claims["kim-3"]["verdict"] == "weaker"
    assert claims["kim-3"]["measured"]["median"] > 3.2


def test_fft_no_longer_leads_in_the_papers_own_set(claims: dict[str, Any]) -> None:
    """Which has Winograd on 5x5 filters; the order among those with a small error is another, and said beside."""
    assert claims["kim-6"]["verdict"] == "reversed"
    assert claims["kim-6"]["measured"]["median"] == pytest.approx(0.662, abs=0.001)
    assert claims["kim-6"]["setup"].count("convolution lab in fp32") == 4
    assert "without Winograd on conv2, at batch 32 the fastest other takes 1.56" in claims["kim-6"]["why"]
    assert "256: 1.04" in claims["kim-6"]["why"]


def test_the_memory_of_fft_depends_on_which_gemm_it_is_compared_with(claims: dict[str, Any]) -> None:
    measured = claims["kim-4"]["measured"]
    assert claims["kim-4"]["verdict"] == "undecided"
    assert measured["low"] == pytest.approx(0.77, abs=0.005)
    assert measured["median"] == pytest.approx(1.16, abs=0.005)
    assert measured["high"] == pytest.approx(1.57, abs=0.005)


def test_both_findings_about_the_heuristic_are_shown(claims: dict[str, Any]) -> None:
    """They are contrary, and the verdict is that of the paper's own test."""
    assert claims["kim-7"]["verdict"] == "weaker"
    assert claims["kim-7"]["measured"]["median"] == pytest.approx(1.088, abs=0.001)
    assert "benchmark against" in claims["kim-7"]["setup"]
    assert "as the paper compared them: 1.09" in claims["kim-7"]["why"]
    assert (
        "heuristic call, convolutions alone: reversed, the convolutions of a step as picked take 1.83"
        in (claims["kim-7"]["why"])
    )
    assert claims["kim-7"]["runs"]
    assert claims["kim-7"]["findings"] == ["conv-alexnet-kim-fp32.json"]


def test_the_gradient_of_the_image_is_seen_in_steps_and_in_conv1(claims: dict[str, Any]) -> None:
    assert claims["kim-12"]["verdict"] == "holds"
    assert (
        "conv1 backward alone, where the paper saw it: holds, backward of conv1 takes 2.05" in claims["kim-12"]["why"]
    )


def test_direct_convolution_is_gone(claims: dict[str, Any]) -> None:
    assert claims["kim-15"]["verdict"] == "not testable here"
    assert "CUDNN_STATUS_NOT_SUPPORTED" in claims["kim-15"]["why"]


def test_copies_reach_more_of_the_bandwidth(claims: dict[str, Any]) -> None:
    """89 % is not two thirds: less is missing than the paper found."""
    assert claims["awan-8"]["verdict"] == "weaker"
    assert 0.8 < claims["awan-8"]["measured"]["median"] < 1


def test_claims_about_a_cpu_need_one(claims: dict[str, Any]) -> None:
    for id in ("awan-2", "awan-3", "awan-4", "awan-7"):
        assert claims[id]["verdict"] == "not testable here"


def test_charts_hold_points_with_intervals(evidence: Evidence) -> None:
    for name in ("kim2017", "awan2017"):
        for chart in judged_paper(load_paper(name), evidence, scale=None).to_json()["charts"]:
            assert chart["kind"] == "chart"
            for series in chart["series"]:
                assert len({str(point["x"]) for point in series["points"]}) == len(series["points"]), chart["name"]
                for point in series["points"]:
                    assert isinstance(point["y"], float) or point["y"]["low"] <= point["y"]["high"]
