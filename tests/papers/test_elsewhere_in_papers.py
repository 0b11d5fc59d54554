"""Files measured elsewhere, good and bad."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from factory import make_record
from papers_kit import lab

from deepstone.errors import DeepstoneError
from deepstone.papers.gather import read_elsewhere

RESULTS = Path(__file__).resolve().parents[2] / "results"


def test_a_folder_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(make_record(batch=batch)) + "\n" for batch in (8, 16)))
    (tmp_path / "conv.json").write_text(json.dumps(lab({"oneDNN": 1.0})))
    (tmp_path / "README.md").write_text("not ours")
    records, findings = read_elsewhere(tmp_path)
    assert [record.workload.batch for record in records] == [8, 16]
    assert [id for id, _ in findings] == ["conv.json"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", "{}\n", ("a.jsonl, line 1", "neither a record nor a finding")),
        ("a.json", "[1, 2", ("a.json",)),
        ("a.json", '[{"schema": 1}]', ("a.json, record 1",)),
        ("a.jsonl", '{"schema": 1, "kind": "layers"}\nnot json\n', ("a.jsonl, line 2",)),
    ],
)
def test_what_is_not_ours_is_refused(tmp_path: Path, name: str, content: str, words: tuple[str, ...]) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DeepstoneError) as told:
        read_elsewhere(tmp_path / name)
    assert told.value.exit_code == 2
    for word in words:
        assert word in str(told.value)


@pytest.mark.parametrize("folder", ["two-cores", "h200"])
def test_every_folder_kept_with_the_sources_is_read_whole(folder: str) -> None:
    """Also one in which a study left its own account beside its records."""
    skipped: list[str] = []
    records, findings = read_elsewhere(RESULTS / folder, skipped)
    assert records
    assert findings
    accounts = [path.name for path in sorted((RESULTS / folder).glob("*-study.json"))]
    assert [Path(line.split(":")[0]).name for line in skipped] == accounts


def test_a_file_without_measurements_is_refused_by_name() -> None:
    with pytest.raises(DeepstoneError, match=r"eight-years-study\.json: is of kind study"):
        read_elsewhere(RESULTS / "two-cores" / "eight-years-study.json")


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DeepstoneError, match=r"holds no \.json"):
        read_elsewhere(tmp_path)
    with pytest.raises(DeepstoneError, match="cannot read"):
        read_elsewhere(tmp_path / "none.json")


def test_a_finding_of_another_shape_is_refused(tmp_path: Path) -> None:
    odd = lab({"oneDNN": 1.0})
    del odd["layers"][0]["results"][0]["formula"]
    file = tmp_path / "odd.json"
    file.write_text(json.dumps(odd))
    with pytest.raises(DeepstoneError, match=r"not as `deepstone conv --json` writes it.*formula: is missing"):
        read_elsewhere(file)
