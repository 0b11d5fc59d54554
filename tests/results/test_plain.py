"""Reading bytes that anyone may have written."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress

import pytest
from depth import examples
from factory import decode_record, make_record
from hypothesis import given
from hypothesis import strategies as st

from deepstone.errors import RefusedInputError
from deepstone.results.identity import canonical_json
from deepstone.results.plain import check_structure, parse_json

GOOD = canonical_json(make_record()).encode()


def test_a_record_is_read_back_as_it_was_written():
    assert decode_record(GOOD).to_json() == make_record()


def test_a_record_may_be_written_for_people():
    assert decode_record(json.dumps(make_record(), indent=4).encode()).to_json() == make_record()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\0" * 100, "is not JSON"),
        (b'{"a": 1} extra', "is not JSON: Extra data (line 1, column 10)"),
        (b'"\xff"', "byte 2 is not UTF-8 text"),
        (b'{"a": 1, "b": 2, "a": 3}', "holds the key 'a' twice in one object"),
        (b'{"x": NaN}', "holds NaN"),
        (b"[-Infinity]", "holds -Infinity"),
        (b"[" + b"9" * 20 + b"]", "holds a whole number of more than 19 digits"),
        (b"[-" + b"9" * 100_000 + b"]", "holds a whole number of more than 19 digits"),
        (b"[" * 100_000, "is nested more than 32 levels deep"),
        (b"[" * 100_000 + b"]" * 100_000, "is nested more than 32 levels deep"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "is nested more than 32 levels deep"),
        (b"[" + b"{}," * 2_000_001 + b"1]", "holds more than 2,000,000 lists and objects"),
    ],
    ids=lambda value: repr(value[:12]) if isinstance(value, bytes) else "",
)
def test_hostile_text_is_refused(data: bytes, message: str):
    with pytest.raises(RefusedInputError, match=re.escape(message)):
        parse_json(data)


def test_a_number_too_large_for_a_float_is_refused():
    with pytest.raises(RefusedInputError, match="must be a finite number, not inf"):
        decode_record(GOOD.replace(b'"import_s":1.25', b'"import_s":1e999'))


def test_an_escaped_lone_surrogate_is_refused():
    with pytest.raises(RefusedInputError, match="lone surrogates"):
        decode_record(GOOD.replace(b"Example CPU", rb"Example \ud800"))


def test_a_text_too_large_is_refused_before_it_is_looked_at():
    with pytest.raises(RefusedInputError, match="larger than 64 MiB"):
        parse_json(bytes(64 * 2**20 + 1))


@pytest.mark.parametrize("text", ['["[[[["]', r'["\"[[["]', r'["\\", []]', r'["\\\"[[[", "]"]', '{"[{[{": "}]"}'])
def test_brackets_in_strings_do_not_count(text: str):
    deep = text.replace("[[", "[" * 50)
    assert parse_json(deep.encode()) == json.loads(deep)


def test_looking_for_depth_takes_linear_time():
    start_s = time.process_time()
    check_structure(b'"' + b'\\"' * 4_000_000)
    check_structure(b"\\" * 8_000_000)
    check_structure(b'"' * 8_000_000)
    assert time.process_time() - start_s < 5


@examples(200)
@given(st.integers(0, len(GOOD) - 1), st.binary(max_size=4), st.integers(0, 8))
def test_a_damaged_record_is_read_or_refused(position: int, inserted: bytes, removed: int):
    data = GOOD[:position] + inserted + GOOD[position + removed :]
    with suppress(RefusedInputError):
        decode_record(data)


@examples(100)
@given(st.binary(max_size=60))
def test_any_bytes_are_refused(data: bytes):
    with pytest.raises(RefusedInputError):
        decode_record(data)
