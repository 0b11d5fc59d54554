"""Results are read into types and written back as they were; what is wrong is said with its place."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from factory import make_record, put

from deepstone.absent import Absent
from deepstone.errors import RefusedInputError
from deepstone.results import codec
from deepstone.results.convolutions import ConvolutionLab
from deepstone.results.doubt import Doubt
from deepstone.results.findings import KINDS, Finding
from deepstone.results.identity import canonical_job, canonical_json, job_id
from deepstone.results.layers import LayerTable
from deepstone.results.quantity import ONE_SAMPLE, Quantity
from deepstone.results.record import Record

PUBLISHED = Path(__file__).resolve().parents[2] / "results"


def published() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(PUBLISHED.glob("**/*.json*")):
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        for number, line in enumerate(lines, start=1):
            yield f"{path.name} {number}", json.loads(line)


def decoded(content: dict[str, Any]) -> Record | Finding | None:
    if "kind" not in content:
        return codec.as_record(content)
    if content["kind"] not in KINDS:
        return None
    return codec.as_finding(content) if "task" in content else codec.as_bare_finding(content)


def test_everything_published_is_read_and_written_back_byte_for_byte() -> None:
    seen = 0
    for name, content in published():
        result = decoded(content)
        if result is not None:
            seen += 1
            assert codec.encode(result).decode() == canonical_json(content), name
    assert seen > 200


def test_a_record_is_an_object() -> None:
    record = next(codec.as_record(content) for name, content in published() if name == "runs.jsonl 1")
    assert not isinstance(record.summary, Absent)
    assert record.summary.step_s.low <= record.summary.step_s.median <= record.summary.step_s.high
    assert record.job == job_id(record.identity)
    assert canonical_job(record) != record.job, "published before identities left out defaults"


def test_a_finding_has_the_content_of_its_kind() -> None:
    found = [each for _, content in published() if isinstance(each := decoded(content), Finding)]
    leaves = [leaf for each in found for leaf in each.leaves()]
    assert {type(leaf.content) for leaf in leaves if leaf.kind == "conv"} == {ConvolutionLab}
    assert {type(leaf.content) for leaf in leaves if leaf.kind == "layers"} == {LayerTable}
    assert any(each.parts for each in found)


def with_place(place: str, value: object) -> Any:
    steps = [int(step) if step.isdigit() else step for step in place.split(".")]
    return put(copy.deepcopy(make_record()), steps, value)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("summary.step_s.low", "x", "summary.step_s.low: must be a finite number, not 'x'"),
        ("summary.step_s.low", 1e9, "summary.step_s: low <= median <= high does not hold"),
        ("summary.step_s.mean", 1.0, "summary.step_s.mean: is not a known key; did you mean median?"),
        ("summary.interval", "both", "summary.interval: must be one of within process, across launches, not 'both'"),
        ("setup.effective.layout.source", "guessed", "setup.effective.layout.source: must be one of observed, set"),
        ("setup.effective.layout.value", [], "setup.effective.layout.value: must be text, a number, true or false"),
        ("samples.launches.0.ranks.0.blocks.0.step_s.3", "x", "samples.launches[0].ranks[0].blocks[0].step_s[3]: must"),
        ("memory.host_peak_bytes", 1.5, "memory.host_peak_bytes: must be a whole number, not 1.5"),
        ("doubts.0.code", "bad_mood", "doubts[0].code: must be one of cpu_steal"),
        ("job", "ABC", "job: must be 64 hexadecimal digits, not 'ABC'"),
        ("cost.flops", -1, "cost.flops: must be a whole number of at least 0, not -1"),
        ("energy", {"joules": 1}, "energy.joules_per_step: is missing"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(place: str, value: object, message: str) -> None:
    with pytest.raises(RefusedInputError, match=re.escape(message)):
        codec.as_record(with_place(place, value))


def test_one_sample_has_no_interval_whichever_version_wrote_it() -> None:
    early = codec.convert({"median": 2.0, "low": 2.0, "high": 2.0, "n": 1}, Quantity)
    assert (early.no_interval, early.low, early.high) == (ONE_SAMPLE, -math.inf, math.inf)
    assert early.to_json() == {"median": 2.0, "low": 2.0, "high": 2.0, "n": 1}
    now = Quantity.without_interval(2.0)
    assert now.to_json() == {"median": 2.0, "low": {"absent": ONE_SAMPLE}, "high": {"absent": ONE_SAMPLE}, "n": 1}
    assert codec.convert(now.to_json(), Quantity) == now


def test_the_early_code_of_a_doubt_is_read_as_the_present_one() -> None:
    doubt = codec.convert({"code": "changed_by_looking", "detail": "by 9 %"}, Doubt)
    assert doubt.to_json() == {"code": "profiler_overhead", "detail": "by 9 %"}
