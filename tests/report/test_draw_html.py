"""The page: one file that asks for nothing and holds numbers, command and doubts; names in it do nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from made_up import absent, conv_result, figures_of, layers_result, several
from shapes import AWKWARD

from deepstone.report.page import render_result

VOID = {"meta", "link", "img", "br", "input", "hr"}


class Page(HTMLParser):
    """Elements with their attributes, the text of each kind of element, and whether all were closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self._open):
            self.texts[tag][-1] += data

    def assert_loads_nothing(self) -> None:
        for _, attributes in self.elements:
            for name in ("src", "href", "srcset", "action", "data"):
                target = attributes.get(name) or ""
                assert target.startswith(("#", "data:,")) or target == ""
            assert not any(name.startswith("on") for name in attributes)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def policy(self) -> str:
        return next(meta["content"] or "" for meta in self.of("meta") if "http-equiv" in meta)

    @property
    def plots(self) -> list[dict[str, Any]]:
        return json.loads(next(text for text in self.texts["script"] if text.startswith("[")))


def page(result: dict[str, Any], figure: str | None = None) -> Page:
    return Page(render_result(figures_of(result, figure)).decode("utf-8"))


@pytest.fixture(scope="module")
def drawn() -> Page:
    return page(layers_result())


def test_all_figures_are_there(drawn: Page) -> None:
    assert drawn.texts["h1"] == ["alexnet-owt"]
    assert [section.get("id") for section in drawn.of("section")][:3] == ["bars", "groups", "roofline"]
    assert len(drawn.plots) == 4
    assert [element["id"] for element in drawn.of("div") if element.get("class") == "plot"] == [
        f"plot-{number}" for number in range(4)
    ]


def test_one_figure_alone() -> None:
    only = page(layers_result("cifarnet"), "groups")
    assert [section.get("id") for section in only.of("section")][:1] == ["groups"]
    assert only.of("nav") == []


def test_numbers_command_and_doubts(drawn: Page) -> None:
    text = drawn.texts["body"][0]
    assert "deepstone layers alexnet-owt batch=32 framework=torch@2.13.0" in drawn.texts["pre"]
    assert "other processes took 12 % of the CPU while it measured" in drawn.texts["li"][0]
    assert len(drawn.of("table")) == 3
    rows = [row for row in drawn.texts["tr"] if row.startswith("conv2conv")]
    assert len(rows) == 1
    assert "conv2" in text


def test_what_was_not_drawn_is_told() -> None:
    told = page({**layers_result("cifarnet"), "peaks": absent("not measured")}).texts["li"]
    assert any("roofline" in line and "doctor --peaks" in line for line in told)


def test_only_our_script_may_run(drawn: Page) -> None:
    scripts = [text for text in drawn.texts["script"] if not text.startswith("[")]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    assert len(scripts) == 1
    assert re.findall(r"'sha256-([^']+)'", drawn.policy) == hashes
    assert drawn.policy.startswith("default-src 'none'; script-src 'sha256-")
    script_rule = drawn.policy.split(";")[1]
    assert "unsafe" not in script_rule
    assert [attributes.get("type") for attributes in drawn.of("script")] == ["application/json", None]


def test_nothing_is_loaded_from_elsewhere(drawn: Page) -> None:
    drawn.assert_loads_nothing()


def test_a_page_is_small() -> None:
    assert len(render_result(figures_of(several(), None))) < 300_000


def test_a_keyboard_reaches_everything(drawn: Page) -> None:
    buttons = drawn.of("button")
    keys = [button for button in buttons if button["class"] == "key"]
    assert keys
    assert all(button["type"] == "button" for button in buttons)
    assert all(key["aria-pressed"] == "true" for key in keys)
    assert all(element.get("tabindex") == "0" for element in drawn.of("pre"))
    assert drawn.of("details")
    assert all(
        element["role"] == "img" and element["aria-label"]
        for element in drawn.of("div")
        if "plot-" in (element.get("id") or "")
    )


@pytest.mark.parametrize("hostile", AWKWARD)
@pytest.mark.parametrize("make", [layers_result, conv_result])
def test_names_are_only_names(make: Any, hostile: str) -> None:
    result = make("cifarnet")
    tame = page(make("cifarnet"))
    result["model"] = result["layers"][0]["name"] = hostile
    result["command"] = [hostile]
    found = page(result)
    assert [name for name, _ in found.elements] == [name for name, _ in tame.elements]
    # What the script reads cannot end its element, and the script never takes a text for markup.
    data = next(text for text in found.texts["script"] if text.startswith("["))
    assert "<" not in data
    script = next(text for text in found.texts["script"] if not text.startswith("["))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)
