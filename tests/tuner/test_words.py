"""Ranges, limits and objectives as people write them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.errors import UsageError
from deepstone.studies.durations import parse_duration
from deepstone.tuner.words import expand_ranges, parse_limits, parse_objective


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_a_range_doubles_from_its_first_to_its_last_number(a: int, b: int) -> None:
    if a >= b:
        with pytest.raises(UsageError):
            expand_ranges([f"batch={a}..{b}"])
        return
    (word,) = expand_ranges([f"batch={a}..{b}"])
    values = [int(value) for value in word.removeprefix("batch=").split(",")]
    assert (values[0], values[-1]) == (a, b)
    assert values == sorted(set(values))
    assert all(after == 2 * before for before, after in pairwise(values[:-1]))
    assert values[-1] <= 2 * values[-2]


def test_other_words_stay() -> None:
    assert expand_ranges(["layout=nchw,nhwc", "batch=8", "model..x"]) == ["layout=nchw,nhwc", "batch=8", "model..x"]


@pytest.mark.parametrize(
    ("words", "limits"),
    [
        (["memory=40G"], {"memory": 40 * 2**30}),
        (["memory=512M power=500W"], {"memory": 512 * 2**20, "power": 500}),
        (["memory=1.5GiB", "power=75.5w"], {"memory": 1.5 * 2**30, "power": 75.5}),
        ([], {}),
    ],
)
def test_limits(words: list[str], limits: dict[str, float]) -> None:
    assert {limit.name: limit.most for limit in parse_limits(words)} == limits


@pytest.mark.parametrize("text", ["memory", "memory=0", "memory=-1G", "memory=40X", "power=500", "disk=1G", "power=0W"])
def test_no_limits(text: str) -> None:
    with pytest.raises(UsageError, match="--limit"):
        parse_limits([text])


@pytest.mark.parametrize(
    ("text", "name", "slowdown"),
    [
        ("throughput", "throughput", None),
        ("Energy", "energy", None),
        ("memory", "memory", None),
        ("energy:slowdown=1.05", "energy", 1.05),
        ("throughput:slowdown=1.1", "energy", 1.1),
    ],
)
def test_objectives(text: str, name: str, slowdown: float | None) -> None:
    found = parse_objective(text)
    assert (found.name, found.slowdown) == (name, slowdown)


@pytest.mark.parametrize("text", ["", "fast", "energy:", "energy:slowdown", "energy:slowdown=0.9", "energy:slowdown=x"])
def test_no_objectives(text: str) -> None:
    with pytest.raises(UsageError, match="--objective"):
        parse_objective(text)


@pytest.mark.parametrize("text", ["5m", "300s", "5 min", "300 seconds", "0.0833334h", " 5 MIN "])
def test_times_are_written_in_many_ways(text: str) -> None:
    assert parse_duration(text) == pytest.approx(300, abs=0.1)
