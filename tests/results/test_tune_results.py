"""The answer of `deepstone tune` is read and written as a finding; what does not fit is refused with its place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tune_example import tune_finding, tuned

from deepstone.errors import RefusedInputError
from deepstone.results import codec
from deepstone.results.findings import KINDS
from deepstone.results.tune import Tuned


def test_an_answer_survives_json_unchanged() -> None:
    finding = tune_finding()
    again = codec.as_bare_finding(json.loads(json.dumps(finding.to_json())))
    assert KINDS["tune"] is Tuned
    assert again == finding
    assert again.content == tuned()


def test_its_keys_are_those_of_the_contract() -> None:
    content: dict[str, Any] = tuned().to_json()
    for key in ("space", "default", "best", "ratio", "finals", "same", "why", "looks", "objective", "budget"):
        assert key in content, key
    assert set(content["why"][0]) >= {"axis", "added", "removed"}
    assert set(content["best"]) >= {"setup", "samples_per_s"}
    failed = next(look for look in content["looks"] if look["outcome"] == "oom")
    assert failed["samples_per_s"] == {"absent": "oom: the device has too little memory"}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"looks": [{"kind": "guess"}]}, "looks"),
        ({"answer": "probably"}, "answer"),
        ({"same": {"level": "roughly"}}, "same"),
        ({"extra": 1}, "extra"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(change: dict[str, Any], place: str) -> None:
    with pytest.raises(RefusedInputError, match=place):
        codec.as_bare_finding({**tune_finding().to_json(), **change})
