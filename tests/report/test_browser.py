"""The page in a real browser: it draws, asks for nothing, fits a telephone, obeys keys, and runs no stranger's code."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from browsing import WIDTHS, until, visit
from made_up import conv_result, layers_result, several
from made_up_charts import chart
from shapes import AWKWARD

from deepstone.report.files import as_result, draw


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    results = {"layers": layers_result(), "frameworks": several("cifarnet"), "conv": conv_result("alexnet-kim")}
    results |= {f"chart {form}": chart(form) for form in ("bars", "lines", "ratios")}
    for name, result in results.items():
        draw(as_result(result), folder / f"{name}.html")
    draw(as_result(layers_result()), folder / "bars.html", "bars")
    return {name: folder / f"{name}.html" for name in (*results, "bars")}


@pytest.mark.parametrize(
    ("name", "width"),
    [
        *[("layers", 1400), ("layers", 390), ("frameworks", 390), ("conv", 1400), ("conv", 390)],
        *[("chart bars", 390), ("chart lines", 390), ("chart ratios", 390)],
    ],
)
def test_every_plot_is_drawn_and_nothing_is_asked_for(
    browser: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    seen = visit(browser, pages[name], width=width)
    seen.assert_drawn()
    assert seen.page.evaluate("document.documentElement.scrollWidth") == width  # nothing sticks out
    seen.assert_quiet()
    seen.page.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_labels_stand_within_the_window(browser: Any, pages: dict[str, Path], width: int) -> None:
    seen = visit(browser, pages["layers"], width=width)
    boxes = seen.page.evaluate(
        "[...document.querySelectorAll('.ytick, .xtick, .words')]"
        ".map(e => e.getBoundingClientRect()).map(b => [b.left, b.right])"
    )
    assert len(boxes) > 50
    assert all(left >= 0 and right <= width for left, right in boxes)
    seen.page.close()


def test_names_of_rows_do_not_overlap(browser: Any, pages: dict[str, Path]) -> None:
    seen = visit(browser, pages["bars"], width=390)
    tops = seen.page.evaluate(
        "[...document.querySelectorAll('#plot-1 .ytick')].map(e => e.getBoundingClientRect())"
        ".map(b => [b.top, b.bottom])"
    )
    ordered = sorted(map(tuple, tops))
    assert len(ordered) > 20
    assert all(one[1] <= other[0] + 1 for one, other in pairwise(ordered))
    seen.page.close()


def test_the_keyboard_shows_and_hides_and_opens(browser: Any, pages: dict[str, Path]) -> None:
    seen = visit(browser, pages["bars"])
    page = seen.page
    count = "document.querySelectorAll('#plot-1 .box').length"
    before = page.evaluate(count)
    button = page.locator("button.key[data-plot='1']").first
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "false"
    assert page.evaluate(count) < before
    page.keyboard.press("Space")
    assert button.get_attribute("aria-pressed") == "true"
    assert page.evaluate(count) == before
    summary = page.locator("summary").first
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator("td", has_text="conv2").first.is_visible()
    seen.assert_quiet()
    page.close()


def test_colours_follow_the_scheme(browser: Any, pages: dict[str, Path]) -> None:
    seen = visit(browser, pages["bars"], scheme="light")
    ink = "getComputedStyle(document.querySelector('.ytick')).fill"
    light = seen.page.evaluate(ink)
    seen.page.emulate_media(color_scheme="dark")
    until(seen.page, f"{ink} !== '{light}'")
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    seen.assert_quiet()
    seen.page.close()


def test_a_changed_window_is_drawn_anew(browser: Any, pages: dict[str, Path]) -> None:
    seen = visit(browser, pages["bars"])
    seen.page.set_viewport_size({"width": 390, "height": 800})
    until(seen.page, "document.querySelector('#plot-0 .drawing').getBoundingClientRect().width < 390")
    assert seen.page.evaluate("document.documentElement.scrollWidth") == 390
    seen.page.close()


def test_the_policy_stops_what_gets_in(browser: Any, pages: dict[str, Path]) -> None:
    """Were a name to become markup after all, it still could neither run nor fetch anything."""
    seen = visit(browser, pages["conv"])
    seen.page.evaluate(
        "() => { const e = document.createElement('script'); e.textContent = 'window.ran = 1'; document.body.append(e);"
        " const i = new Image(); i.src = 'https://example.invalid/x.png'; document.body.append(i); }"
    )
    assert seen.page.evaluate("window.ran") is None
    assert len(seen.complaints) == 2
    assert all("Content Security Policy" in line for line in seen.complaints)
    seen.page.close()


@pytest.mark.parametrize("make", [layers_result, conv_result])
def test_hostile_names_do_nothing(browser: Any, tmp_path: Path, make: Any) -> None:
    result = make("alexnet-kim")
    for layer, name in zip(result["layers"], AWKWARD, strict=False):
        layer["name"] = name
    result["model"] = AWKWARD[1]
    result["command"] = list(AWKWARD)
    for group, name in zip(result.get("groups", []), AWKWARD, strict=False):
        group["name"] = name
    path = tmp_path / "hostile.html"
    draw(as_result(result), path)
    seen = visit(browser, path)
    assert seen.page.evaluate("document.querySelectorAll('main img, main iframe, main script').length") == 0
    assert seen.page.evaluate("document.querySelectorAll('.plot a').length") == 0
    for row in seen.page.query_selector_all(".plot .drawing")[:3]:
        row.hover()
    shown = seen.page.evaluate("[...document.querySelectorAll('.ytick')].map(e => e.textContent)")
    assert any(text.startswith("<script>alert(1)") for text in shown)
    assert any(text.startswith("$") for text in shown)
    seen.assert_quiet()
    seen.page.close()
