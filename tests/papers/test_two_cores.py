"""Figures of what was measured on two cores in frameworks of eight years, and is kept with the sources."""

from __future__ import annotations

from pathlib import Path

from deepstone.papers.catalog import load
from deepstone.papers.elsewhere import read_elsewhere
from deepstone.papers.evidence import evidence_of
from deepstone.papers.judge import judged_paper

RUNS = Path(__file__).resolve().parents[2] / "results" / "two-cores" / "eight-years.jsonl"


def test_engines_are_compared_in_training_and_each_framework_once() -> None:
    records, _ = read_elsewhere(RUNS)
    phases = {record["id"]: record["workload"]["phase"] for record in records}
    charts = {
        chart["name"]: chart for chart in judged_paper(load("awan2017"), evidence_of(records, []), scale=None)["charts"]
    }
    points = [point for series in charts["awan2017-fig3"]["series"] for point in series["points"]]
    assert {phases[run] for point in points for run in point["runs"]} == {"train"}
    assert len({point["x"] for point in points}) == len(points) > 8
    assert any("caffe" in point["x"] for point in points)
