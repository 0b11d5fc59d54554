"""Markdown: everything that counts is in it, and no name becomes markup."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_book import sources
from shapes import AWKWARD
from test_page import hostile_sources

from deepstone.report.book import make_book
from deepstone.report.markdown import plain, render_markdown


def test_statements_claims_numbers_and_what_is_missing() -> None:
    text = render_markdown(make_book(sources()), {"results/made-up-bars": "figures/results-made-up-bars.svg"})
    assert text.startswith("# Measured on")
    for words in (
        "- bf16-mixed is 2.1x (2.0 – 2.2) as fast.",
        "| kim-1 | Convolutions take most of the time. | more than 90 % | weaker | 71 % (70 % – 72 %) |",
        "![A chart of bars](figures/results-made-up-bars.svg)",
        "| NVIDIA H200 | torch |  | 900 images/s | 864 images/s – 954 images/s | 3 |",
        "- resnet50 batch=64: left out: no time: 90 s wanted, 20 s left",
        "    deepstone study quick",
        "oom: the worker ended: oom",
    ):
        assert words in text


def test_tables_are_whole() -> None:
    text = render_markdown(make_book(sources()), {})
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1


@pytest.mark.parametrize("name", AWKWARD)
def test_names_are_only_names(name: str) -> None:
    text = render_markdown(make_book(hostile_sources(name)), {})
    outside = re.sub(r"^    .*$", "", text, flags=re.MULTILINE)  # an indented line is code
    assert not re.search(r"(?<!\\)<", outside)
    assert not re.search(r"(?<![\\!])\[.*\]\(", outside)


@given(st.text())
def test_plain_text_is_one_line_and_opens_nothing(text: str) -> None:
    shown = plain(text)
    assert "\n" not in shown
    assert not re.search(r"(?<!\\)(?:\\\\)*[<|`*_\[\]]", shown)
