"""Importing: all of a good file, none of a bad one."""

from __future__ import annotations

import json
import os
import re
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factory import make_record, sealed, typed_draft

from deepstone.absent import Absent
from deepstone.errors import RefusedInputError, StoreError
from deepstone.results.identity import canonical_json, run_id
from deepstone.results.tune import Tuned
from deepstone.store.export.jsonl import export_jsonl
from deepstone.store.importing import Imported, import_records
from deepstone.store.store import Store

H200 = Path(__file__).resolve().parents[2] / "results" / "h200"
RECORDS = [make_record(batch=batch) for batch in (1, 2, 3)]


def _as_first_named(path: Path) -> list[object]:
    """The results of a file under the names that they had where they were measured."""
    text = path.read_text()
    results = [json.loads(line) for line in text.splitlines()]
    for result in results:
        if origin := result.get("origin"):
            text = text.replace(result["id"], origin)
    found = [json.loads(line) for line in text.splitlines()]
    return [{name: value for name, value in each.items() if name != "origin"} for each in found]


def jsonl(*values: object) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


FORMS = {
    "as stored": (sealed(RECORDS[0]), 1),
    "bare": (canonical_json(RECORDS[0]).encode(), 1),
    "bare, for people": (json.dumps(RECORDS[0], indent=2).encode(), 1),
    "list": (json.dumps(RECORDS).encode(), 3),
    "list, for people": (json.dumps(RECORDS, indent=2).encode(), 3),
    "list of stored": (b"[" + b",".join(sealed(record) for record in RECORDS) + b"]", 3),
    "jsonl": (jsonl(*RECORDS), 3),
    "jsonl without a last newline": (jsonl(*RECORDS).rstrip(), 3),
    "jsonl with blank lines": (b"\n".join([*jsonl(*RECORDS).split(b"\n"), b"", b""]), 3),
    "jsonl of stored": (b"".join(sealed(record) for record in RECORDS), 3),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_understood(store: Store, tmp_path: Path, form: str):
    data, count = FORMS[form]
    file = tmp_path / "file"
    file.write_bytes(data)
    assert import_records(store, file) == Imported(added=count, skipped=0)
    assert [store.get(record["id"]).to_json() for record in RECORDS[:count]] == RECORDS[:count]
    assert import_records(store, file) == Imported(added=0, skipped=count)


def test_what_was_exported_comes_back_as_it_was(store: Store, tmp_path: Path):
    records = [store.add(typed_draft(batch=batch)) for batch in (1, 2)]
    file = tmp_path / "export.jsonl"
    file.write_text("".join(export_jsonl(records, redact=False)))
    other = Store.open(tmp_path / "other")
    assert import_records(other, file).added == 2
    assert [other.get(record.id) for record in records] == records


def test_a_redacted_export_can_be_imported_elsewhere(store: Store, tmp_path: Path):
    record = store.add(typed_draft(outcome="crashed"))
    file = tmp_path / "export.jsonl"
    file.write_text("".join(export_jsonl([record])))
    other = Store.open(tmp_path / "other")
    assert import_records(other, file).added == 1
    assert other.list().rows[0].id == record.id
    with pytest.raises(RefusedInputError, match="a redacted copy of a run differs from it"):
        import_records(store, file)


def test_a_run_twice_in_the_file_is_added_once(store: Store, tmp_path: Path):
    file = tmp_path / "file"
    file.write_bytes(jsonl(RECORDS[0], RECORDS[0]))
    assert import_records(store, file) == Imported(added=1, skipped=1)


class TestEqualMachines:
    """They name their runs alike; a store takes those of all of them."""

    @pytest.fixture
    def exports(self, tmp_path: Path) -> list[Path]:
        """Of three machines: each has measured the same two jobs once."""
        found: list[Path] = []
        for number in range(3):
            moment = f"2026-11-17T10:00:0{number}.000000Z"
            drafts = [typed_draft(batch=batch, step_s=0.01 + number / 1000, started_at=moment) for batch in (1, 2)]
            away = Store.open(tmp_path / f"machine-{number}")
            records = [away.add(draft) for draft in drafts]
            found.append(tmp_path / f"machine-{number}.jsonl")
            found[-1].write_text("".join(export_jsonl(records)))
        return found

    def test_each_gets_a_number_and_keeps_its_origin(self, store: Store, exports: list[Path]):
        found = [import_records(store, path) for path in exports]
        assert [(each.added, each.renumbered) for each in found] == [(2, 0), (2, 2), (2, 2)]
        rows = [store.get(row.id) for row in store.list().rows]
        assert len(rows) == 6
        assert {row.id.partition("-")[2] for row in rows} == {"1", "2", "3"}
        for record in rows:
            attempt = record.id.partition("-")[2]
            assert record.origin == (None if attempt == "1" else f"{record.job[:20]}-1")

    def test_the_same_export_twice_adds_nothing(self, store: Store, exports: list[Path]):
        for path in exports:
            import_records(store, path)
        for path in reversed(exports):
            assert import_records(store, path) == Imported(added=0, skipped=2)
        assert len(store.list().rows) == 6

    def test_all_in_one_file(self, store: Store, exports: list[Path], tmp_path: Path):
        whole = tmp_path / "whole.jsonl"
        whole.write_text("".join(path.read_text() for path in exports))
        assert import_records(store, whole) == Imported(added=6, skipped=0, renumbered=4)
        assert import_records(store, whole) == Imported(added=0, skipped=6)

    def test_what_comes_home_is_known(self, store: Store, exports: list[Path], tmp_path: Path):
        """From a machine to the store of all, and back under another number."""
        for path in exports:
            import_records(store, path)
        back = tmp_path / "back.jsonl"
        back.write_text("".join(export_jsonl([store.get(row.id) for row in store.list().rows])))
        home = Store.open(tmp_path / "redacted-home")
        import_records(home, exports[2])
        found = import_records(home, back)
        assert (found.added, found.skipped) == (4, 2)
        assert len(home.list().rows) == 6

    @pytest.mark.parametrize("times", [1, 2])
    def test_a_search_keeps_naming_its_own_runs(self, store: Store, tmp_path: Path, times: int):
        """Two searches of one machine type in two files; both number their runs from 1, and name their layers too."""
        clashing = tmp_path / "clashing.jsonl"
        clashing.write_bytes(jsonl(*_as_first_named(H200 / "tune-resnet50-free-batch.jsonl")))
        for _ in range(times):
            found = [import_records(store, path) for path in (clashing, H200 / "tune-resnet50-batch256.jsonl")]
        assert (found[1].renumbered > 0) == (times == 1)
        assert (found[1].added == 0) == (times == 2)
        searches = store.findings.list("tune")
        assert len(searches) == 2
        for finding in searches:
            assert isinstance(finding.content, Tuned)
            for look in finding.content.looks:
                summary = store.get(str(look.run)).summary
                assert not isinstance(summary, Absent)
                assert summary.samples_per_s.median == look.samples_per_s
            bound = finding.content.bound
            assert not isinstance(bound, Absent)
            assert bound.layers is None or store.findings.has(bound.layers)

    def test_a_redacted_copy_under_another_number_is_refused(self, store: Store, tmp_path: Path):
        away = Store.open(tmp_path / "away")
        store.add(typed_draft(outcome="crashed"))
        theirs = away.add(typed_draft(outcome="crashed", started_at="2030-01-01T00:00:00.000000Z"))
        whole, redacted = tmp_path / "whole.jsonl", tmp_path / "redacted.jsonl"
        whole.write_text("".join(export_jsonl([theirs], redact=False)))
        redacted.write_text("".join(export_jsonl([theirs])))
        assert import_records(store, whole).renumbered == 1
        with pytest.raises(RefusedInputError, match="a redacted copy of a run differs from it"):
            import_records(store, redacted)


def with_changes(**changes: Any) -> dict[str, Any]:
    return {**RECORDS[1], **changes}


GOOD = jsonl(RECORDS[0])
STORED = sealed(RECORDS[0])
HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is not JSON"),
    "blank": (b"\n\n\n", "is not JSON"),
    "empty list": (b"[]", "holds no records"),
    "path in the id": (GOOD + jsonl(with_changes(id="../../../../tmp/evil")), "line 2: id: must be 20 hexadecimal"),
    "absolute path in the id": (jsonl(with_changes(id="/etc/cron.d/evil")), "line 1: id: must be"),
    "id of another job": (GOOD + jsonl(with_changes(id=RECORDS[0]["id"])), "line 2: id: does not begin with"),
    "job that is a path": (jsonl(with_changes(job="../" * 21 + "a")), "line 1: job: must be 64 hexadecimal digits"),
    "job of another identity": (
        GOOD + jsonl(with_changes(job="0" * 64, id="0" * 20 + "-1")),
        "line 2: job: is not the SHA-256 of identity",
    ),
    "NaN": (GOOD + jsonl(with_changes(share_of_peak=float("nan"))), "line 2: holds NaN"),
    "a number beyond float": (
        GOOD + jsonl(RECORDS[1]).replace(b"1.25", b"1e999"),
        "line 2: startup.import_s: must be a fin",
    ),
    "null": (GOOD + jsonl(with_changes(energy=None)), "line 2: energy: must be text, a number"),
    "wrong type": (GOOD + jsonl(with_changes(samples="none")), "line 2: samples: must be an object, not 'none'"),
    "true for a number": (GOOD + jsonl(with_changes(cost={"flops": True, "bytes": 1})), "line 2: cost.flops: must be"),
    "giant number": (GOOD + jsonl(RECORDS[1]).replace(b"1234567890", b"9" * 5000), "line 2: holds a whole number"),
    "duplicate key": (
        GOOD + jsonl(RECORDS[1]).replace(b'{"schema": 1', b'{"schema": 1, "schema": 1'),
        "twice in one object",
    ),
    "lone surrogate": (
        GOOD + jsonl(with_changes(command=["deepstone", "\ud800"])),
        "line 2: command[1]: must be text without NUL",
    ),
    "deep nesting": (GOOD + b"[" * 100_000 + b"]" * 100_000, "line 2: is nested more than 32 levels deep"),
    "deep nesting at once": (b"[" * 100_000, "is nested more than 32 levels deep"),
    "deep objects": (b'{"a":' * 100_000, "is nested more than 32 levels deep"),
    "a list in a line": (GOOD + b"[]\n", "line 2: record: must be an object, not a list"),
    "text in a list": (b'["x"]', "record 1: record: must be an object, not 'x'"),
    "second of a list": (json.dumps([RECORDS[0], {}]).encode(), "record 2: schema: is missing"),
    "cut short": (GOOD + jsonl(RECORDS[1])[:-30], "line 2: is not JSON"),
    "no JSON": (b"\x7fELF" + bytes(1000), "is not JSON"),
    "not UTF-8": (GOOD + jsonl(RECORDS[1]).replace(b"Example", b"\xff\xfe"), "line 2: byte"),
    "wrong checksum": (
        GOOD + sealed(RECORDS[1]).replace(b'"usable_cores":2', b'"usable_cores":4'),
        "line 2: does not match its checksum",
    ),
    "other schema": (jsonl(with_changes(schema=2)), "line 1: schema: is 2; this version of Deepstone reads schema 1"),
    "two versions of one run": (
        GOOD + jsonl({**RECORDS[0], "started_at": "2030-01-01T00:00:00.000000Z"}),
        f"line 2: the file holds {RECORDS[0]['id']} with other content",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_refused_and_nothing_is_written(
    store: Store, tmp_path: Path, kind: str, contents: Callable[[Path], dict[str, bytes]]
):
    data, message = HOSTILE[kind]
    file = tmp_path / "hostile.json"
    file.write_bytes(data)
    before = contents(tmp_path)
    with pytest.raises(RefusedInputError, match=re.escape(message)) as error:
        import_records(store, file)
    text = str(error.value)
    assert text.startswith(f"{file}: ")
    assert text.endswith("; nothing was imported")
    assert "\n" not in text
    text.encode("utf-8")
    assert contents(tmp_path) == before


def test_another_run_under_an_id_of_the_store_is_refused(store: Store, tmp_path: Path):
    record = store.add(typed_draft())
    file = tmp_path / "file"
    file.write_bytes(jsonl(RECORDS[0], {**record.to_json(), "started_at": "2030-01-01T00:00:00.000000Z"}))
    with pytest.raises(RefusedInputError, match=f"line 2: the store holds {record.id} with other content"):
        import_records(store, file)
    assert [row.id for row in store.list().rows] == [record.id]


def test_a_damaged_run_of_the_store_is_not_written_over(store: Store, tmp_path: Path):
    record = store.add(typed_draft())
    path = store.layout.run_file(record.id)
    path.write_bytes(b"damaged")
    file = tmp_path / "file"
    file.write_bytes(jsonl(record.to_json()))
    with pytest.raises(StoreError, match="is damaged"):
        import_records(store, file)
    path.unlink()
    assert import_records(store, file).added == 1


@pytest.mark.parametrize("beginning", [b"", b"[", GOOD], ids=["zeros", "list", "jsonl"])
def test_a_gigabyte_of_nothing_is_refused_quickly_and_in_little_memory(store: Store, tmp_path: Path, beginning: bytes):
    file = tmp_path / "giant"
    file.write_bytes(beginning)
    os.truncate(file, 2**30)
    tracemalloc.start()
    start_s = time.process_time()
    with pytest.raises(RefusedInputError, match="is larger than 64 MiB; nothing was imported"):
        import_records(store, file)
    seconds, (_, peak_bytes) = time.process_time() - start_s, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 60
    assert peak_bytes < 512 * 2**20


def test_more_than_a_gigabyte_of_lines_is_refused(store: Store, tmp_path: Path):
    file = tmp_path / "giant"
    file.write_bytes(GOOD)
    os.truncate(file, 2**30 + 1)
    with pytest.raises(RefusedInputError, match="is larger than 1 GiB; import it in parts"):
        import_records(store, file)


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "device"])
def test_what_is_no_file_is_refused_at_once(store: Store, tmp_path: Path, kind: str):
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/zero")
    with pytest.raises(RefusedInputError, match=r"cannot be read|is a folder"):
        import_records(store, path)


def test_a_file_that_changes_after_it_was_checked_is_not_believed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first, second = (make_record(batch=batch, steps=5000) for batch in (1, 2))  # longer than what is read ahead
    file = tmp_path / "file"
    file.write_bytes(jsonl(first, second))
    insert = Store.insert

    def swap_and_insert(self: Store, record: Any) -> bool:
        file.write_bytes(jsonl(first, {**second, "comparison": {"absent": "another"}}))
        return insert(self, record)

    monkeypatch.setattr(Store, "insert", swap_and_insert)
    with pytest.raises(RefusedInputError, match="changed during the import; 1 runs were added before"):
        import_records(store, file)
    assert [row.id for row in store.list().rows] == [first["id"]]


def test_attempts_go_on_after_an_import(store: Store, tmp_path: Path):
    file = tmp_path / "file"
    file.write_bytes(jsonl(make_record(attempt=7)))
    import_records(store, file)
    draft = typed_draft()
    assert store.add(draft).id == run_id(draft.job, 8)


@pytest.mark.parametrize(
    ("answer", "command"),
    [
        ({"schema": 1, "kind": "scale", "model": "cifarnet", "points": []}, "deepstone scale --json"),
        ({"schema": 1, "kind": "layers", "id": "3f2a", "layers": {}}, "deepstone layers --json"),
        ({"a": {}, "b": {}, "pairing": "interleaved", "verdict": "no difference shown"}, "deepstone compare --json"),
        ([{"command": "deepstone run cifarnet", "job": "3f2a", "can_run": "yes"}], "--dry-run --json"),
    ],
)
def test_the_answer_of_a_command_is_told_from_a_run(store: Store, tmp_path: Path, answer: object, command: str):
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(answer))
    with pytest.raises(RefusedInputError, match=f"is what `{command}` printed.*results export.*nothing was imported"):
        import_records(store, file)
