"""Reading many runs at once: whole, in order, with what is damaged told or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from depth import examples
from factory import make_record, sealed, typed, typed_draft, typed_record
from hostile import NAMES
from hypothesis import given
from hypothesis import strategies as st

from deepstone.errors import RefusedInputError, StoreError, UsageError
from deepstone.results import codec
from deepstone.setups.axes import AXES
from deepstone.store.catalog import in_memory
from deepstone.store.importing import read_records
from deepstone.store.layout import Damage
from deepstone.store.rows import Filters, Row, filters_of, matches, row_of
from deepstone.store.store import Store


@pytest.fixture
def rows(store: Store) -> list[Row]:
    for batch in (4, 2, 8):
        store.add(typed_draft(batch=batch))
    return list(store.list().rows)


class TestRecords:
    def test_they_come_in_the_order_asked_for(self, store: Store, rows: list[Row]):
        backwards = rows[::-1]
        assert [record.id for record in store.records(backwards)] == [row.id for row in backwards]
        assert list(store.records(rows)) == [store.get(row.id) for row in rows]

    @pytest.mark.parametrize("content", [b"", b"{}", b"not json", b"[" * 100_000, b'{"record":{},"sha256":""}\n'])
    def test_a_damaged_one_is_refused_or_told(self, store: Store, rows: list[Row], content: bytes):
        path = store.layout.run_file(rows[1].id)
        path.write_bytes(content)
        with pytest.raises(StoreError, match="is damaged"):
            list(store.records(rows))
        damaged: list[Damage] = []
        assert [record.id for record in store.records(rows, damaged=damaged)] == [rows[0].id, rows[2].id]
        assert [damage.path for damage in damaged] == [path]

    def test_every_flipped_bit_of_the_record_is_noticed(self, store: Store, rows: list[Row]):
        path = store.layout.run_file(rows[0].id)
        good = path.read_bytes()
        end = good.index(b',"sha256":')
        for position in range(10, end, 37):
            path.write_bytes(good[:position] + bytes([good[position] ^ 4]) + good[position + 1 :])
            with pytest.raises(StoreError):
                list(store.records(rows))
        for position in range(len(good)):  # what is around the record, when it is read for the first time
            if not 10 <= position < end:
                path.write_bytes(good[:position] + bytes([good[position] ^ 4]) + good[position + 1 :])
                with pytest.raises(StoreError):
                    store.get(rows[0].id)

    def test_what_was_put_there_since_the_listing_is_checked_anew(self, store: Store, rows: list[Row]):
        record: Any = store.get(rows[0].id)
        path = store.layout.run_file(rows[0].id)
        path.write_bytes(sealed({**record.to_json(), "outcome": "splendid"}))  # with a checksum that fits
        with pytest.raises(StoreError, match="outcome"):
            list(store.records(rows))
        path.write_bytes(sealed({**record.to_json(), "command": ["deepstone", "another"]}))
        assert next(store.records(rows)).command == ["deepstone", "another"]

    def test_a_record_under_the_name_of_another(self, store: Store, rows: list[Row]):
        store.layout.run_file(rows[0].id).write_bytes(store.layout.run_file(rows[1].id).read_bytes())
        with pytest.raises(StoreError, match=f"holds the run {rows[1].id}"):
            list(store.records(rows))

    def test_a_file_that_was_formatted_anew_is_still_good(self, store: Store, rows: list[Row]):
        record = store.get(rows[0].id)
        text = json.dumps({"sha256": codec.sha256(record), "record": record.to_json()}, indent=2)
        store.layout.run_file(rows[0].id).write_text(text)
        assert next(store.records(rows)) == record
        store.rebuild()
        assert next(store.records(store.list().rows)) == record

    def test_one_deleted_meanwhile(self, store: Store, rows: list[Row]):
        store.delete(rows[0].id)
        assert [record.id for record in store.records(rows)] == [row.id for row in rows[1:]]


class TestRecordFile:
    def test_it_reads_what_export_writes(self, tmp_path: Path):
        records = [typed_record(batch=batch) for batch in (1, 2)]
        path = tmp_path / "runs.jsonl"
        path.write_text("".join(json.dumps(record.to_json()) + "\n" for record in records))
        assert read_records(path) == records
        path.write_text(json.dumps([record.to_json() for record in records]))
        assert read_records(path) == records

    @pytest.mark.parametrize(("content", "told"), [("", "is not JSON"), ("[]", "no records"), ("{}\n", "line 1")])
    def test_it_refuses_what_is_none(self, tmp_path: Path, content: str, told: str):
        path = tmp_path / "runs.jsonl"
        path.write_text(content)
        with pytest.raises(RefusedInputError, match=told) as refused:
            read_records(path)
        assert "imported" not in str(refused.value)


class TestFilters:
    def test_columns_and_axes(self):
        found = filters_of({"model": "vgg16", "batch": 8, "layout": "nhwc"})
        assert found == Filters(model="vgg16", axes={"batch": "8", "layout": "nhwc"})

    @pytest.mark.parametrize("name", ["modle", "laoyut", "", "id; DROP TABLE runs"])
    def test_a_name_that_is_neither(self, name: str):
        with pytest.raises(UsageError, match="no such column or axis"):
            filters_of({name: "x"})

    def test_a_framework_is_found_by_its_name_and_with_its_version(self, store: Store):
        for version in ("torch@2.10.0", "torch@2.11.0", "torchx@1"):
            draft: Any = typed_draft(requested={"framework": version})
            store.add(draft)
        assert len(store.list(Filters(framework="torch")).rows) == 2
        assert len(store.list(Filters(framework="torch@2.11.0")).rows) == 1
        assert len(store.list(Filters(framework="torch@2")).rows) == 0

    @given(
        framework=st.one_of(st.sampled_from(["torch", "torch@2", "jax@", "@"]), NAMES),
        wanted=st.one_of(st.sampled_from(["torch", "torch@2", "jax", "@", ""]), NAMES),
        axes=st.dictionaries(st.sampled_from(sorted(AXES)), st.sampled_from(["auto", "2", "nhwc"]), max_size=2),
        model=st.sampled_from([None, "cifarnet", "vgg16"]),
    )
    @examples(100)
    def test_a_record_matches_exactly_when_the_index_finds_it(
        self, framework: str, wanted: str, axes: dict[str, str], model: str | None
    ):
        content: Any = make_record(requested={"framework": "auto", "layout": "nhwc", "threads": 2})
        content["setup"]["effective"]["framework"] = {"value": framework, "source": "set"}
        record = typed(content)
        filters = Filters(framework=wanted, model=model, axes=axes)
        with in_memory(copied_from=None) as index:
            index.update(gone=(), new=[row_of(record)])
            assert bool(index.select(filters)) == matches(record, filters)
