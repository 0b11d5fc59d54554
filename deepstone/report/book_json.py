"""A report's data as JSON: what the page shows, for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from deepstone.report.book import Book, Chapter
from deepstone.report.figure import Figure, Value
from deepstone.report.run_rows import RunRow
from deepstone.report.statement import Statement

SCHEMA: Final = 1


def book_json(book: Book) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": "report",
        "title": book.title,
        "lead": book.lead,
        "machines": [{"name": machine.name, **dict(machine.facts)} for machine in book.machines],
        "statements": [_statement(each) for each in book.statements],
        "doubts": list(book.doubts),
        "chapters": [_chapter(each) for each in book.chapters],
        "unfinished": [asdict(each) for each in book.unfinished],
        "failures": [asdict(each) for each in book.failures],
        "runs": [_run(row) for row in book.runs],
    }


def _statement(statement: Statement) -> dict[str, Any]:
    ratio = {"absent": "the sentence is not about one ratio"} if statement.ratio is None else _value(statement.ratio)
    runs, findings = list(statement.runs), list(statement.findings)
    return {"text": statement.text, "ratio": ratio, "how": statement.how, "runs": runs, "findings": findings}


def _value(value: Value) -> dict[str, Any]:
    return {"median": value.middle, "low": value.low, "high": value.high, "n": value.n}


def _chapter(chapter: Chapter) -> dict[str, Any]:
    paper = chapter.paper
    return {
        "title": chapter.title,
        "lead": list(chapter.lead),
        "figures": [_figure(figure) for figure in chapter.figures],
        "missing": list(chapter.missing),
        "claims": [asdict(claim) for claim in paper.claims] if paper else [],
    }


def _figure(figure: Figure) -> dict[str, Any]:
    return {
        "name": figure.name,
        "title": figure.heading,
        "subtitle": figure.subtitle,
        "caption": list(figure.caption),
        "doubts": list(figure.doubts),
        "commands": list(figure.commands),
        "headings": list(figure.table.headings),
        "rows": [list(row) for row in figure.table.rows],
        "runs": [list(runs) for runs in figure.table.runs],
    }


def _run(row: RunRow) -> dict[str, Any]:
    return {**asdict(row), "rest": dict(row.rest)}
