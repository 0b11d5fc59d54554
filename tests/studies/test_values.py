"""Lists, ranges, and the words for what only the machine knows."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deepstone.errors import UsageError
from deepstone.studies.durations import duration, parse_duration
from deepstone.studies.values import Here, Listed, Range, count, parse_range, parse_value, resolve

HERE = Here(cores=6, frameworks=("torch", "jax"))


@pytest.mark.parametrize(
    ("given_range", "values"),
    [
        ({"from": 1, "to": 8, "times": 2}, (1, 2, 4, 8)),
        ({"from": 1, "to": 9, "times": 2}, (1, 2, 4, 8)),
        ({"from": 1, "to": "cores", "times": 2}, (1, 2, 4, 6)),
        ({"from": 2, "to": "cores", "step": 2}, (2, 4, 6)),
        ({"from": 8, "to": 64, "step": 8}, (8, 16, 24, 32, 40, 48, 56, 64)),
        ({"from": 8, "to": "cores", "times": 2}, (6,)),  # fewer cores than it begins with
        ({"from": 3, "to": 3, "step": 5}, (3,)),
    ],
)
def test_ranges(given_range: dict[str, object], values: tuple[int, ...]) -> None:
    assert resolve(parse_range("threads", given_range), HERE) == values


@given(
    start=st.integers(1, 300),
    stop=st.none() | st.integers(1, 4000),
    step=st.integers(1, 50),
    times=st.integers(2, 10),
    by_step=st.booleans(),
    cores=st.integers(1, 256),
)
def test_a_range_is_counted_without_being_made(
    start: int, stop: int | None, step: int, times: int, by_step: bool, cores: int
) -> None:
    values = Range(start=start, stop=stop, step=step if by_step else 0, times=0 if by_step else times)
    here = Here(cores=cores, frameworks=())
    made = resolve(values, here)
    assert count(values, here) == len(made)
    assert list(made) == sorted(set(made))
    if stop is None:
        assert made[-1] == cores


def test_a_huge_range_is_counted_at_once() -> None:
    assert count(Range(start=1, stop=2**31 - 1, step=1), HERE) == 2**31 - 1


def test_words_stand_for_what_is_here() -> None:
    frameworks = Listed(values=(parse_value("framework", "jax"), parse_value("framework", "installed")))
    assert resolve(frameworks, HERE) == ("jax", "torch")
    assert resolve(Listed(values=(1, parse_value("threads", "cores"), 6)), HERE) == (1, 6)


@pytest.mark.parametrize(
    ("axis", "value", "told"),
    [
        ("layout", "nwhc", "nhwc"),
        ("layout", "cores", "not a value of layout"),
        ("threads", "installed", "whole number"),
        ("batch", 0, "from 1"),
        ("batch", 1.5, "not 1.5"),
        ("batch", True, "not True"),
        ("batch", [1], "text or a whole number"),
    ],
)
def test_wrong_values(axis: str, value: object, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse_value(axis, value)


@pytest.mark.parametrize(
    ("axis", "given_range", "told"),
    [
        ("layout", {"from": 1, "to": 2, "step": 1}, "takes no range"),
        ("batch", {"from": 1, "to": 8}, "either step or times"),
        ("batch", {"from": 1, "to": 8, "step": 1, "times": 2}, "either step or times"),
        ("batch", {"to": 8, "step": 1}, "has from, to"),
        ("batch", {"from": 1, "til": 8, "step": 1}, "til: no such key of a range"),
        ("batch", {"from": 8, "to": 1, "step": 1}, "before it begins"),
        ("batch", {"from": 1, "to": 8, "times": 1}, "from 2"),
        ("batch", {"from": 1, "to": 8, "step": 0}, "from 1"),
        ("batch", {"from": 1, "to": "core", "step": 1}, '"cores"'),
        ("batch", {"from": 1, "to": 2**30, "step": 1}, "batch=1073741824"),
        ("seed", {"from": 0, "to": 8, "times": 2}, "begin at 1"),
    ],
)
def test_wrong_ranges(axis: str, given_range: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse_range(axis, given_range)


@pytest.mark.parametrize(
    ("text", "value_s"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("90 s", 90),
        ("20 min", 1200),
        ("20min", 1200),
        ("1.5 h", 5400),
        ("2 hours", 7200),
        ("1 Day", 86400),
        ("5 mins", 300),
        ("300", 300),
    ],
)
def test_times(text: str, value_s: float) -> None:
    assert parse_duration(text) == value_s


@pytest.mark.parametrize(
    "text", ["", "soon", "0", "0 s", "-3 s", "3 weeks", "1e9 h", "10 min now", "1ms", "2 hs", "3ss"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match="write it as in"):
        parse_duration(text)


UNITS_S = {"": 1, "s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1, "m": 60, "min": 60, "mins": 60, "minute": 60}
UNITS_S |= {"minutes": 60, "h": 3600, "hour": 3600, "hours": 3600, "d": 86400, "day": 86400, "days": 86400}


@example(1, "", "ms")
@example(5, " ", "min")
@given(st.integers(1, 300), st.sampled_from(["", " "]), st.text("smhdinecoutray", max_size=7))
def test_a_unit_counts_as_a_whole_or_not_at_all(number: int, space: str, unit: str) -> None:
    """A plural `s` belongs to a word, not to a letter: `1ms` is no minute."""
    text = f"{number}{space}{unit}"
    if unit in UNITS_S:
        assert parse_duration(text) == number * UNITS_S[unit]
        return
    with pytest.raises(UsageError, match="write it as in"):
        parse_duration(text)


@given(st.floats(1, 3e6))
def test_a_time_is_told_to_within_some_percent(value_s: float) -> None:
    told = duration(value_s)
    hours, _, minutes = told.rpartition(" h ")
    read_s = parse_duration(f"{hours} h") + parse_duration(minutes) if hours else parse_duration(told)
    assert read_s == pytest.approx(value_s, rel=0.35, abs=1)
