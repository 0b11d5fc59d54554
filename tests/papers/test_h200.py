"""Verdicts on what was measured on an H200 and is kept with the sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deepstone.papers.catalog import load
from deepstone.papers.elsewhere import read_elsewhere
from deepstone.papers.evidence import Evidence, evidence_of
from deepstone.papers.judge import judged_paper

RESULTS = Path(__file__).resolve().parents[2] / "results" / "h200"


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    """Of the files that these tests were written for; others may be added to the folder."""
    names = (
        "runs.jsonl",
        "kim2017.jsonl",
        "jax.jsonl",
        "conv-alexnet-kim-fp32.json",
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
    papers = [judged_paper(load(name), evidence, scale=None) for name in ("kim2017", "awan2017")]
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


def test_the_choice_of_algorithm_still_matters_in_fp32(claims: dict[str, Any]) -> None:
    assert claims["kim-3"]["verdict"] == "holds"
    assert claims["kim-3"]["measured"]["median"] > 3.2


def test_fft_leads_only_among_algorithms_that_compute_alike(claims: dict[str, Any]) -> None:
    assert claims["kim-6"]["verdict"] == "holds"
    assert claims["kim-6"]["setup"].count("convolution lab in fp32") == 4
    assert "if errors above 1e-04 were allowed, Winograd would be the fastest" in claims["kim-6"]["why"]


def test_the_heuristic_misses(claims: dict[str, Any]) -> None:
    assert claims["kim-7"]["verdict"] == "weaker"
    assert "benchmark against" in claims["kim-7"]["setup"]


def test_direct_convolution_is_gone(claims: dict[str, Any]) -> None:
    assert claims["kim-15"]["verdict"] == "not testable here"
    assert "CUDNN_STATUS_NOT_SUPPORTED" in claims["kim-15"]["why"]


def test_copies_reach_more_of_the_bandwidth(claims: dict[str, Any]) -> None:
    assert claims["awan-8"]["verdict"] == "holds"
    assert 0.8 < claims["awan-8"]["measured"]["median"] < 1


def test_claims_about_a_cpu_need_one(claims: dict[str, Any]) -> None:
    for id in ("awan-2", "awan-3", "awan-4", "awan-7"):
        assert claims[id]["verdict"] == "not testable here"


def test_charts_hold_points_with_intervals(evidence: Evidence) -> None:
    for name in ("kim2017", "awan2017"):
        for chart in judged_paper(load(name), evidence, scale=None)["charts"]:
            assert chart["kind"] == "chart"
            for series in chart["series"]:
                assert len({str(point["x"]) for point in series["points"]}) == len(series["points"]), chart["name"]
                for point in series["points"]:
                    assert isinstance(point["y"], float) or point["y"]["low"] <= point["y"]["high"]
