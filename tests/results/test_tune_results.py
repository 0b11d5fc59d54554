"""The answer of `deepstone tune` is read and written as a finding; what does not fit is refused with its place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace
from tune_example import near, tune_finding, tuned

from deepstone.absent import Absent
from deepstone.cli.show_tune import show_tuned
from deepstone.errors import RefusedInputError
from deepstone.results import codec
from deepstone.results.findings import KINDS
from deepstone.results.tune import SameMeasure, Tuned


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


def test_words_of_sameness_name_a_limit_only_where_there_is_one() -> None:
    far = SameMeasure(value=1e6, tolerance=0.1, where="conv1", within="the step")
    close = SameMeasure(value=0.031, tolerance=0.1)
    assert far.in_words() == "more than 1,000 % of the step in conv1 (10 % allowed)"
    assert close.in_words() == "3.1 % of what other data change (10 % allowed)"
    assert close.in_words("any") == "3.1 % of what other data change"
    same = tuned().same
    assert not isinstance(same, Absent)
    setup = next(each for each in same.setups if each.ok)
    assert "allowed" in setup.in_words("close")
    assert "allowed" not in setup.in_words("any")


def test_only_a_gain_has_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    gain, *_ = tuned().why
    loss = replace(gain, axis="threads", contribution=near(0.872))
    show_tuned(replace(tuned(), why=[gain, loss]), None)
    lines = capsys.readouterr().out.splitlines()
    (with_gain,) = (line for line in lines if f" {gain.axis} " in line and "added" in line)
    (with_loss,) = (line for line in lines if "0.872x" in line)
    assert "█" in with_gain
    assert "█" not in with_loss


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
