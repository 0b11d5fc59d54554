"""Real faults: a disk that is full, a store that cannot be written."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from factory import sha, typed_draft, typed_record
from store_kit import SmallDisk, Spawn, finished

from deepstone.errors import StoreError
from deepstone.results.identity import run_id
from deepstone.store.importing import import_records
from deepstone.store.rescue import save_elsewhere
from deepstone.store.sealed import seal
from deepstone.store.store import Store


@pytest.fixture
def rescued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder, where a run that the store cannot take is saved."""
    folder = tmp_path / "rescued"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def one_line(error: pytest.ExceptionInfo[StoreError]) -> str:
    assert error.value.exit_code == 3
    assert "\n" not in str(error.value)
    return str(error.value)


class TestFullDisk:
    def test_the_probe_finds_it_before_anything_is_measured(self, small_disk: SmallDisk):
        store = Store.open(small_disk.root / "store")
        store.probe()
        small_disk.fill()
        with pytest.raises(
            StoreError, match=r"cannot write to the store .*: no space left on device; make room"
        ) as error:
            store.probe()
        one_line(error)

    def test_a_run_is_saved_elsewhere_and_can_be_imported(self, small_disk: SmallDisk, rescued: Path):
        store = Store.open(small_disk.root / "store")
        before = store.add(typed_draft())
        small_disk.fill()
        with pytest.raises(StoreError, match="no space left on device; the run is saved in") as error:
            store.add(typed_draft())
        (path,) = rescued.iterdir()
        assert f"`deepstone results import {path}`" in one_line(error)
        assert [row.id for row in store.list().rows] == [before.id]
        small_disk.make_room()
        again = store.add(typed_draft())
        assert import_records(store, path).added == 1
        assert import_records(store, path).skipped == 1
        assert len(store.list().rows) == 3
        # The numbers that the store gives go on as if nothing had been rescued.
        assert store.add(typed_draft()).id == run_id(again.job, 3)

    def test_runs_that_are_there_can_be_listed_without_room_for_an_index(self, small_disk: SmallDisk):
        store = Store.open(small_disk.root / "store")
        runs = {store.add(typed_draft(batch=batch)).id for batch in range(1, 9)}
        small_disk.fill()
        assert {row.id for row in store.list().rows} == runs
        assert {row.id for row in store.rebuild().rows} == runs

    def test_nothing_is_left_behind(self, small_disk: SmallDisk, rescued: Path):
        store = Store.open(small_disk.root / "store")
        store.probe()
        small_disk.fill()
        for batch in range(1, 6):
            with pytest.raises(StoreError):
                store.add(typed_draft(batch=batch))
        assert [*store.root.rglob("*.tmp"), *store.root.rglob("*.claim"), *store.root.rglob("*.json")] == []
        assert len(list(rescued.iterdir())) == 5

    def test_an_import_tells_how_far_it_came(self, small_disk: SmallDisk, tmp_path: Path):
        store = Store.open(small_disk.root / "store")
        file = tmp_path / "runs.jsonl"
        count = 60
        file.write_bytes(b"".join(seal(typed_record(batch=batch, steps=200)) for batch in range(1, count + 1)))
        with pytest.raises(StoreError, match=r"no space left on device; \d+ runs were added: make room") as error:
            import_records(store, file)
        one_line(error)
        there = len(store.list().rows)
        assert 0 < there < count
        assert store.list().damaged == ()


def rescue(folders: list[Path] | None = None) -> Path:
    record = typed_record()
    return save_elsewhere(seal(record), record.id, "run", folders)


class TestRescue:
    def test_the_home_folder_is_next(self, small_disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(tempfile, "tempdir", str(small_disk.root))
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        (tmp_path / "home").mkdir()
        small_disk.fill()
        assert rescue().parent == tmp_path / "home"
        assert [path.name for path in small_disk.root.iterdir()] == ["ballast"]

    def test_when_nothing_takes_it_the_loss_is_told(self, tmp_path: Path):
        with pytest.raises(StoreError, match=r"could not be saved in .*/none or .*/nowhere either: it is lost"):
            rescue([tmp_path / "none", tmp_path / "nowhere"])

    def test_the_file_is_private(self, tmp_path: Path):
        path = rescue([tmp_path])
        assert path.stat().st_mode & 0o077 == 0


class TestReadOnly:
    @pytest.fixture
    def frozen(self, small_disk: SmallDisk) -> Store:
        store = Store.open(small_disk.root / "store")
        store.add(typed_draft(batch=1))
        store.list()
        store.add(typed_draft(batch=2))
        small_disk.make_read_only()
        return store

    def test_it_can_be_opened_and_read(self, frozen: Store):
        store = Store.open(frozen.root)
        rows = store.list().rows
        assert sorted(row.batch for row in rows) == [1, 2]
        assert all(store.get(row.id).id == row.id for row in rows)
        assert store.rebuild().rows == rows

    def test_the_probe_refuses_it(self, frozen: Store):
        with pytest.raises(StoreError, match="read-only file system; name another store with --store DIR") as error:
            frozen.probe()
        one_line(error)

    def test_a_run_is_saved_elsewhere(self, frozen: Store, rescued: Path):
        with pytest.raises(StoreError, match="read-only file system; the run is saved in"):
            frozen.add(typed_draft())
        assert len(list(rescued.iterdir())) == 1

    def test_whatever_else_would_write_says_so(self, frozen: Store):
        run = frozen.list().rows[0].id
        for write in (lambda: frozen.delete(run), lambda: frozen.claim_job(sha("job"))):
            with pytest.raises(StoreError, match="read-only file system") as error:
                write()
            one_line(error)

    def test_a_store_cannot_be_made_there(self, frozen: Store):
        with pytest.raises(StoreError, match=r"cannot open the store .*: read-only file system"):
            Store.open(frozen.root.parent / "new")


WITHOUT_PERMISSION = """
import os, sys
from pathlib import Path
from deepstone.errors import StoreError
from deepstone.store.files import Owner
from deepstone.store.store import Store
Owner.myself()  # loads what Python may have in a folder of root's
if os.geteuid() == 0:
    os.setuid(65534)  # root may write where permissions forbid it
store = Store.open(Path(sys.argv[1]))
print(len(store.list().rows))
try:
    store.probe()
except StoreError as error:
    print(error)
"""


def test_a_store_of_someone_else_can_be_read_but_not_written(spawn: Spawn):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        store = Store.open(Path(folder) / "store")
        store.add(typed_draft())
        places = [store.root, *(path for path in store.root.rglob("*") if path.is_dir())]
        for place in places:
            place.chmod(0o555)
        count, error = finished(spawn(WITHOUT_PERMISSION, store.root)).splitlines()
        for place in places:
            place.chmod(0o755)
    assert count == "1"
    assert "permission denied; change its permissions, or name another store" in error
