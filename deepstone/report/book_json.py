"""A report as JSON: the content of the page, for programs. The unit of a number is in its key or its column."""

from __future__ import annotations

from typing import Final, TypeAlias

from deepstone.absent import Absent
from deepstone.report.book import Book, Chapter
from deepstone.report.claims import how_judged, other_verdicts, published_words
from deepstone.report.figure import Figure
from deepstone.report.machines import MachineFacts
from deepstone.report.runs import RunRow
from deepstone.report.search import Search
from deepstone.report.table import IntervalOf, TableCell, Value
from deepstone.results.claim import JudgedClaim, Statement, Verdict
from deepstone.results.parts import Json
from deepstone.results.quantity import Quantity
from deepstone.results.record import Record
from deepstone.results.view_parallel import columns

SCHEMA: Final = 1
_NOT_MEASURED: Final[dict[str, Json]] = {"absent": "the run failed"}
_PARTS: Final = ("summary", "phases", "startup", "memory", "energy", "share_of_peak")  # of a record
# The facts of a run that are not numbers.
_WORDS: Final = frozenset(
    {"why it failed", "doubts", "asked for", "in effect", "environment", "machine", "started", "run", "command"}
)
_NO_INTERVAL: Final = "counted or summed, so it has no interval"

JsonObject: TypeAlias = dict[str, Json]


def book_json(book: Book) -> JsonObject:
    return {
        "schema": SCHEMA,
        "kind": "report",
        "title": book.title,
        "lead": book.lead,
        "machines": [_machine(machine) for machine in book.machines],
        "statements": [_statement(each) for each in book.statements],
        "doubts": list(book.doubts),
        "chapters": [_chapter(each) for each in book.chapters],
        "unfinished": [each.to_json() for each in book.unfinished],
        "failures": [each.to_json() for each in book.failures],
        "runs": [_run(row) for row in book.runs],
    }


def _machine(machine: MachineFacts) -> JsonObject:
    words = {label: words for label, words in machine.facts if label not in ("memory", "runs")}
    return {"name": machine.name, **words, **dict(machine.counts)}


def _statement(statement: Statement) -> JsonObject:
    described = statement.to_json()
    return {key: described[key] for key in ("text", "advice", "ratio", "how", "runs", "findings") if key in described}


def _chapter(chapter: Chapter) -> JsonObject:
    paper = chapter.paper
    return {
        "title": chapter.title,
        "lead": list(chapter.lead),
        "figures": [_figure(figure) for figure in chapter.figures],
        "missing": list(chapter.missing),
        "claims": [_claim(claim) for claim in paper.claims] if paper else [],
        **({"searches": [_search(each) for each in chapter.searches]} if chapter.searches else {}),
    }


def _search(search: Search) -> JsonObject:
    batch: Json = {"absent": "not told"} if search.batch is None else search.batch
    ratio: Json = {"absent": search.ratio.reason} if isinstance(search.ratio, Absent) else search.ratio.to_json()
    rest: JsonObject = {"default": search.advice, "same": search.same}
    if search.later:
        rest = {**rest, "later": search.later}
    return {
        "finding": search.finding,
        "model": search.model,
        "batch": batch,
        "machine": search.machine,
        "objective": search.objective,
        "searched": search.asked,
        "default": search.default,
        "best": search.best,
        "ratio": ratio,
        "given_up": search.given_up,
        "same": search.verdict,
        "answer": search.answer,
        "rest": rest,
        "commands": list(search.commands),
    }


def _claim(claim: JudgedClaim) -> JsonObject:
    return {
        "id": claim.id,
        "claim": claim.claim,
        "published": published_words(claim),
        "where": claim.where,
        "judgement": _judgement(claim),
        "others": [_judgement(each) for each in other_verdicts(claim)],
        "rest": dict(how_judged(claim)),
    }


def _judgement(verdict: Verdict) -> JsonObject:
    described = verdict.to_json()
    return {key: described[key] for key in ("machine", "verdict", "measured", "unit", "why", "runs", "findings")}


def _figure(figure: Figure) -> JsonObject:
    """Describe a figure. `units` names the unit of each column of numbers, and nothing for text."""
    columns = figure.table.columns
    return {
        "name": figure.name,
        "title": figure.heading,
        "subtitle": figure.subtitle,
        "caption": list(figure.caption),
        "doubts": list(figure.doubts),
        "commands": list(figure.commands),
        "headings": [column.heading for column in columns],
        "units": ["" if column.unit is None else column.unit.value for column in columns],
        "rows": [[_cell(cell) for cell in row] for row in figure.table.rows],
        "runs": [list(runs) for runs in figure.table.runs],
    }


def _cell(cell: TableCell) -> Json:
    if cell is None:
        return {"absent": "there is no number"}
    if isinstance(cell, Absent):
        return {"absent": cell.reason}
    if isinstance(cell, IntervalOf):
        return _interval(cell.value)
    return _value(cell) if isinstance(cell, Value) else cell


def _value(value: Value) -> JsonObject:
    no_ends: Json = {"absent": value.no_interval or _NO_INTERVAL}
    low, high = (no_ends if end is None else end for end in (value.low, value.high))
    n: Json = {"absent": "how many samples there are is not known"} if value.n is None else value.n
    return {"median": value.middle, "low": low, "high": high, "n": n}


def _interval(value: Value) -> JsonObject:
    ends = _value(value)
    return {"low": ends["low"], "high": ends["high"]}


def _of_processes(record: Record) -> JsonObject:
    """Describe several processes, without their hosts."""
    found = columns(record) or {}
    parts: dict[str, Json] = {
        name: part.to_json() if isinstance(part, Quantity) else part for name, part in found.items()
    }
    return {"parallel": parts} if parts else {}


def _run(row: RunRow) -> JsonObject:
    """Describe a run, with the keys of its record."""
    record = row.record.to_json()
    speed: dict[str, Json] = {"images_per_s": _NOT_MEASURED, "interval": _NOT_MEASURED}
    if row.speed is not None:
        speed = {"images_per_s": row.speed.middle, "interval": _interval(row.speed)}
    return {
        "id": row.id,
        "started_at": row.started_at,
        "model": row.model,
        "framework": row.framework,
        "device": row.device,
        "machine": row.machine,
        "setup": row.setup,
        "batch": row.batch,
        "phase": row.phase,
        "outcome": row.outcome,
        **speed,
        "doubts": list(row.doubts),
        **{key: record[key] for key in _PARTS},
        **_of_processes(row.record),
        "repetition": row.record.identity.repetition,
        "rest": {label: words for label, words in row.rest if label in _WORDS},
    }
