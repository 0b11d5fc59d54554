"""Findings: kept once, named by task and attempt, never changed; damage is found and told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from factory import sha, typed_draft
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from store_kit import SmallDisk

from deepstone.errors import InternalError, RefusedInputError, StoreError, UsageError
from deepstone.results import codec
from deepstone.results.findings import Finding
from deepstone.results.study import StudyState
from deepstone.store.importing import import_records
from deepstone.store.store import Store

MISSING = object()


def draft(of: str = "a", **more: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "kind": "peaks",
        "task": sha(of),
        "started_at": "2026-11-15T03:40:12.123456Z",
        "command": ["deepstone", "doctor", "--peaks"],
        "model": "cifarnet",
        "outcome": "ok",
        "environment": {"machine": {"hostname": "node01"}, "framework": {}},
        "peaks": [{"device": "cpu", "framework": "conv1"}],
        **more,
    }


def finding(of: str = "a", **more: Any) -> Finding:
    content = {key: value for key, value in draft(of, **more).items() if value is not MISSING}
    return codec.as_bare_finding(content)


def test_what_is_added_is_found_again(store: Store) -> None:
    kept = store.findings.add(finding())
    assert kept.to_json() == {**draft(), "id": f"{sha('a')[:20]}-1"}
    again = Store.open(store.root)
    assert again.findings.get(kept.id) == kept
    assert again.findings.list() == [kept]
    assert again.findings.of_task(sha("a")) == [kept.id]
    assert again.findings.of_task(sha("b")) == []


def test_attempts_are_numbered_and_kinds_told_apart(store: Store) -> None:
    first = store.findings.add(finding())
    second = store.findings.add(finding())
    memory = store.findings.add(finding("b", kind="memory", started_at="2026-11-14T03:40:12.123456Z", peaks=MISSING))
    assert store.findings.of_task(sha("a")) == [first.id, second.id]
    assert second.id.endswith("-2")
    assert store.findings.list("memory") == [memory]
    assert store.findings.list() == [memory, first, second]


def test_a_store_without_any(store: Store) -> None:
    assert store.findings.list() == []
    assert store.findings.ids() == []
    with pytest.raises(UsageError, match="no finding"):
        store.findings.get("../../etc/passwd")


@pytest.mark.parametrize("harm", [lambda text: text[:-20], lambda text: text.replace("conv1", "conv2"), lambda _: ""])
def test_damage_is_told_and_spares_the_others(store: Store, harm: Any) -> None:
    good, bad = store.findings.add(finding("a")), store.findings.add(finding("b"))
    path = store.layout.finding_file(bad.id)
    path.write_text(harm(path.read_text()))
    assert store.findings.list() == [good]
    with pytest.raises(StoreError, match="is damaged"):
        store.findings.get(bad.id)
    assert [damage.path for damage in store.rebuild().damaged] == [path]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"id": "x"}, "id: is given by the store"),
        ({"schema": 2}, "schema"),
        ({"kind": "layer"}, "kind: must be one of"),
        ({"task": "short"}, "hexadecimal"),
        ({"outcome": "fine"}, "outcome: must be one of"),
        ({"model": 3}, "model: must be text"),
        ({"command": []}, "command"),
        ({"environment": None}, "environment: is missing"),
    ],
)
def test_what_is_no_finding_is_not_kept(store: Store, change: dict[str, Any], told: str) -> None:
    with pytest.raises(InternalError, match=f"{told}.* saved in ") as error:
        store.findings.add(replace(finding(), **change))
    assert error.value.exit_code == 1
    assert store.findings.ids() == []


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(draft())), JSON_LIKE)
def test_hostile_values_are_refused_or_harmless(key: str, value: object) -> None:
    content = {**draft(), "id": f"{sha('a')[:20]}-1", key: value}
    refused = False
    try:
        codec.as_finding(content)
    except RefusedInputError:
        refused = True
    assert refused or json.dumps(content)


def test_a_state_is_written_whole_and_read_again(store: Store) -> None:
    state = StudyState(name="quick", title="T", resume="r", started_at="s", tasks=[])
    store.studies.write(state)
    store.studies.write(replace(state, title="U"))
    assert store.studies.get("quick") == replace(state, title="U")
    assert store.studies.get("other") is None
    assert store.studies.get("../format") is None
    assert [path.name for path in store.layout.studies.iterdir()] == ["quick.json"]
    assert list(store.layout.tmp.iterdir()) == []


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema": 2}', '{"schema":1,"kind":"study","tasks":[3]}'])
def test_a_damaged_state_is_as_good_as_none(store: Store, content: str) -> None:
    store.layout.studies.mkdir()
    (store.layout.studies / "quick.json").write_text(content)
    assert store.studies.get("quick") is None
    assert store.studies.list() == []


def test_folders_of_a_store_do_not_make_it_foreign(tmp_path: Path) -> None:
    for name in ("findings", "studies"):
        (tmp_path / name).mkdir()
    assert Store.open(tmp_path).findings.list() == []


class TestGivenAway:
    """Findings travel with the records of runs, redacted as they are."""

    def exported(self, store: Store, path: Path, *, redact: bool = True) -> Path:
        from deepstone.store.export.jsonl import export_findings, export_jsonl

        records = [store.get(row.id) for row in store.list().rows]
        lines = [*export_jsonl(records, redact=redact), *export_findings(store.findings.list(), redact=redact)]
        path.write_text("".join(lines))
        return path

    def test_and_come_back(self, store: Store, tmp_path: Path) -> None:
        store.add(typed_draft())
        kept = store.findings.add(
            finding(failure={"reason": "on node01 for alice", "stderr_tail": "/home/alice/net.py"})
        )
        file = self.exported(store, tmp_path / "all.jsonl")
        assert "alice" not in file.read_text()
        assert "node01" not in file.read_text()
        other = Store.open(tmp_path / "other")
        imported = import_records(other, file)
        assert (imported.added, imported.skipped) == (2, 0)
        assert len(other.list().rows) == 1
        (there,) = other.findings.list()
        assert (there.id, there.task, there.content) == (kept.id, kept.task, kept.content)
        assert import_records(other, file).skipped == 2

    def test_as_they_are(self, store: Store, tmp_path: Path) -> None:
        kept = store.findings.add(finding())
        file = self.exported(store, tmp_path / "all.jsonl", redact=False)
        other = Store.open(tmp_path / "other")
        import_records(other, file)
        assert other.findings.list() == [kept]

    def test_one_that_is_wrong_refuses_the_file(self, store: Store, tmp_path: Path) -> None:
        file = tmp_path / "bad.jsonl"
        file.write_text(json.dumps({**draft(), "id": f"{sha('a')[:20]}-1", "kind": "nonsense"}) + "\n")
        with pytest.raises(RefusedInputError, match=r"line 1: kind: must be one of .*; nothing was imported"):
            import_records(store, file)

    def test_another_with_the_same_name_is_refused(self, store: Store, tmp_path: Path) -> None:
        kept = store.findings.add(finding())
        file = tmp_path / "other.jsonl"
        file.write_text(json.dumps({**kept.to_json(), "peaks": []}) + "\n")
        with pytest.raises(RefusedInputError, match="with other content"):
            import_records(store, file)

    def test_that_of_an_equal_machine_gets_the_next_number(self, store: Store, tmp_path: Path) -> None:
        store.findings.add(finding())
        away = Store.open(tmp_path / "away")
        theirs = away.findings.add(finding(started_at="2030-01-01T00:00:00.000000Z"))
        file = self.exported(away, tmp_path / "away.jsonl")
        assert import_records(store, file).renumbered == 1
        assert import_records(store, file).skipped == 1
        assert [each.origin for each in store.findings.list()] == [None, theirs.id]

    def test_only_what_was_asked_for(self, store: Store) -> None:
        from deepstone.store.export.jsonl import matching
        from deepstone.store.rows import filters_of

        setup = {
            "requested": {"batch": 8, "layout": "nhwc"},
            "effective": {"framework": {"value": "torch@2", "source": "set"}},
        }
        kept = store.findings.add(finding(setup=setup))
        for wanted, found in [
            ({}, True),
            ({"model": "cifarnet", "batch": 8, "layout": "nhwc", "framework": "torch@2"}, True),
            ({"model": "alexnet"}, False),
            ({"layout": "nchw"}, False),
            ({"job": "0" * 64}, False),
        ]:
            assert list(matching([kept], filters_of(wanted))) == ([kept] if found else [])


def test_a_full_disk_loses_nothing(small_disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = Store.open(small_disk.root / "store")
    store.findings.add(finding())
    small_disk.fill()
    with pytest.raises(StoreError, match="no space left on device; the finding is saved in") as error:
        store.findings.add(finding(peaks=[{"device": "x" * 5000, "framework": "torch"}]))
    small_disk.make_room()
    saved = Path(str(error.value).split("saved in ")[1].split(": make room")[0])
    assert import_records(store, saved).added == 1
    assert len(store.findings.of_task(sha("a"))) == 2
    assert str(store.findings.add(finding()).id).endswith("-2")  # what was rescued does not count on
