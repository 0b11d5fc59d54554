"""The page of a report: its order, its links, its size with many runs; and names in it do nothing."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from made_up_book import paper, runs, sources, sources_of, statement, study
from made_up_charts import chart
from shapes import AWKWARD
from test_draw_html import Page

from deepstone.report.book import Sources, make_book
from deepstone.report.page import render_report

MEGABYTE = 10**6


def page(given: Sources) -> Page:
    return Page(render_report(make_book(given)).decode("utf-8"))


@pytest.fixture(scope="module")
def drawn() -> Page:
    return page(sources())


def ids(found: Page) -> list[str]:
    return [element["id"] or "" for _, element in found.elements if "id" in element]


def runs_data(found: Page) -> dict[str, Any]:
    return json.loads(next(text for text in found.texts["script"] if text.startswith('{"labels"')))


def test_the_summary_comes_first(drawn: Page) -> None:
    order = [element.get("id") for element in drawn.of("section")]
    assert order[0] == "summary"
    assert order[-1] == "runs"
    assert order.index("paper-kim2017") < order.index("results") < order.index("not-measured")


def test_headings_go_down_one_level_at_a_time(drawn: Page) -> None:
    levels = [int(name[1]) for name, _ in drawn.elements if re.fullmatch("h[1-6]", name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_landmarks_and_a_way_past_the_navigation(drawn: Page) -> None:
    assert [len(drawn.of(name)) for name in ("header", "main", "footer")] == [1, 1, 1]
    first_link = drawn.of("a")[0]
    assert first_link["href"] == "#content"
    assert drawn.of("main")[0]["id"] == "content"
    assert drawn.of("nav")[0]["aria-label"] == "Chapters"


def test_names_in_the_page_are_unique_and_every_link_leads_somewhere(drawn: Page) -> None:
    known = ids(drawn)
    assert len(known) == len(set(known))
    targets = [(link["href"] or "").removeprefix("#") for link in drawn.of("a")]
    assert set(targets) <= set(known)
    assert sum(target.startswith("run-") for target in targets) >= 3


def test_every_plot_has_words_and_a_table(drawn: Page) -> None:
    plots = [element for element in drawn.of("div") if element.get("class") == "plot"]
    assert len(plots) == len(drawn.plots)
    assert all(plot["role"] == "img" and "table below" in (plot["aria-label"] or "") for plot in plots)
    figures = [section for section in drawn.of("section") if section.get("class") == "figure"]
    behind = [details for details in drawn.of("details") if details.get("class") == "behind"]
    assert len(figures) == len(behind)


def test_commands_can_be_copied(drawn: Page) -> None:
    assert "deepstone run alexnet-kim framework=torch,jax" in drawn.texts["pre"]
    copies = [button for button in drawn.of("button") if button.get("class") == "copy"]
    assert len(copies) == len(drawn.of("pre"))


def test_every_run_is_told_when_asked(drawn: Page) -> None:
    data = runs_data(drawn)
    rows = [row for row in drawn.of("tr") if row.get("class") == "run"]
    assert [row["data-run"] for row in rows] == [str(number) for number in range(len(data["runs"]))]
    told = {data["labels"][label]: data["texts"][text] for label, text in data["runs"][0]}
    assert told["run"] == (rows[0]["id"] or "").removeprefix("run-")
    assert told["command"].startswith("deepstone run")


def test_what_was_left_out_failed_or_doubted_is_visible(drawn: Page) -> None:
    text = drawn.texts["main"][0]
    for words in ("no time: 90 s wanted", "deepstone study quick", "oom: the worker ended", "too_short_to_time"):
        assert words in text


def test_statements_beyond_the_first_few_are_folded(drawn: Page) -> None:
    summaries = drawn.texts["summary"]
    assert "3 more" in summaries


def test_advice_opens_the_page_with_the_finding_behind_it() -> None:
    first = {**statement("NHWC trains 2.1x (2.0 – 2.2) as fast."), "advice": "Use layout=nhwc."}
    found = page(sources_of(records=runs(2), statements=[first, statement("It trains at 40 images/s.")]))
    text = found.texts["main"][0]
    assert text.index("Use layout=nhwc.") < text.index("NHWC trains 2.1x") < text.index("It trains at 40 images/s.")
    assert text.count("NHWC trains 2.1x") == 1
    assert "Use layout=nhwc." in found.texts["p"]


def test_only_our_script_may_run(drawn: Page) -> None:
    kinds = [attributes.get("type") for attributes in drawn.of("script")]
    assert kinds == ["application/json", "application/json", None]
    assert drawn.policy.count("'sha256-") == 1
    assert drawn.policy.startswith("default-src 'none'; script-src 'sha256-")
    drawn.assert_loads_nothing()


def test_a_thousand_runs_stay_small() -> None:
    records = runs(1000)
    small, large = (len(render_report(make_book(sources_of(records=records[:count])))) for count in (10, 1000))
    assert small < 0.3 * MEGABYTE
    assert large < 1.4 * MEGABYTE  # ten times as many runs must stay below 15 MB
    assert (large - small) / 990 < 900
    found = page(sources_of(records=records))
    assert sum(row.get("class") == "run" for row in found.of("tr")) == 1000
    assert "step_s" not in found.texts["body"][0]


def test_a_report_of_nothing_but_runs() -> None:
    found = page(sources_of(records=runs(2)))
    assert [element.get("id") for element in found.of("section")] == ["summary", "runs"]
    assert "No difference between two setups" in found.texts["main"][0]


def hostile_sources(name: str) -> Sources:
    def spoilt(tree: Any) -> Any:
        """Every text that is free to be anything."""
        free = ("name", "title", "subtitle", "why", "claim", "text", "how", "citation", "resume", "label", "setup")
        if isinstance(tree, dict):
            return {key: name if key in free and isinstance(item, str) else spoilt(item) for key, item in tree.items()}
        return [spoilt(item) for item in tree] if isinstance(tree, list) else tree

    record: Any = runs(7)[6]
    record["workload"]["model"] = name
    record["command"] = ["deepstone", name]
    record["failure"]["reason"] = name or "empty"
    record["environment"] = {
        "machine": {"cpu": {"model": name}, "gpus": [{"index": 0, "name": name}]},
        "framework": {"name": name},
    }
    record["doubts"] = [{"code": "trend", "detail": name or "empty"}]
    return sources_of(
        records=[record],
        studies=[spoilt(study())],
        charts=[spoilt(chart(form)) for form in ("bars", "lines", "ratios")],
        statements=[spoilt(statement())],
        papers=[spoilt(paper())],
        title=name,
        lead=name,
    )


@pytest.fixture(scope="module")
def tame() -> set[str]:
    return {tag for tag, _ in page(hostile_sources("tame")).elements}


@pytest.mark.parametrize("name", AWKWARD)
def test_names_are_only_names(name: str, tame: set[str]) -> None:
    found = page(hostile_sources(name))
    assert {tag for tag, _ in found.elements} <= tame
    assert sum(tag == "script" for tag, _ in found.elements) == 3
    data = next(text for text in found.texts["script"] if text.startswith("["))
    assert "<" not in data
