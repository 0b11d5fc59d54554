"""The papers as data: complete, well formed, and each claim with a verdict whatever was measured."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from deepstone.errors import UsageError
from deepstone.papers.evidence import evidence_of
from deepstone.papers.judge import judged_paper
from deepstone.papers.paper import SCALES, load_paper, paper_names
from deepstone.papers.read import read_paper
from deepstone.papers.rules import RULES
from deepstone.papers.verdict import WORDS
from deepstone.studies.find import read_study_file

PAPERS = Path(__file__).resolve().parents[2] / "deepstone" / "papers"
CLAIMS = {"kim2017": ("kim", 15), "awan2017": ("awan", 10)}


@pytest.mark.parametrize("name", paper_names())
def test_every_claim_has_a_row(name: str) -> None:
    short, count = CLAIMS[name]
    assert [claim.id for claim in load_paper(name).claims] == [f"{short}-{number}" for number in range(1, count + 1)]


@pytest.mark.parametrize("name", paper_names())
def test_every_claim_has_a_verdict_though_nothing_was_measured(name: str) -> None:
    judged = judged_paper(load_paper(name), evidence_of([], []), scale=None).to_json()
    for claim in judged["claims"]:
        assert claim["verdict"] in WORDS
        assert claim["why"]
        assert claim["rule"]


@pytest.mark.parametrize("name", paper_names())
@pytest.mark.parametrize("scale", SCALES)
def test_every_scale_has_a_study(name: str, scale: str) -> None:
    study = read_study_file(load_paper(name).studies[scale])  # type: ignore[index]
    assert study.name == f"{name}-{scale}"
    assert study.sweeps


@pytest.mark.parametrize("name", paper_names())
def test_a_bound_is_what_the_paper_says(name: str) -> None:
    """The slack of "up to" is given to no number that the paper states otherwise."""
    for claim in load_paper(name).claims:
        said, bound = claim.published.text, claim.published.bound
        if claim.published.value is not None and claim.id != "kim-8":  # a table, of which the best case is taken
            assert ("up to" in said) == (bound == "up to"), claim.id
            assert (said.startswith("over")) == (bound == "more than"), claim.id


def test_what_needs_several_processes_is_not_testable_and_names_the_command() -> None:
    judged = judged_paper(load_paper("kim2017"), evidence_of([], []), scale=None).to_json()
    several = {claim["id"]: claim["verdict"] for claim in judged["claims"] if " processes=" in claim["why"]}
    assert several == dict.fromkeys(("kim-9", "kim-10", "kim-11", "kim-13"), "not testable here")


def test_what_is_counted_needs_no_measurement() -> None:
    words = {
        claim["id"]: claim["verdict"]
        for name in paper_names()
        for claim in judged_paper(load_paper(name), evidence_of([], []), scale=None).to_json()["claims"]
    }
    assert {words["kim-14"], words["awan-9"]} == {"holds"}
    assert words["kim-5"] == "weaker"  # Winograd with tiles of 2x2 saves a little less than half


def test_known_errors_are_told_and_not_drawn_as_truth() -> None:
    paper = load_paper("kim2017")
    assert any("13x13" in error for error in paper.errors)
    charts = {
        chart["name"]: chart for chart in judged_paper(paper, evidence_of([], []), scale=None).to_json()["charts"]
    }
    table = charts["kim2017-table2-operations"]
    ours = next(series for series in table["series"] if not series["published"])
    theirs = next(series for series in table["series"] if series["published"])
    counted = {point["x"]: point["y"] for point in ours["points"]}
    assert counted["conv3"] == pytest.approx(76.6e9, rel=0.001)
    assert "fc1" not in {point["x"] for point in theirs["points"]}
    assert {gap["x"] for gap in table["gaps"]} == {"fc1", "fc2", "fc3"}


def test_published_numbers_stand_in_data_alone() -> None:
    """Nothing that a paper published is written into a rule or a figure."""
    for path in [*PAPERS.glob("rules/*.py"), *PAPERS.glob("figures/*.py")]:
        assert not re.search(r"\b(2\.64|4\.74|7\.88|4\.59|510|0\.83|3\.2|245)\b", path.read_text()), path


def test_the_page_explains_every_claim_and_rule() -> None:
    page = (PAPERS.parents[1] / "docs" / "papers.md").read_text(encoding="utf-8")
    for claim in [claim for name in paper_names() for claim in load_paper(name).claims]:
        assert f"\n| {claim.id} |" in page, claim.id
    for rule in RULES:
        assert f"\n| {rule} |" in page, rule
    for word in WORDS:
        assert f"\n| **{word}** |" in page, word


def copy_of(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(PAPERS / name, folder / name))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "parameter share"', 'name = "parameter shar"', ("no rule", "parameter share")),
        ("tolerance = 0.01", "tolerence = 0.01", ("tolerence: is not a known key; did you mean tolerance?",)),
        ('id = "kim-2"', 'id = "kim-1"', ("kim-1 stands there twice",)),
        ('about = "gpu"', 'about = "tpu"', ("kim-1", "about: must be one of cpu, gpu, ", "not 'tpu'")),
        ('bound = "more than"', 'bound = "over"', ("kim-3", "published.bound: must be one of up to, ", "not 'over'")),
        ('where = "', 'were = "', ("kim-1", "were: is not a known key; did you mean where")),
        ("# What", "[[clam]]\n# What", ("[[claim]] and nothing else",)),
        ('text = "over 4x", ', "", ("kim-3", "published.text: is missing")),
        ("[[claim]]", "[[claim", ("claims.toml",)),
        ("beside = true", 'beside = "yes"', ("kim-7", "beside: must be true or false, not 'yes'")),
    ],
)
def test_a_mistake_in_the_data_is_told(tmp_path: Path, old: str, new: str, words: tuple[str, ...]) -> None:
    folder = copy_of("kim2017", tmp_path)
    file = folder / "claims.toml"
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(UsageError) as told:
        read_paper(folder)
    for word in ("claims.toml", *words):
        assert word in str(told.value)


def test_no_such_paper() -> None:
    with pytest.raises(UsageError, match="did you mean kim2017"):
        load_paper("kim2018")
