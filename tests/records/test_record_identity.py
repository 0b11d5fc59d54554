"""Jobs are named by what they are, and nothing else."""

from __future__ import annotations

import hashlib
import json

import pytest
from factory import make_draft
from hypothesis import given
from hypothesis import strategies as st

from deepstone.records.identity import RUN_PATTERN, canonical_json, job_id, run_id

JSON = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_canonical_json_loses_nothing(value: object):
    assert json.loads(canonical_json(value)) == value


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_the_order_of_keys_does_not_count(items: dict[str, int]):
    assert canonical_json(items) == canonical_json(dict(reversed(items.items())))


def test_canonical_json_is_compact_ascii():
    assert canonical_json({"b": "µ", "a": [1, 0.5]}) == r'{"a":[1,0.5],"b":"\u00b5"}'


def test_canonical_json_refuses_what_json_has_not():
    with pytest.raises(ValueError):
        canonical_json(float("nan"))


def test_a_job_is_the_sha_of_its_identity():
    draft = make_draft()
    expected = hashlib.sha256(canonical_json(draft["identity"]).encode()).hexdigest()
    assert draft["job"] == job_id(draft["identity"]) == expected


def test_each_part_of_the_identity_makes_another_job():
    jobs = {
        make_draft()["job"],
        make_draft(model="vgg16")["job"],
        make_draft(batch=16)["job"],
        make_draft(phase="forward")["job"],
        make_draft(repetition=2)["job"],
        make_draft(requested={"framework": "torch"})["job"],
    }
    assert len(jobs) == 6


def test_a_run_is_a_job_and_an_attempt():
    run = run_id("ab" * 32, 12)
    assert run == "abababababababababab-12"
    assert RUN_PATTERN.fullmatch(run)
