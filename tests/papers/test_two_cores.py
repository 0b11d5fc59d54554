"""Figures of what was measured on two cores in frameworks of eight years, and is kept with the sources."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from factory import typed_records

from deepstone.measure.statistics import Quantity
from deepstone.papers.answer import Answer
from deepstone.papers.evidence import Named, evidence_of
from deepstone.papers.gather import read_elsewhere
from deepstone.papers.judge import PlaceVerdict, judged_claim, judged_paper
from deepstone.papers.paper import load_paper
from deepstone.results.codec import as_bare_finding

RESULTS = Path(__file__).resolve().parents[2] / "results"
RUNS = RESULTS / "two-cores" / "eight-years.jsonl"


def test_engines_are_compared_in_training_and_each_framework_once() -> None:
    records, _ = read_elsewhere(RUNS)
    phases = {record.id: record.workload.phase for record in records}
    judged = judged_paper(load_paper("awan2017"), evidence_of(records, []), scale=None).to_json()
    charts = {chart["name"]: chart for chart in judged["charts"]}
    points = [point for series in charts["awan2017-fig3"]["series"] for point in series["points"]]
    assert {phases[run] for point in points for run in point["runs"]} == {"train"}
    assert len({point["x"] for point in points}) == len(points) > 8
    assert any("caffe" in point["x"] for point in points)


@pytest.mark.parametrize("nodes", [1, 2])
def test_memory_nodes_do_not_tell_kinds_of_memory(nodes: int) -> None:
    """Two sockets are two nodes of the same memory: nothing about fast memory follows from their number."""
    records, _ = read_elsewhere(RUNS)
    contents: list[Any] = [record.to_json() for record in records]
    for content in contents:
        content["environment"]["machine"]["cpu"]["numa_nodes"] = nodes
    records = typed_records(contents)
    [claim] = [claim for claim in load_paper("awan2017").claims if claim.id == "awan-5"]
    [verdict] = judged_claim(claim, evidence_of(records, []))
    assert verdict.answer.word == "not testable here"
    assert "axis" in verdict.answer.why
    assert str(nodes) not in verdict.answer.why


def judged(id: str, findings: list[Named]) -> PlaceVerdict:
    [claim] = [claim for claim in load_paper("awan2017").claims if claim.id == id]
    return judged_claim(claim, evidence_of([], findings))[0]


def test_convolutions_are_judged_by_their_largest_share_whichever_files_are_given() -> None:
    """`quick` has another AlexNet at batch 4, where the dense layers take most of the time."""
    _, some = read_elsewhere(RESULTS / "two-cores" / "kim2017.jsonl")
    _, others = read_elsewhere(RESULTS / "two-cores" / "quick.jsonl")
    alone = judged("awan-1", some)
    for findings in ([*some, *others], [*others, *some], [*some, *others][::-1]):
        together = judged("awan-1", findings)
        assert (together.answer.word, together.answer.setup) == (alone.answer.word, alone.answer.setup)
        assert together.answer.measured == alone.answer.measured
    assert alone.answer.word == "holds"
    assert judged("awan-1", others).answer.word == "undecided"


def test_layers_of_a_cpu_are_not_compared_with_those_of_a_gpu_in_another_precision() -> None:
    """The H200 computed convolutions in TF32; a made-up CPU gives the same times in fp32."""
    [(_, finding)] = read_elsewhere(RESULTS / "h200" / "layers-alexnet-owt.json")[1]
    assert finding.parts is not None
    on_gpu: Any = json.loads(json.dumps(finding.parts["torch"].to_json()))
    for precision in ("fp32", "tf32-conv"):
        on_cpu: Any = copy.deepcopy(on_gpu)
        on_cpu["setup"]["effective"]["device"]["value"] = "cpu"
        on_cpu["setup"]["effective"]["precision"]["value"] = precision
        answer = judged("awan-7", [("gpu", as_bare_finding(on_gpu)), ("cpu", as_bare_finding(on_cpu))]).answer
        assert (answer.word == "not testable here") == (precision == "fp32"), answer


def answer_that_holds(id: str, median: float) -> Answer:
    """The answer to a claim of kim2017, which must hold with this ratio."""
    claim = load_paper("kim2017").claim(id)
    assert claim is not None
    [verdict] = judged_claim(claim, evidence_of(*read_elsewhere(RUNS.with_name("kim2017.jsonl"))))
    assert verdict.answer.word == "holds"
    assert isinstance(verdict.answer.measured, Quantity)
    assert verdict.answer.measured.median == pytest.approx(median, abs=0.01)
    return verdict.answer


def test_an_undecided_test_does_not_block_one_that_decides() -> None:
    """Whole steps cannot show the gradient of the image on two cores; conv1's backward can."""
    answer = answer_that_holds("kim-12", 5.0)
    assert "whole steps: undecided, " in answer.why
    assert "(0.957 – 1.35)" in answer.why


def test_small_kernels_are_compared_in_the_papers_frameworks_at_equal_threads() -> None:
    """Not in Chainer on NumPy, nor in MXNet and Paddle, which took one of the two cores."""
    answer = answer_that_holds("kim-8", 3.38)
    assert "with 2 threads" in answer.setup
    for name in ("chainer", "jax", "mxnet", "paddle"):
        assert name not in answer.why
