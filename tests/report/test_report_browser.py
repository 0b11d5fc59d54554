"""A report in a real browser: drawn at both widths, links and keys work, text can be read, names do nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browsing import WIDTHS, until, visit
from made_up_book import runs, sources, sources_of
from shapes import AWKWARD
from test_page import hostile_sources

from deepstone.report.book import Sources, make_book
from deepstone.report.page import render_report

LEAST_CONTRAST = 4.5

# The least contrast of any text that is shown, with the text. Plots are left out: their text is ink on paper.
CONTRAST = """
() => {
  const parts = (colour) => {
    const found = colour.match(/rgba?\\(([^)]+)\\)/)[1].split(',').map(Number);
    return found.length < 4 ? [...found, 1] : found;
  };
  const light = ([r, g, b]) => {
    const linear = (p) => p <= 0.04045 ? p / 12.92 : ((p + 0.055) / 1.055) ** 2.4;
    const [x, y, z] = [r, g, b].map((part) => linear(part / 255));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour[3] > 0) return colour;
    }
    return [255, 255, 255, 1];
  };
  let worst = [99, ''];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || element.closest('svg, script, style, [hidden]') || !element.getClientRects().length) continue;
    const [one, other] = [light(parts(getComputedStyle(element).color)), light(behind(element))].sort((a, b) => b - a);
    const contrast = (one + 0.05) / (other + 0.05);
    if (contrast < worst[0]) worst = [contrast, element.textContent.slice(0, 60)];
  }
  return worst;
}
"""


def written(path: Path, given: Sources) -> Path:
    path.write_bytes(render_report(make_book(given)))
    return path


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("report") / "report.html", sources())


@pytest.mark.parametrize("width", WIDTHS)
def test_everything_is_drawn_and_nothing_is_asked_for(browser: Any, report: Path, width: int) -> None:
    seen = visit(browser, report, width=width)
    seen.assert_drawn()
    assert seen.page.evaluate("document.documentElement.scrollWidth") == width
    seen.page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert seen.page.evaluate("document.documentElement.scrollWidth") == width
    seen.assert_quiet()
    seen.page.close()


def test_a_statement_leads_to_its_runs_and_keys_open_things(browser: Any, report: Path) -> None:
    seen = visit(browser, report)
    page = seen.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.locator(".statements details.ids summary").first.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    until(page, "document.querySelectorAll('tr.told').length === 1")
    assert page.evaluate("location.hash").startswith("#run-")
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    told = page.locator("tr.told")
    assert "in effect" in told.inner_text()
    assert told.locator("code").inner_text().startswith("deepstone run")
    page.keyboard.press("Enter")
    assert page.locator("tr.told").count() == 0
    behind = page.locator("#results details.behind summary").first
    behind.focus()
    page.keyboard.press("Enter")
    assert page.locator("#results td", has_text="NVIDIA H200").first.is_visible()
    page.locator("#find-runs").fill("resnet50 bf16")
    shown = page.locator("tr.run:visible")
    assert 0 < shown.count() < page.locator("tr.run").count()
    assert all("resnet50" in row.inner_text() for row in shown.all())
    seen.assert_quiet()
    page.close()


def test_all_runs_are_one_touch_away_on_a_telephone(browser: Any, report: Path) -> None:
    seen = visit(browser, report, width=390)
    link = seen.page.locator("a.to-runs")
    box = link.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    # Nothing lies over its middle, so a finger reaches it, wherever the page is scrolled to.
    seen.page.evaluate("window.scrollTo(0, 2000)")
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    assert seen.page.evaluate(f"document.elementFromPoint({x}, {y}).textContent") == "All runs"
    link.click()
    until(seen.page, "document.getElementById('runs').getBoundingClientRect().top < 200")
    assert seen.page.locator("#run-table").is_visible()
    seen.page.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_sentences_begin_where_their_heading_does(browser: Any, report: Path, width: int) -> None:
    seen = visit(browser, report, width=width)
    left = "[...document.querySelectorAll('.statements h2, .statements > ul > li > div')]"
    edges = seen.page.evaluate(f"{left}.map((each) => each.getBoundingClientRect().left)")
    assert len(edges) > 3
    assert len(set(edges)) == 1
    seen.page.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_who_points_at_a_bar_or_point_is_told_about_it(browser: Any, report: Path, width: int) -> None:
    seen = visit(browser, report, width=width)
    tip = seen.page.locator(".tip")
    assert tip.is_hidden()
    seen.page.locator("#results .box, #results .dot").first.hover(force=True)
    assert "images/s" in tip.inner_text()
    box = tip.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    seen.page.locator("#results h2").hover()
    assert tip.is_hidden()
    seen.assert_quiet()
    seen.page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(browser: Any, report: Path, scheme: str) -> None:
    seen = visit(browser, report, scheme=scheme)
    seen.page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    seen.page.locator("tr.run button").first.click()
    contrast, text = seen.page.evaluate(CONTRAST)
    assert contrast >= LEAST_CONTRAST, text
    seen.page.close()


def test_the_scheme_can_be_changed_and_paper_is_light(browser: Any, report: Path) -> None:
    seen = visit(browser, report, scheme="dark")
    page = seen.page
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(paper)
    button = page.locator("button.scheme")
    assert button.inner_text() == "Light"
    button.click()
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    button.click()
    assert page.evaluate(paper) == dark
    printed = page.pdf(format="A4")
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") >= 3 or len(printed) > 50_000
    until(page, "document.documentElement.dataset.drawn === 'all'")
    assert page.evaluate(paper) == dark
    seen.assert_quiet()
    page.close()


def test_many_runs_are_shown_when_asked_for(browser: Any, tmp_path: Path) -> None:
    records = runs(450)
    path = written(tmp_path / "many.html", sources_of(records=records))
    last = records[-1]["id"]
    page = visit(browser, path, fragment=f"#run-{last}").page
    visible = page.locator("tr.run:visible")
    assert visible.count() == 201  # the first 200, and the one that was asked for
    assert last in page.locator("tr.told").inner_text()
    page.locator("#more-runs").click()
    assert visible.count() == 450
    assert page.locator("#more-runs").is_hidden()
    page.close()


def test_hostile_names_do_nothing(browser: Any, tmp_path: Path) -> None:
    for number, name in enumerate((*AWKWARD[:4], *AWKWARD[6:8], AWKWARD[9])):
        seen = visit(browser, written(tmp_path / f"{number}.html", hostile_sources(name)), width=390)
        for button in seen.page.query_selector_all("tr.run button"):
            button.click()
        for plot in seen.page.query_selector_all(".plot .drawing"):
            plot.hover()
        assert (
            seen.page.evaluate("document.querySelectorAll('main img, main iframe, main script, .plot a').length") == 0
        )
        assert seen.page.evaluate("document.documentElement.scrollWidth") == 390
        seen.assert_quiet()
        seen.page.close()
