"""Every key and entry of a TOML file is found on its line."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from deepstone.studies.toml_lines import Place, places

TEXT = '''title = "a # [no] table"   # a comment with = and "
description = """
[not]
a = 1
"""
[effort]
budget = 3.5
"quoted key" = 'x'

[[jobs]]
model = ["a",   # first
  "b"]
threads = { from = 1, to = "cores" }
exclude = [
  { layout = "nhwc", batch = 3 },

  { batch = 4 },
]
[[jobs]]
a.b = 1
[jobs.more]
when = 2026-11-15 10:00:00
'''


def test_each_thing_is_where_it_is_written() -> None:
    assert places(TEXT) == {
        ("title",): 1,
        ("description",): 2,
        ("effort",): 6,
        ("effort", "budget"): 7,
        ("effort", "quoted key"): 8,
        ("jobs",): 10,
        ("jobs", 0): 10,
        ("jobs", 0, "model"): 11,
        ("jobs", 0, "model", 0): 11,
        ("jobs", 0, "model", 1): 12,
        ("jobs", 0, "threads"): 13,
        ("jobs", 0, "threads", "from"): 13,
        ("jobs", 0, "threads", "to"): 13,
        ("jobs", 0, "exclude"): 14,
        ("jobs", 0, "exclude", 0): 15,
        ("jobs", 0, "exclude", 0, "layout"): 15,
        ("jobs", 0, "exclude", 0, "batch"): 15,
        ("jobs", 0, "exclude", 1): 17,
        ("jobs", 0, "exclude", 1, "batch"): 17,
        ("jobs", 1): 19,
        ("jobs", 1, "a"): 20,
        ("jobs", 1, "a", "b"): 20,
        ("jobs", 1, "more"): 21,
        ("jobs", 1, "more", "when"): 22,
    }


def test_line_ends_of_other_systems() -> None:
    assert places(TEXT.replace("\n", "\r\n")) == places(TEXT)


def every_place(value: Any, place: Place = ()) -> set[Place]:
    below: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        below = list(value.items())
    elif isinstance(value, list):
        below = list(enumerate(value))
    found = {place} if place else set()
    for key, item in below:
        found |= every_place(item, (*place, key))
    return found


SCALARS = st.one_of(
    st.integers(-99, 99).map(str),
    st.booleans().map(lambda truth: str(truth).lower()),
    st.sampled_from(['"a"', "'#'", '"]"', '"\\""', '""', "''", '"""x\n"y"""', "'''\n'''", "1.5", "inf"]),
)
BLANKS = st.sampled_from(["", " ", "\n", "# [x] = 'y'\n", "\n\n  "])


def lists(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    entry = st.tuples(BLANKS, inner, BLANKS).map("".join)
    return st.lists(entry, max_size=3).map(lambda entries: f"[{','.join(entries)}]")


VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        lists(inner),
        st.lists(inner.filter(lambda text: "\n" not in text), max_size=3).map(
            lambda items: "{" + ", ".join(f"k{n} = {item}" for n, item in enumerate(items)) + "}"
        ),
    ),
    max_leaves=6,
)


@given(st.lists(st.tuples(st.sampled_from(["", "[t{}]", "[[jobs]]"]), VALUES), max_size=6))
def test_whatever_tomllib_reads_has_all_its_places(parts: list[tuple[str, str]]) -> None:
    lines: list[str] = []
    for number, (header, value) in enumerate(parts):
        if header:
            lines.append(header.format(number))
        lines.append(f"key{number} = {value}")
    text = "\n".join(lines) + "\n"
    table = tomllib.loads(text)
    found = places(text)
    assert set(found) == every_place(table)
    written = text.split("\n")
    for place, line in found.items():
        if isinstance(place[-1], str) and place[-1].startswith("key"):
            assert written[line - 1].startswith(f"{place[-1]} = ")
