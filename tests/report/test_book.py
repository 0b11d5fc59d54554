"""What stands in a report: statements first, every run, what failed or was left out, and nothing hidden."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_up import conv_result, layers_result
from made_up_book import elsewhere, paper, peaks_finding, runs, sources, sources_of, statement, study
from made_up_charts import bars_chart
from msgspec.structs import replace
from tune_example import tune_finding, tuned

from deepstone.absent import Absent
from deepstone.errors import UsageError
from deepstone.report.book import CHAPTERS, Book, make_book
from deepstone.report.book_json import book_json
from deepstone.report.claims import measured_words, other_verdicts, published_words, verdict_counts
from deepstone.report.figures import CATALOG
from deepstone.report.files import write_page
from deepstone.report.markdown import render_markdown
from deepstone.report.panels import BarChart
from deepstone.report.search import Search, search_of
from deepstone.report.tune_page import tune_page
from deepstone.results.findings import Finding
from deepstone.results.quantity import Quantity
from deepstone.results.tune import TuneLimit, TuneObjective


@pytest.fixture(scope="module")
def book() -> Book:
    return make_book(sources())


def test_chapters_come_in_the_order_of_a_reader(book: Book) -> None:
    assert [chapter.short for chapter in book.chapters] == [
        "kim2017",
        "Results",
        "Ceilings",
        "Time",
        "Convolutions",
        "Memory",
    ]


def test_statements_keep_their_order_ratio_and_runs(book: Book) -> None:
    first = book.statements[0]
    assert isinstance(first.ratio, Quantity)
    assert (first.ratio.median, first.ratio.n) == (2.1, 3)
    assert set(first.runs) <= {row.id for row in book.runs}
    assert [each.text for each in book.statements[1:3]] == ["Statement number 0.", "Statement number 1."]


def test_every_run_has_a_row_with_what_it_rests_on(book: Book) -> None:
    row = book.runs[0]
    told = dict(row.rest)
    assert row.model == "alexnet-owt"
    assert told["command"].startswith("deepstone run alexnet-owt batch=1")
    assert told["in effect"].startswith("framework=torch")
    assert told["samples"] == "20 samples, 1 launch, 5 steps of warm-up, ended since: the interval is narrow enough"
    assert "too_short_to_time: a sample takes" in told["doubts"]
    assert told["environment"] == "torch 2.9.0"


def test_no_host_and_no_user(book: Book) -> None:
    text = json.dumps(book_json(book))
    assert "node01" not in text
    assert "alice" not in text


def test_machines_are_told_apart(book: Book) -> None:
    assert [machine.name for machine in book.machines] == ["Example CPU, 2 cores", "NVIDIA H200"]
    assert dict(book.machines[1].facts)["accelerator"] == "NVIDIA H200 128 GiB"
    assert book.title == "Measured on Example CPU, 2 cores and NVIDIA H200"


def test_failures_are_named_by_reason_with_their_runs() -> None:
    failures = make_book(sources_of(records=runs(15))).failures
    assert [(failure.why, len(failure.runs)) for failure in failures] == [("oom: the worker ended: oom", 2)]
    assert failures[0].what.endswith("and 1 more")


def test_tasks_that_did_not_run_are_named(book: Book) -> None:
    (unfinished,) = book.unfinished
    assert unfinished.study == "This machine in five minutes"
    assert unfinished.resume == "deepstone study quick"
    assert unfinished.tasks == (
        ("resnet50 batch=64", "left out", "no time: 90 s wanted, 20 s left"),
        ("resnet50 batch=128", "pruned", "batch=64 ran out of memory"),
    )


def test_a_finished_study_leaves_nothing_to_name() -> None:
    state = study()
    state["tasks"] = state["tasks"][:1]
    assert make_book(sources_of(records=runs(2), studies=[state])).unfinished == ()


def test_doubts_are_counted_over_all_runs(book: Book) -> None:
    measured = len(book.runs)
    assert book.doubts == (f"{measured} runs: too_short_to_time – a step is so short that the clock's own cost shows",)


def test_claims_have_their_verdict_on_each_machine(book: Book) -> None:
    claims = book.chapters[0].paper
    assert claims is not None
    assert claims.errors == ["Table II swaps two lines."]
    assert verdict_counts(claims) == [("weaker", 1), ("not testable here", 1)]
    first = claims.claims[0]
    assert published_words(first) == "more than 90 %"
    assert measured_words(first) == "71 % (70 % – 72 %)"
    assert [(other.machine, other.verdict) for other in other_verdicts(first)] == [("2 cores", "holds")]


def test_a_paper_with_another_verdict_is_refused() -> None:
    bad = paper()
    bad["claims"][0]["verdict"] = "certainly"
    with pytest.raises(UsageError, match=r"claims\[0\]\.verdict: must be one of holds"):
        make_book(sources_of(papers=[bad]))


def test_setups_of_runs_are_told_in_figures() -> None:
    records = runs(1)
    chart = bars_chart()
    chart["series"][0]["points"][0]["runs"] = [records[0]["id"]]
    panel = make_book(sources_of(records=records, charts=[chart])).chapters[0].figures[0].panels[0]
    assert isinstance(panel, BarChart)
    assert panel.rows[0].bars[0][0].details[0] == "alexnet-owt · batch 1 · train · torch on cpu (fp32, nchw)"


def test_what_cannot_be_drawn_is_named_not_hidden() -> None:
    bad = {**bars_chart(), "title": "Broken", "series": [], "gaps": []}
    failed = {**layers_result("cifarnet"), "outcome": "oom", "failure": {"reason": "too big", "stderr_tail": ""}}
    book = make_book(sources_of(charts=[bad, bars_chart()], findings=[failed]))
    results, layers = book.chapters
    assert len(results.figures) == 1
    assert results.missing[0].startswith("Broken: this chart has no number")
    assert layers.figures == ()
    assert "oom: too big" in layers.missing[0]


def test_of_a_task_the_newest_finding_counts_and_of_many_the_newest_few() -> None:
    again = [{**conv_result("cifarnet"), "task": "a" * 64} for _ in range(3)]
    assert len(make_book(sources_of(findings=again)).chapters[0].figures) == 1
    many = [{**peaks_finding(), "task": f"{number:064x}"} for number in range(14)]
    chapter = make_book(sources_of(findings=many)).chapters[0]
    assert len(chapter.figures) == 12
    assert len(chapter.missing) == 2


def test_ceilings_show_what_is_missing_too() -> None:
    figure = make_book(sources_of(findings=[peaks_finding()])).chapters[0].figures[0]
    products, copies = figure.panels
    assert isinstance(products, BarChart)
    assert isinstance(copies, BarChart)
    assert [row.label for row in products.rows] == ["fp32", "bf16", "fp16"]
    assert products.rows[2].bar_labels[0].gap
    assert "jax on cpu: not installed" in figure.caption


def test_without_runs_machines_come_from_findings() -> None:
    machine = {"cpu": {"model": "Xeon", "usable_cores": 16}, "gpus": [{"index": 0, "name": "NVIDIA H200"}]}
    finding = {**layers_result("cifarnet"), "environment": {"machine": machine, "framework": {"name": "torch"}}}
    assert make_book(sources_of(findings=[finding])).title == "Measured on NVIDIA H200"


def test_more_than_two_machines_are_counted() -> None:
    first = runs(1)[0]
    records = [first, elsewhere(first, "one"), elsewhere(first, "other")]
    assert make_book(sources_of(records=records)).title == "Measured on 3 machines"


def test_json_holds_what_the_page_shows(book: Book) -> None:
    data = json.loads(json.dumps(book_json(book), allow_nan=False))
    assert data["kind"] == "report"
    assert len(data["runs"]) == len(book.runs)
    assert data["statements"][0]["ratio"]["median"] == 2.1
    assert data["chapters"][0]["claims"][0]["judgement"]["verdict"] == "weaker"
    assert data["unfinished"][0]["resume"] == "deepstone study quick"


def test_a_malformed_statement_is_refused() -> None:
    with pytest.raises(UsageError, match="text: is missing"):
        make_book(sources_of(statements=[{key: value for key, value in statement().items() if key != "text"}]))


def _searches(*findings: Finding) -> tuple[Search, ...]:
    book = make_book(replace(sources_of(), findings=findings))
    (searches,) = (chapter.searches for chapter in book.chapters if chapter.searches)
    return searches


class TestSearches:
    def test_they_have_a_chapter(self, tmp_path: Path) -> None:
        """What the page about one search says, the report says too, as a page, as Markdown and as JSON."""
        book = make_book(replace(sources_of(records=runs(2)), findings=[tune_finding()]))
        chapter = next(each for each in book.chapters if each.searches)
        (search,) = chapter.searches
        assert (search.model, search.given_up, search.verdict) == ("resnet50", "products in bf16", "same")
        assert search.answer == tune_page(tune_finding()).answer
        assert [figure.name for figure in chapter.figures] == ["waterfall", "search"]
        write_page(book, tmp_path / "report.html")
        texts = ((tmp_path / "report.html").read_text(), render_markdown(book, {}).replace("\\", ""))
        for text in texts:
            for words in (search.default, search.best, search.gain, search.given_up):
                assert words in text
        (told,) = next(
            each["searches"] for each in json.loads(json.dumps(book_json(book)))["chapters"] if "searches" in each
        )
        assert told["best"] == "framework=jax precision=bf16-mixed"
        assert told["ratio"]["low"] < told["ratio"]["median"] < told["ratio"]["high"]
        assert told["same"] == "same"

    def test_where_the_default_stays(self) -> None:
        found = replace(tuned(), answer="not separable", best=tuned().default)
        book = make_book(replace(sources_of(), findings=[replace(tune_finding(), content=found)]))
        ((search,),) = (each.searches for each in book.chapters if each.searches)
        assert search.best == "the default"
        assert search.times == ""
        assert search.gain == "not decided by these finals"

    def test_a_proven_answer_outlives_a_later_one_that_decided_nothing(self) -> None:
        """But another question has an answer of its own: another space, objective, limit or level."""
        found, task = tuned(), "a" * 64
        open_ = replace(found, answer="nothing better", best=found.default, same=Absent("nothing was compared"))
        proven = replace(tune_finding(), task=task)
        nothing = replace(proven, content=replace(open_, budget=replace(found.budget, asked_s=8.0)))
        (search,) = _searches(proven, nothing)
        assert search.gain == search_of(proven).gain
        assert search.later == "a later search, of 8 s, showed nothing better than the default"
        (search,) = _searches(nothing, proven)
        assert (search.gain, search.later) == (search_of(proven).gain, "")
        others = [
            replace(open_, space=replace(found.space, axes=found.space.axes[:-1])),
            replace(open_, limits=[TuneLimit(name="memory", most=2**30)]),
            replace(open_, objective=TuneObjective(name="memory")),
        ]
        any_ = replace(nothing, command=[*(nothing.command or ()), "--same", "any"])
        rows = _searches(proven, *(replace(proven, content=each) for each in others), any_)
        assert len({row.asked for row in rows}) == len(rows) == 5
        assert not any(row.later for row in rows)

    def test_none(self, book: Book) -> None:
        assert not any(chapter.searches for chapter in book.chapters)
        assert "searches" not in json.dumps(book_json(book))


class TestNewKindOfFinding:
    """A type and a line in `Content` are all that a new kind needs: it is shown before somebody draws it."""

    @pytest.fixture(autouse=True)
    def _nobody_draws_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delitem(CATALOG, "memory")
        monkeypatch.delitem(CHAPTERS, "memory")

    def test_it_has_a_chapter_that_says_how_to_see_it(self) -> None:
        chapter = next(each for each in make_book(sources()).chapters if each.anchor == "memory")
        assert chapter.title == "Memory"
        assert not chapter.figures
        assert "deepstone results show" in " ".join(chapter.missing)

    def test_it_comes_after_the_known_ones(self) -> None:
        assert make_book(sources()).chapters[-1].anchor == "memory"
