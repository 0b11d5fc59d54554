"""A report as one HTML file: the summary, every figure with its numbers and commands, every run with its setup."""

from __future__ import annotations

from typing import Any, Final

from deepstone.report.book import Book, Chapter
from deepstone.report.html.document import Document, in_script
from deepstone.report.run_rows import RunRow
from deepstone.report.wording import file_name

_STATEMENTS_AT_ONCE: Final = 6
_RUNS_AT_ONCE: Final = 200
_LINKS_AT_MOST: Final = 40


def render_page(book: Book) -> bytes:
    """The file's content."""
    document = Document()
    chapters = [_chapter(chapter, document) for chapter in book.chapters]
    machines = {row.machine for row in book.runs}
    return document.render(
        "report.html",
        title=book.title,
        book=book,
        chapters=chapters,
        statements_at_once=_STATEMENTS_AT_ONCE,
        links_at_most=_LINKS_AT_MOST,
        runs_at_once=_RUNS_AT_ONCE,
        several_machines=len(machines) > 1,
        runs={row.id: row.anchor for row in book.runs},
        runs_data=in_script(_runs_data(book.runs)),
    )


def _chapter(chapter: Chapter, document: Document) -> dict[str, Any]:
    anchor = file_name(chapter.anchor)
    figures = [{**document.figure(figure, within=anchor), "model": figure.model} for figure in chapter.figures]
    return {
        "anchor": anchor,
        "title": chapter.title,
        "short": chapter.short,
        "lead": chapter.lead,
        "figures": figures,
        "missing": chapter.missing,
        "paper": chapter.paper,
    }


def _runs_data(rows: tuple[RunRow, ...]) -> dict[str, Any]:
    """What is told of each run when it is opened. Words that many runs share stand here once."""
    labels: dict[str, int] = {}
    texts: dict[str, int] = {}
    runs = [
        [(labels.setdefault(label, len(labels)), texts.setdefault(words, len(texts))) for label, words in row.rest]
        for row in rows
    ]
    return {"labels": list(labels), "texts": list(texts), "runs": runs, "at_once": _RUNS_AT_ONCE}
