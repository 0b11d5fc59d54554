"""A report as Markdown, for a README or a comment: statements, claims, and the numbers of each figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import deepstone
from deepstone.report.book import Book, Chapter
from deepstone.report.claims import measured_words, published_words
from deepstone.report.figure import Figure
from deepstone.report.search import Search
from deepstone.report.table import Column, Table, name_columns
from deepstone.report.wording import table_text
from deepstone.results.claim import JudgedPaper, Statement

_ROWS_AT_MOST: Final = 60  # of one table; the page and --json have all
_TASKS_AT_MOST: Final = 20
_SPECIAL: Final = frozenset("\\`*_{}[]()<>#+-.!|~$&@:")
_HARMLESS_INSIDE: Final = frozenset("().-:+")  # they have a meaning only at the start of a line or beside others


def render_markdown(book: Book, pictures: Mapping[str, str]) -> str:
    """Render the report. `pictures` are linkable files by the name of their figure."""
    lines = [f"# {plain(book.title)}", "", *_lead(book), "", *_statements(book.statements)]
    for chapter in book.chapters:
        lines += _chapter(chapter, pictures)
    lines += [*_unfinished(book), *_failures(book)]
    lines += ["---", "", f"Made by deepstone {deepstone.__version__}. Intervals are 95 %.", ""]
    return "\n".join(lines)


def plain(text: str) -> str:
    """Escape text for Markdown."""
    words = " ".join(text.split())
    escaped = "".join(f"\\{sign}" if sign in _SPECIAL - _HARMLESS_INSIDE else sign for sign in words)
    return f"\\{escaped}" if escaped[:1] in _HARMLESS_INSIDE else escaped


def _lead(book: Book) -> list[str]:
    machines = [
        f"- **{plain(machine.name)}**: {plain('; '.join(w for _, w in machine.facts))}" for machine in book.machines
    ]
    failed = len(book.runs) - book.measured
    counted = f"{book.measured:,} runs measured" + (f", {failed:,} failed" if failed else "") + "."
    doubts = [f"- Doubts: {plain(doubt)}" for doubt in book.doubts]
    return [*([plain(book.lead), ""] if book.lead else []), counted, "", *machines, *doubts]


def _statements(statements: Sequence[Statement]) -> list[str]:
    if not statements:
        return []
    listed = [
        f"- {plain(each.text)}{f' **{plain(each.advice)}**' if each.advice else ''}"
        f"{f' ({plain(each.how)})' if each.how else ''}"
        for each in statements
    ]
    return ["## In short", "", *listed, ""]


def _chapter(chapter: Chapter, pictures: Mapping[str, str]) -> list[str]:
    lines = [f"## {plain(chapter.title)}", ""]
    lines += [line for words in chapter.lead for line in (plain(words), "")]
    lines += _claims(chapter.paper) if chapter.paper else []
    lines += _searches(chapter.searches) if chapter.searches else []
    for figure in chapter.figures:
        lines += _figure(figure, pictures.get(f"{chapter.anchor}/{figure.name}"))
    lines += [f"- Not drawn: {plain(line)}" for line in chapter.missing]
    return [*lines, ""] if chapter.missing else lines


def _claims(paper: JudgedPaper) -> list[str]:
    rows = [
        (
            claim.id,
            claim.claim,
            published_words(claim),
            claim.verdict,
            measured_words(claim),
            claim.why,
        )
        for claim in paper.claims
    ]
    return [*_table(name_columns("id", "claim", "published", "verdict", "measured", "why"), rows), ""]


def _searches(searches: Sequence[Search]) -> list[str]:
    columns = name_columns("model", "searched", "default", "best", "gain", "given up", "same training")
    rows = [
        (
            search.model if search.batch is None else f"{search.model}, batch {search.batch}",
            search.asked,
            f"{search.default}: {search.default_rates}",
            f"{search.best}: {search.best_rates}" if search.best_rates else search.best,
            f"{search.gain}; {search.later}" if search.later else search.gain,
            search.given_up,
            search.verdict,
        )
        for search in searches
    ]
    return [*_table(columns, rows), ""]


def _figure(figure: Figure, picture: str | None) -> list[str]:
    lines = [f"### {plain(figure.heading)}", ""]
    lines += [plain(figure.subtitle), ""] if figure.subtitle else []
    lines += [f"![{plain(figure.heading)}]({picture})", ""] if picture else []
    lines += [*_numbers(figure.table), ""]
    lines += [line for words in figure.caption for line in (plain(words), "")]
    lines += [f"    {command}" for command in figure.commands]
    return [*lines, ""] if figure.commands else lines


def _numbers(table: Table) -> list[str]:
    lines = _table(table.columns, table_text(table)[:_ROWS_AT_MOST])
    more = len(table.rows) - _ROWS_AT_MOST
    return [*lines, "", f"and {more:,} more rows."] if more > 0 else lines


def _table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> list[str]:
    alignments = ["---" if column.unit is None else "---:" for column in columns]
    return [_row(column.heading for column in columns), f"| {' | '.join(alignments)} |", *(_row(row) for row in rows)]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(plain(cell) for cell in cells)} |"


def _unfinished(book: Book) -> list[str]:
    lines: list[str] = []
    for study in book.unfinished:
        lines += [f"## Not measured: {plain(study.study)}", ""]
        lines += [f"- {plain(': '.join(word for word in task if word))}" for task in study.tasks[:_TASKS_AT_MOST]]
        more = len(study.tasks) - _TASKS_AT_MOST + study.more
        lines += [f"- and {more:,} more"] if more > 0 else []
        lines += ["", f"    {study.resume}", ""] if study.resume else [""]
    return lines


def _failures(book: Book) -> list[str]:
    if not book.failures:
        return []
    listed = [f"- {plain(failure.why)} ({plain(failure.what)})" for failure in book.failures]
    return ["## Runs that failed", "", *listed, ""]
