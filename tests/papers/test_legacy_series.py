"""Legacy frameworks in the papers' figures: each becomes a series by itself, two builds of a version too."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from papers_kit import apply, evidence_of, layers, quantity

from deepstone.papers.evidence import Evidence
from deepstone.papers.figures.chart import ChartDraft, FigureBuilder
from deepstone.papers.figures.layers import LayerTimes, OperationByFramework
from deepstone.papers.figures.machines import PhasesByMachine, SetupsByMachine

sys.path.append(str(Path(__file__).parents[1] / "analysis"))

from measured_runs import rounds

FRAMEWORKS = {
    "torch": "torch@2.13.0",
    "torch@1.1.0": "torch@1.1.0",
    "tensorflow@1.12.0": "tensorflow@1.12.0",
    "tensorflow@1.12.0-intel": "tensorflow@1.12.0",
    "cntk": "cntk@2.7",
    "theano": "theano@1.0.5",
}
PAPER = ["cntk", "tensorflow", "theano", "torch"]
NAMES = {"torch 2.13.0", "torch 1.1.0", "tensorflow 1.12.0", "tensorflow 1.12.0-intel", "cntk 2.7", "theano 1.0.5"}


def built(builder: type[FigureBuilder], parameters: dict[str, Any], evidence: Evidence) -> ChartDraft:
    return msgspec.convert(parameters, builder).chart(evidence)


def finding(asked: str, effective: str) -> dict[str, Any]:
    found = layers({"conv1": (0.1, 0.2), "relu1": (0.01, 0.02)}, model="alexnet-kim", framework=effective)
    found["setup"]["requested"] = {"framework": asked}
    return found


def findings() -> list[tuple[str, dict[str, Any]]]:
    return [(asked, finding(asked, effective)) for asked, effective in FRAMEWORKS.items()]


def records() -> list[Any]:
    return [
        record
        for asked, effective in FRAMEWORKS.items()
        for record in rounds(
            10.0,
            11.0,
            framework=asked,
            version=effective.partition("@")[2],
            batch=16,
            effective={"framework": effective, "engine": "onednn" if "torch" in asked else "native"},
        )
    ]


def test_figure_7_of_kim2017_has_them_all() -> None:
    parameters = {"models": ["alexnet-kim"], "ops": ["conv"], "parts": ["forward", "backward"]}
    chart = built(LayerTimes, parameters, evidence_of([], findings()))
    assert set(chart.series) == NAMES
    assert list(chart.series) == sorted(chart.series)


def test_table_4_of_kim2017_has_them_all() -> None:
    parameters = {"models": ["alexnet-kim"], "operations": {"ReLU activation": "relu1"}}
    chart = built(OperationByFramework, parameters, evidence_of([], findings()))
    assert {name.split(",")[0] for name in chart.series} == NAMES


def test_a_time_that_holds_more_than_the_layer_is_neither_drawn_nor_judged() -> None:
    given = findings()
    _, slow = given[-1]
    slow["layers"][1]["isolated"] |= {"forward_s": quantity(9.9), "beside": "a copy of what the layer is given"}
    evidence = evidence_of([], given)
    chart = built(
        OperationByFramework, {"models": ["alexnet-kim"], "operations": {"ReLU activation": "relu1"}}, evidence
    )
    assert {series.split(",")[0] for series in chart.series} == NAMES - {"theano 1.0.5"}
    assert chart.gaps[0].why == "its time holds a copy of what the layer is given"
    answer = apply(
        "operation across frameworks",
        evidence,
        2.0,
        operations={"ReLU": {"models": ["alexnet-kim"], "layer": "relu1", "published": 2.0}},
        frameworks=PAPER,
    )
    assert answer.measured is not None
    assert answer.measured.median == pytest.approx(1.0)
    assert "theano 1.0.5 is left out, since its time holds a copy of what the layer is given" in answer.why


def test_figure_5_of_awan2017_does_not_merge_versions() -> None:
    chart = built(PhasesByMachine, {"models": ["alexnet-owt"], "precision": "fp32"}, evidence_of(records(), []))
    named = [str(point.x).split(", ")[2].split()[:2] for point in chart.series["forward"]]
    assert len(named) == len(FRAMEWORKS)
    assert ["tensorflow", "1.12.0-intel"] in named


ENGINES = {
    "models": ["alexnet-owt"],
    "precision": "fp32",
    "axis": "engine",
    "values": {"native": "default", "onednn": "optimized"},
}


def test_figure_3_of_awan2017_tells_frameworks_apart() -> None:
    chart = built(SetupsByMachine, ENGINES, evidence_of(records(), []))
    places = [point.x for points in chart.series.values() for point in points]
    assert len(places) == len(set(places)) == len(FRAMEWORKS)


def test_figure_3_of_awan2017_does_not_take_another_precision_for_an_engine() -> None:
    in_bf16 = rounds(99.0, 99.0, batch=16, effective={"engine": "onednn", "precision": "bf16-mixed"})
    charts = [built(SetupsByMachine, ENGINES, evidence_of(given, [])) for given in (records(), [*records(), *in_bf16])]
    assert charts[0].series == charts[1].series
