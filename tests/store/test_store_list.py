"""Listing: the index follows the folder whatever happens to either."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from factory import typed_draft, typed_record
from msgspec.structs import replace
from store_kit import Spawn, finished

from deepstone.store.rows import Filters, Listing, row_of
from deepstone.store.sealed import Checked, seal
from deepstone.store.store import Store


def ids(listing: Listing) -> list[str]:
    return [row.id for row in listing.rows]


def put(store: Store, **settings: object) -> str:
    """A run's file without the cost of syncing it."""
    record = typed_record(**settings)
    path = store.layout.run_file(record.id)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(seal(record))
    return record.id


def test_a_row_tells_what_the_record_says(store: Store):
    record = store.add(typed_draft(model="vgg16", batch=32, step_s=0.5))
    (row,) = store.list().rows
    assert row == row_of(record)
    assert (row.model, row.batch, row.phase, row.outcome) == ("vgg16", 32, "train", "ok")
    assert (row.framework, row.device, row.doubts) == ("torch", "cpu", 1)
    assert (row.step_s_median, row.step_s_low, row.samples_per_s) == (0.5, 0.495, 64.0)
    assert json.loads(row.requested) == record.setup.requested


def test_what_a_failed_run_has_not_is_none(store: Store):
    store.add(typed_draft(outcome="oom"))
    (row,) = store.list().rows
    assert (row.step_s_median, row.samples_per_s, row.outcome) == (None, None, "oom")


def test_the_oldest_comes_first(store: Store):
    late = store.add(typed_draft(started_at="2027-01-01T00:00:00.000000Z")).id
    early = store.add(typed_draft(started_at="2026-01-01T00:00:00.000000Z")).id
    assert ids(store.list()) == [early, late]


def test_filters_narrow(store: Store):
    small = store.add(typed_draft(batch=8)).id
    large = store.add(typed_draft(batch=64, requested={"framework": "jax", "layout": "nhwc", "threads": 4})).id
    failed = store.add(typed_draft(batch=64, outcome="timeout")).id
    assert ids(store.list(Filters(batch=8))) == [small]
    assert set(ids(store.list(Filters(batch=64)))) == {large, failed}
    assert ids(store.list(Filters(batch=64, outcome="ok"))) == [large]
    assert ids(store.list(Filters(framework="jax"))) == [large]
    assert ids(store.list(Filters(axes={"layout": "nhwc", "threads": "4"}))) == [large]
    assert ids(store.list(Filters(model="' OR 1 --"))) == []


def test_files_that_come_and_go_are_noticed(store: Store):
    first = put(store, batch=1)
    assert ids(store.list()) == [first]
    second = put(store, batch=2)
    assert set(ids(store.list())) == {first, second}
    store.layout.run_file(first).unlink()
    assert ids(store.list()) == [second]


def test_damaged_files_are_reported_every_time_and_hide_nothing(store: Store):
    good, bad = put(store, batch=1), put(store, batch=2)
    store.layout.run_file(bad).write_bytes(b"{}")
    (store.root / "runs" / "zz").mkdir()
    stray = store.root / "runs" / "zz" / "notes.json"
    stray.write_text("{}")
    (store.root / "runs" / "README").touch()
    for _ in range(2):
        listing = store.list()
        assert ids(listing) == [good]
        assert {damage.path for damage in listing.damaged} == {store.layout.run_file(bad), stray}
        assert all(damage.reason for damage in listing.damaged)


def test_rebuild_finds_damage_that_listing_does_not_look_for(store: Store):
    good, bad = put(store, batch=1), put(store, batch=2)
    store.list()
    path = store.layout.run_file(bad)
    path.write_bytes(path.read_bytes().replace(b'"batch":2', b'"batch":3'))
    assert set(ids(store.list())) == {good, bad}
    listing = store.rebuild()
    assert ids(listing) == [good]
    assert [damage.path for damage in listing.damaged] == [path]


@pytest.mark.parametrize("garbage", [b"", b"not a database" * 1000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_garbage_index_is_made_anew(store: Store, garbage: bytes):
    run = put(store)
    store.list()
    store.layout.index.write_bytes(garbage)
    assert ids(store.list()) == [run]
    with closing(sqlite3.connect(store.layout.index)) as connection:
        assert connection.execute("SELECT id FROM runs").fetchall() == [(run,)]


def test_an_index_damaged_inside_is_made_anew_or_passed_over(store: Store):
    runs = sorted(put(store, batch=batch) for batch in range(1, 80))
    store.list()
    good = store.layout.index.read_bytes()
    for start in range(0, len(good), 4096):
        store.layout.index.write_bytes(good[:start] + os.urandom(4096) + good[start + 4096 :])
        assert sorted(ids(store.list())) == runs


def test_a_missing_index_is_made_anew(store: Store):
    run = put(store)
    store.list()
    store.layout.index.unlink()
    assert ids(store.list()) == [run]
    assert store.layout.index.exists()


@pytest.mark.parametrize(
    "change",
    ["PRAGMA user_version = 99", "PRAGMA application_id = 5", "DROP TABLE runs", "ALTER TABLE runs ADD COLUMN x"],
)
def test_an_index_of_another_shape_is_not_believed(store: Store, change: str):
    run = put(store)
    store.list()
    with closing(sqlite3.connect(store.layout.index)) as connection:
        connection.execute(change)
        connection.commit()
    assert ids(store.list()) == [run]
    another = put(store, batch=9)
    assert set(ids(store.list())) == {run, another}


def test_an_index_deleted_while_it_is_open(store: Store):
    run = put(store)
    with closing(sqlite3.connect(store.layout.index)) as other:
        store.list()
        other.execute("BEGIN EXCLUSIVE")
        store.layout.index.unlink()
        assert ids(store.list()) == [run]


def test_a_folder_in_place_of_the_index(store: Store):
    run = put(store)
    store.layout.index.mkdir()
    assert ids(store.list()) == ids(store.rebuild()) == [run]


def test_the_index_never_uses_a_write_ahead_log(store: Store):
    put(store)
    store.list()
    with closing(sqlite3.connect(store.layout.index)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


LISTER = """
import sys
from pathlib import Path
from deepstone.store.store import Store
store = Store.open(Path(sys.argv[1]))
for _ in range(10):
    listing = store.rebuild() if sys.argv[2] == "rebuild" else store.list()
    assert not listing.damaged
    print(len(listing.rows))
"""


def test_processes_that_list_and_rebuild_at_once_all_see_everything(store: Store, spawn: Spawn):
    for batch in range(1, 31):
        put(store, batch=batch)
    processes = [spawn(LISTER, store.root, kind) for kind in ("rebuild", "rebuild", "list")]
    for process in processes:
        assert set(finished(process).split()) == {"30"}


def test_ten_thousand_runs_list_in_well_under_a_second(store: Store, monkeypatch: pytest.MonkeyPatch):
    runs = [_touch(store, number) for number in range(10_000)]
    # Only the cost of listing is asked for, so the index is filled from one record in place of ten thousand files.
    record = typed_record()
    monkeypatch.setattr(
        "deepstone.store.catalog.read_record", lambda path, run: Checked(result=replace(record, id=run), sha256="")
    )
    assert len(store.list().rows) == len(runs)
    monkeypatch.undo()
    times_s: list[float] = []
    for _ in range(3):
        start_s = time.process_time()
        assert len(store.list().rows) == len(runs)
        times_s.append(time.process_time() - start_s)
    assert min(times_s) < 3  # of CPU time, on however slow a machine; to read them all takes ten times as long


def _touch(store: Store, number: int) -> Path:
    path = store.layout.run_file(f"{number * 7919 % 256:02x}{number:018x}-1")
    path.parent.mkdir(exist_ok=True)
    path.touch()
    return path
