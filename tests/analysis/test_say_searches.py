"""What a search found in another framework comes first in a report, and nothing that it did not prove."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.analysis.statements import statements
from deepstone.results.codec import as_finding, as_record
from deepstone.results.findings import Finding
from deepstone.results.record import Record
from deepstone.results.searched import Searched
from deepstone.results.tune import SameTraining, Tuned, TuneObjective

FILE = Path(__file__).parents[2] / "results" / "h200" / "tune-vgg16.jsonl"


def of_vgg16() -> tuple[list[Record], Finding, Tuned]:
    results = [json.loads(line) for line in FILE.read_text().splitlines()]
    finding = next(as_finding(each) for each in results if each.get("kind") == "tune")
    assert isinstance(finding.content, Tuned)
    return [as_record(each) for each in results if "samples" in each], finding, finding.content


def test_it_comes_first_with_its_ratio_its_evidence_and_what_it_gives_up() -> None:
    records, finding, found = of_vgg16()
    first = statements(records, [finding], searched=Searched.of([found]))[0]
    assert first.ratio == found.ratio
    assert first.findings == [finding.id]
    assert set(first.runs) == {*found.best.runs, *found.default.runs}
    assert first.advice is not None
    assert first.advice.startswith("Use framework=jax precision=bf16-mixed: 3.60x (3.58 – 3.62) the default")
    assert "activations in bf16" in first.advice


def test_of_two_searches_for_the_same_the_newest_counts() -> None:
    records, finding, _found = of_vgg16()
    later = replace(finding, id="f" * 20 + "-1")
    said = [each for each in statements(records, [finding, later]) if each.findings]
    assert [each.findings for each in said] == [[later.id]]


def _unproven(found: Tuned) -> Tuned:
    assert isinstance(found.same, SameTraining)
    return replace(found, same=replace(found.same, ok=False))


def _anything_goes(found: Tuned) -> Tuned:
    assert isinstance(found.same, SameTraining)
    return replace(found, same=replace(found.same, level="any"))


@pytest.mark.parametrize(
    "change",
    [
        _unproven,
        _anything_goes,
        lambda found: replace(found, same=Absent("the time ran out")),
        lambda found: replace(found, answer="not separable"),
        lambda found: replace(found, objective=TuneObjective(name="energy", slowdown=None)),
        lambda found: replace(found, best=replace(found.best, setup={"batch": 128, "precision": "bf16-mixed"})),
    ],
    ids=["unproven", "any", "not checked", "not better", "of energy", "in the same framework"],
)
def test_nothing_is_said_of_what_is_not_shown_to_be_faster_and_the_same(change: Callable[[Tuned], Tuned]) -> None:
    records, finding, found = of_vgg16()
    said = statements(records, [replace(finding, content=change(found))])
    assert not any(each.advice and "framework=jax" in each.advice for each in said)
