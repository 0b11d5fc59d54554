"""Files measured elsewhere, good and bad."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from factory import make_record
from papers_kit import lab

from deepstone.errors import DeepstoneError
from deepstone.papers.elsewhere import read_elsewhere
from deepstone.papers.evidence import evidence_of


def test_a_folder_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(make_record(batch=batch)) + "\n" for batch in (8, 16)))
    (tmp_path / "conv.json").write_text(json.dumps(lab({"oneDNN": 1.0})))
    (tmp_path / "README.md").write_text("not ours")
    records, findings = read_elsewhere(tmp_path)
    assert [record["workload"]["batch"] for record in records] == [8, 16]
    assert [id for id, _ in findings] == ["conv.json"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", "{}\n", ("a.jsonl, line 1", "neither a record nor a finding")),
        ("a.json", "[1, 2", ("a.json",)),
        ("a.json", '[{"schema": 1}]', ("a.json, record 1",)),
        ("a.jsonl", '{"kind": "layers"}\nnot json\n', ("a.jsonl, line 2",)),
    ],
)
def test_what_is_not_ours_is_refused(tmp_path: Path, name: str, content: str, words: tuple[str, ...]) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DeepstoneError) as told:
        read_elsewhere(tmp_path / name)
    assert told.value.exit_code == 2
    for word in words:
        assert word in str(told.value)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DeepstoneError, match=r"holds no \.json"):
        read_elsewhere(tmp_path)
    with pytest.raises(DeepstoneError, match="cannot read"):
        read_elsewhere(tmp_path / "none.json")


def test_a_finding_of_another_shape_is_refused() -> None:
    odd = lab({"oneDNN": 1.0})
    del odd["layers"][0]["results"][0]["formula"]
    with pytest.raises(DeepstoneError, match="not as `deepstone conv --json` writes it"):
        evidence_of([], [("odd.json", odd)])
