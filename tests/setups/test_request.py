"""Requests: words to values, lists to all their combinations, and back to the shortest words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.errors import UsageError
from deepstone.setups.axes import AXES
from deepstone.setups.request import as_words, complete, expand, parse_words

VALUES = {
    "framework": st.sampled_from(["auto", "torch", "fake", "torch@2.6.0", "torch@2.13.0+cpu"]),
    "device": st.sampled_from(["auto", "cpu", "gpu:0", "gpu:12"]),
    "affinity": st.sampled_from(["auto", "0", "0-3", "0+2+4-5"]),
    "processes": st.sampled_from(["auto", 1, 2, 16, "4/node"]),
    "interface": st.sampled_from(["auto", "eth0"]),
    **{
        name: st.sampled_from(axis.values) if axis.type == "choice" else st.integers(1, 4096)
        for name, axis in AXES.items()
        if axis.type in ("choice", "count")
    },
}


def test_every_axis_is_drawn():
    assert set(VALUES) == set(AXES)


@given(given=st.fixed_dictionaries({}, optional=VALUES))
def test_a_request_written_as_words_is_the_same_request(given):
    request = complete(given)
    assert list(request) == list(AXES)
    assert expand(parse_words(as_words(request))) == [request]


LISTS = {name: st.lists(values, min_size=1, max_size=3, unique=True) for name, values in VALUES.items()}


@given(given=st.fixed_dictionaries({}, optional=LISTS))
def test_every_combination_comes_once(given):
    names = list(given)[:3]
    words = [f"{name}={','.join(map(str, given[name]))}" for name in names]
    requests = expand(parse_words(words))
    points = [tuple(request[name] for name in names) for request in requests]
    size = 1
    for name in names:
        size *= len(given[name])
    assert len(set(points)) == len(points) == size
    for request in requests:
        assert {name: value for name, value in request.items() if name not in names} == {
            name: axis.default for name, axis in AXES.items() if name not in names
        }


@given(words=st.lists(st.text() | st.builds("{}={}".format, st.sampled_from(list(AXES)), st.text()), max_size=4))
def test_any_words_are_choices_or_one_line(words: list[str]):
    choices, message = {}, ""
    try:
        choices = parse_words(words)
    except UsageError as error:
        message = str(error)
    assert message.isprintable()
    assert set(choices) <= set(AXES)
    assert all(choices.values())


def test_the_last_axis_changes_fastest():
    requests = expand(parse_words(["batch=8,32", "layout=nchw,nhwc"]))
    assert [(request["batch"], request["layout"]) for request in requests] == [
        (8, "nchw"),
        (8, "nhwc"),
        (32, "nchw"),
        (32, "nhwc"),
    ]


def test_no_words_mean_all_defaults():
    (request,) = expand(parse_words([]))
    assert request == {name: axis.default for name, axis in AXES.items()}
    assert as_words(request) == []


def test_spaces_around_values_do_no_harm():
    assert parse_words(["batch= 8 , 16"]) == {"batch": [8, 16]}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("batch", "'batch' is not AXIS=VALUE"),
        ("bach=8", "bach: no such axis; did you mean batch"),
        ("zzz=8", "zzz: no such axis; known: accumulate"),
        ("=8", "no such axis"),
        ("batch=8 batch=16", "batch: given twice; write batch=A,B"),
        ("batch=8,8", "a value is listed twice"),
        ("device=cuda,gpu:0", "a value is listed twice"),
        ("batch=8,", "batch=: must be a whole number"),
        ("batch=8,x", "batch=x: must be a whole number"),
        ("layout=a\nb", r"layout='a\\nb': not a value"),
        ("\x1b[31m=1", r"'\\x1b\[31m': no such axis"),
    ],
)
def test_refused(words: str, says: str):
    with pytest.raises(UsageError, match=says) as error:
        parse_words(words.split(" "))
    assert str(error.value).isprintable()
