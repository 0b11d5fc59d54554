"""Adding, getting and deleting runs."""

from __future__ import annotations

import json
import os
import random
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from factory import typed_draft
from msgspec.structs import replace

from deepstone.errors import InternalError, StoreError, UsageError
from deepstone.results import codec
from deepstone.results.identity import run_id
from deepstone.results.record import Record
from deepstone.store.store import Store


def test_what_was_added_is_got(store: Store):
    draft = typed_draft()
    record = store.add(draft)
    assert store.get(record.id) == record == Record.of(draft, run_id(draft.job, 1))


def test_the_file_holds_the_record_and_its_checksum(store: Store):
    record = store.add(typed_draft())
    path = store.root / "runs" / record.id[:2] / f"{record.id}.json"
    assert json.loads(path.read_bytes()) == {"sha256": codec.sha256(record), "record": record.to_json()}


def test_each_attempt_at_a_job_is_a_run(store: Store):
    draft = typed_draft()
    runs = [store.add(draft).id for _ in range(12)]
    assert runs == [run_id(draft.job, attempt) for attempt in range(1, 13)]
    assert store.runs_of(draft.job) == tuple(runs)


def test_nothing_is_left_beside_the_runs(store: Store):
    store.probe()
    store.add(typed_draft())
    assert [*(store.root / "tmp").iterdir(), *(store.root / "claims").iterdir()] == []


def test_no_run_is_ever_overwritten(store: Store):
    record = store.add(typed_draft())
    other = replace(record, started_at="2030-01-01T00:00:00.000000Z")
    assert not store.insert(other)
    assert store.get(record.id) == record


def test_a_name_that_is_taken_is_passed_over_without_hard_links_too(store: Store, monkeypatch: pytest.MonkeyPatch):
    def no_links(self: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    record = store.add(typed_draft())
    assert store.get(record.id) == record
    assert not store.insert(record)
    assert store.add(typed_draft()).id.endswith("-2")


@pytest.mark.parametrize(
    "wrong",
    [{"outcome": "fine"}, {"environment": {"layer/with/slash": 1}}, {"cost": {1: object()}}, {"cost": object()}],
    ids=["outcome", "key", "no key", "no JSON"],
)
def test_a_draft_that_our_rules_refuse_is_saved_in_a_file(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    draft = replace(typed_draft(), **wrong)
    with pytest.raises(InternalError, match="a fault of Deepstone itself") as error:
        store.add(draft)
    assert error.value.exit_code == 1
    assert list((store.root / "runs").iterdir()) == []
    (path,) = tmp_path.glob("deepstone-refused-*.json")
    assert str(path) in str(error.value)
    assert json.loads(path.read_text())["samples"] == draft.samples.to_json()


def test_a_unique_beginning_of_an_id_is_enough(store: Store):
    records = [store.add(typed_draft(batch=batch)) for batch in range(1, 6)]
    for record in records:
        assert store.get(record.id[:12]) == record
        assert store.get(record.id.upper()) == record


def test_an_id_wins_over_a_longer_one_that_it_begins(store: Store):
    runs = [store.add(typed_draft()).id for _ in range(10)]
    assert store.resolve(runs[0]) == runs[0]
    assert store.resolve(runs[9]) == runs[9]


def test_an_ambiguous_beginning_names_the_candidates(store: Store):
    runs = [store.add(typed_draft()).id for _ in range(2)]
    with pytest.raises(UsageError, match=rf"begins 2 runs: {runs[0]}, {runs[1]}; give more"):
        store.get(runs[0][:5])


@pytest.mark.parametrize("name", ["", "0123456789abcdef0123-1", "../../etc/passwd", "*", "a\0b", "x" * 10_000])
def test_a_run_that_is_not_there(store: Store, name: str):
    store.add(typed_draft())
    with pytest.raises(UsageError, match=r"no run .* `deepstone results list`"):
        store.get(name)


def test_deleted_is_gone(store: Store):
    record = store.add(typed_draft())
    assert store.delete(record.id[:8]) == record.id
    assert store.runs_of(record.job) == ()
    assert store.list().rows == ()
    with pytest.raises(UsageError):
        store.delete(record.id)


@pytest.mark.parametrize("size", [0, 1, 100, -2, -70])
def test_a_truncated_file_is_reported_with_its_remedy(store: Store, size: int):
    record = store.add(typed_draft())
    path = store.layout.run_file(record.id)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(StoreError, match=r"is damaged .*; remove it, and import the run again") as caught:
        store.get(record.id)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_bit_can_flip_unseen(store: Store):
    record = store.add(typed_draft(steps=3))
    path = store.layout.run_file(record.id)
    good = path.read_bytes()
    chance = random.Random(7)
    for _ in range(300):
        position = chance.randrange(len(good))
        path.write_bytes(good[:position] + bytes([good[position] ^ 1 << chance.randrange(8)]) + good[position + 1 :])
        with suppress(StoreError):
            assert store.get(record.id) == record  # 1e-05 as 1E-05 is the same record


def test_a_file_under_another_runs_name_is_damage(store: Store):
    first, second = store.add(typed_draft()), store.add(typed_draft())
    store.layout.run_file(first.id).replace(store.layout.run_file(second.id))
    with pytest.raises(StoreError, match=f"damaged .holds the run {first.id}"):
        store.get(second.id)


def test_a_pipe_in_place_of_a_file_does_not_hang(store: Store):
    record = store.add(typed_draft())
    path = store.layout.run_file(record.id)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StoreError, match="not a regular file"):
        store.get(record.id)


def test_a_giant_file_is_not_read(store: Store):
    record = store.add(typed_draft())
    os.truncate(store.layout.run_file(record.id), 2**34)
    with pytest.raises(StoreError, match="larger than 64 MiB"):
        store.get(record.id)


class TestOpen:
    def test_a_store_is_made_and_found_again(self, tmp_path: Path):
        made = Store.open(tmp_path / "a" / "b")
        record = made.add(typed_draft())
        assert Store.open(tmp_path / "a" / "b", create=False).get(record.id) == record

    def test_a_missing_store_is_not_made_unasked(self, tmp_path: Path):
        with pytest.raises(StoreError, match=r"there is no store in .*--store DIR"):
            Store.open(tmp_path / "none", create=False)
        assert not (tmp_path / "none").exists()

    def test_a_folder_that_is_something_else_is_left_alone(self, tmp_path: Path):
        (tmp_path / "thesis.tex").touch()
        with pytest.raises(StoreError, match=r"is no store and not empty \(it holds 'thesis.tex'\)"):
            Store.open(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]

    def test_a_file_is_no_store(self, tmp_path: Path):
        (tmp_path / "file").touch()
        with pytest.raises(StoreError, match="cannot open the store"):
            Store.open(tmp_path / "file")

    def test_a_store_of_another_version_is_left_alone(self, store: Store):
        store.layout.format.write_text("deepstone store 2\n")
        with pytest.raises(StoreError, match="made by another version of Deepstone"):
            Store.open(store.root)

    def test_a_store_half_made_is_completed(self, tmp_path: Path):
        (tmp_path / "tmp").mkdir()
        assert Store.open(tmp_path).list().rows == ()
        (tmp_path / "format").unlink()
        assert Store.open(tmp_path).list().rows == ()
