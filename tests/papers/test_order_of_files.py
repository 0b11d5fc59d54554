"""A verdict rests on what was measured, never on the order in which files, records or findings are given."""

from __future__ import annotations

import json
import random
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from depth import examples
from hypothesis import given
from hypothesis import strategies as st
from measured_runs import rounds
from papers_kit import evidence_of, lab, layers

from deepstone.papers.evidence import Evidence, Named
from deepstone.papers.gather import gather, read_elsewhere
from deepstone.papers.judge import claim_with, judged_claim, judged_paper
from deepstone.papers.paper import load_paper, paper_names
from deepstone.results.record import Record

RESULTS = Path(__file__).resolve().parents[2] / "results"
FILES = [path for path in sorted(RESULTS.glob("*/*.json*")) if not path.name.endswith("-study.json")]
PAPERS = [load_paper(name) for name in paper_names()]

Measured = tuple[list[Record], list[Named]]


def judged(evidence: Evidence) -> str:
    """Everything that is said of every paper, figures included."""
    return json.dumps([judged_paper(paper, evidence, scale=None).to_json() for paper in PAPERS])


@pytest.fixture(scope="module")
def measured() -> Measured:
    read = [read_elsewhere(path) for path in FILES]
    return [record for records, _ in read for record in records], [each for _, some in read for each in some]


def test_records_and_findings_in_any_order(measured: Measured) -> None:
    records, findings = (list(each) for each in measured)
    expected = judged(evidence_of(records, findings))
    for seed in range(2):
        random.Random(seed).shuffle(records)
        random.Random(seed).shuffle(findings)
        assert judged(evidence_of(records, findings)) == expected


def test_files_in_any_order_and_twice(measured: Measured, tmp_path: Path) -> None:
    """Each file by itself, and one machine's folder before the other's."""
    also = [*random.Random(1).sample(FILES, len(FILES)), RESULTS / "two-cores", RESULTS / "h200"]
    assert judged(gather(PAPERS, tmp_path / "none", also, [])) == judged(evidence_of(*measured))


def test_decided_verdicts_come_first_whichever_machine_gave_them(measured: Measured) -> None:
    """Of the claim about small kernels, one machine is undecided and comes first by its name."""
    evidence = evidence_of(*measured)
    assert evidence.places[0].name.startswith("AMD")
    words = {
        claim.id: [verdict.answer.word for verdict in judged_claim(claim, evidence)]
        for paper in PAPERS
        for claim in paper.claims
    }
    assert words["kim-8"][:2] == ["holds", "undecided"]
    assert set(words["kim-8"][2:]) == {"not testable here"}
    for found in words.values():
        undecided = [number for number, word in enumerate(found) if word in ("undecided", "not testable here")]
        assert undecided == list(range(len(found) - len(undecided), len(found)))


MANY: list[Any] = [
    lab({"GEMM": 2.0, "FFT": 1.0}, formulas={"FFT": "fft"}, gpu="Test GPU", picked="GEMM"),
    lab({"GEMM": 3.0, "FFT": 1.0}, formulas={"FFT": "fft"}, gpu="Test GPU", picked="FFT"),  # as old as the first
    lab({"GEMM": 0.1, "FFT": 1.0}, formulas={"FFT": "fft"}, gpu="Test GPU", picked="GEMM", precision="tf32"),
    lab(
        {"GEMM": 5.0, "FFT": 1.0},
        formulas={"FFT": "fft"},
        batch=256,
        precision="tf32",
        started_at="2027-01-01T00:00:00.000000Z",
    ),
    layers({"conv1": (1.0, 1.0), "relu1": (0.1, 0.1)}, model="alexnet-kim"),
    layers({"conv1": (2.0, 1.0), "relu1": (0.2, 0.1)}, model="alexnet-kim"),  # the same setup at the same time
    layers({"conv1": (2.0, 1.0), "relu1": (0.5, 0.1)}, model="alexnet-kim", framework="tensorflow@2.21.0"),
]
RUNS = [
    *rounds(100, 101, 103, model="alexnet-kim"),
    *rounds(100, 101, 102, model="alexnet-kim", layout="nchw"),
    *rounds(130, 131, 132, model="alexnet-kim", layout="nhwc"),
    *rounds(180, 181, 182, model="alexnet-kim", layout="nhwc", compile="default"),
    *rounds(140, 141, 142, model="alexnet-kim", layout="nchw", compile="default"),
]


def verdicts(evidence: Evidence) -> list[Any]:
    """Of the claims that these runs and findings say something about."""
    claims = [claim for paper in PAPERS for claim in paper.claims if claim.about]
    return [claim_with(claim, judged_claim(claim, evidence)).to_json() for claim in claims]


EXPECTED = verdicts(evidence_of(RUNS, [(f"{number}.json", finding) for number, finding in enumerate(MANY)]))


@examples(30)
@given(runs=st.permutations(RUNS), order=st.permutations(range(len(MANY))), copies=st.booleans())
def test_what_is_equal_in_age_and_standing(runs: list[Any], order: list[int], copies: bool) -> None:
    """Files without ids, under the names that they happen to have."""
    findings = [(f"{number}.json", MANY[number]) for number in order]
    assert verdicts(evidence_of(runs * (1 + copies), findings * (1 + copies))) == EXPECTED


def test_there_is_something_to_judge() -> None:
    words = {claim["id"]: claim["verdict"] for claim in EXPECTED}
    decided = [id for id, word in words.items() if word not in ("not testable here", "undecided")]
    assert {"kim-1", "kim-2", "kim-3", "kim-7", "kim-8"} <= set(decided), words


def test_the_newer_of_two_runs_under_one_id_counts() -> None:
    """Two stores of one machine number their runs alike."""
    older, newer = rounds(100, model="alexnet-kim")[0], rounds(200, model="alexnet-kim")[0]
    assert older["id"] == newer["id"]
    newer["started_at"] = "2027-01-01T00:00:00.000000Z"
    for order in permutations([older, newer]):
        [(_, case)] = evidence_of(order, []).cases
        assert [record.started_at for record in case.good] == [newer["started_at"]]


def test_the_places_of_a_store_come_before_others() -> None:
    """Whatever they are called."""
    tables = [("a", layers({"conv1": (1.0, 1.0)}, cores=cores)) for cores in (2, 4)]
    places = evidence_of([], tables).places
    for place in places:
        assert evidence_of([], tables, own=[place]).places[0] == place


def test_findings_of_one_file_count_each(tmp_path: Path) -> None:
    """A list of findings without ids."""
    file = tmp_path / "labs.json"
    file.write_text(json.dumps([lab({"oneDNN": 1.0}, batch=batch) for batch in (8, 32)]))
    assert [found.batch for found in gather(PAPERS, tmp_path / "none", [file], []).labs] == [8, 32]
