"""Pages: a report, or the figures of one result, as one HTML file that needs nothing else.

The page contains its script and requests nothing. All content of a result is text: Jinja escapes it in the page, the
script inserts it only as text, and a content security policy blocks any other script.
"""

from __future__ import annotations

import base64
import hashlib
import json
from importlib import resources
from typing import Final

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape
from msgspec import Struct

import deepstone
from deepstone.absent import Absent
from deepstone.report.book import Book, Chapter
from deepstone.report.claims import how_judged, measured_words, other_verdicts, published_words, verdict_counts
from deepstone.report.figure import Figure
from deepstone.report.figures import Drawable
from deepstone.report.html.bars import bars_plot
from deepstone.report.html.heat import heat_plot
from deepstone.report.html.lanes import lanes_plot
from deepstone.report.html.parallel import parallel_plot
from deepstone.report.html.plot import Plot, encoded
from deepstone.report.html.points import lines_plot, scatter_plot
from deepstone.report.panels import BarChart, HeatMap, LaneChart, LineChart, Panel, ParallelPlot
from deepstone.report.runs import RunRow, speed_heading
from deepstone.report.tune_page import TunePage
from deepstone.report.wording import distinct, file_name, table_text
from deepstone.results.claim import Statement
from deepstone.results.parts import Json
from deepstone.results.view import label

_PAGE: Final = resources.files("deepstone.report").joinpath("html", "page")
_STATEMENTS_AT_ONCE: Final = 6
_RUNS_AT_ONCE: Final = 200
_LINKS_AT_MOST: Final = 40


def render_report(book: Book) -> bytes:
    """Render the report: summary, every figure with its numbers and commands, every run with its setup."""
    document = _Document()
    chapters = [document.chapter(chapter) for chapter in book.chapters]
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
        label=label,
        speed_heading=speed_heading(book.runs),
        runs={row.id: row.anchor for row in book.runs},
        runs_data=_in_script(_runs_data(book.runs)),
        **{function.__name__: function for function in _FORMATTERS},
    )


def render_result(drawable: Drawable) -> bytes:
    """Render the figures of one result."""
    first = drawable.figures[0]  # all belong to one result, so they share model, doubts and commands
    document = _Document()
    figures = [document.figure(figure) for figure in drawable.figures]
    return document.render(
        "result.html",
        title=first.heading if len(figures) == 1 else f"{first.model}: figures",
        heading=first.model or first.title,
        doubts=first.doubts,
        commands=first.commands,
        figures=figures,
        missing=drawable.missing,
        runs={},
    )


def render_tune(page: TunePage) -> bytes:
    """Render the page about a search for the best setup."""
    document = _Document()
    figures = [document.figure(figure) for figure in page.drawable.figures]
    return document.render(
        "tune.html", title=page.title, page=page, figures=figures, missing=page.drawable.missing, runs={}
    )


class _PlacedFigure(Struct, frozen=True, kw_only=True):
    """A figure in the page. `plots` are its panels, each with its index in the script's list; `rows` those of the
    table."""

    anchor: str
    figure: Figure
    plots: list[tuple[int, Plot]]
    rows: list[tuple[str, ...]]


class _PlacedChapter(Struct, frozen=True, kw_only=True):
    anchor: str
    chapter: Chapter
    figures: list[_PlacedFigure]


def _runs_data(rows: tuple[RunRow, ...]) -> dict[str, Json]:
    """Return the details of each run, shown when it is opened. Texts that many runs share are stored once."""
    labels: dict[str, int] = {}
    texts: dict[str, int] = {}
    runs: list[Json] = [
        [[labels.setdefault(label, len(labels)), texts.setdefault(words, len(texts))] for label, words in row.rest]
        for row in rows
    ]
    return {"labels": list(labels), "texts": list(texts), "runs": runs, "at_once": _RUNS_AT_ONCE}


class _Document:
    """A page under construction: figures are added, each under a unique name, then the page is rendered once."""

    def __init__(self) -> None:
        self._plots: list[Plot] = []
        self._names: set[str] = set()

    def chapter(self, chapter: Chapter) -> _PlacedChapter:
        anchor = file_name(chapter.anchor)
        figures = [self.figure(figure, within=anchor) for figure in chapter.figures]
        return _PlacedChapter(anchor=anchor, chapter=chapter, figures=figures)

    def figure(self, figure: Figure, *, within: str = "") -> _PlacedFigure:
        """Add a figure; each panel's plot is appended to the script's list."""
        first = len(self._plots)
        self._plots += [_plot(panel) for panel in figure.panels]
        return _PlacedFigure(
            anchor=distinct(file_name(f"{within} {figure.name}"), self._names),
            figure=figure,
            plots=list(enumerate(self._plots[first:], first)),
            rows=table_text(figure.table),
        )

    def render(self, template: str, **data: object) -> bytes:
        """Return the content of the file."""
        script = _part("draw.js") + _part("page.js")
        environment = Environment(
            loader=FunctionLoader(_part),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters["with_code"] = _with_code
        text = environment.get_template(template).render(
            **data,
            version=deepstone.__version__,
            policy=_policy(script),
            style=Markup(_part("page.css")),
            plots=_as_data(encoded(self._plots)),
            script=Markup(script),
        )
        return text.encode("utf-8")


def ratio_words(statement: Statement) -> str:
    """Return the number beside a statement, if it has one."""
    if isinstance(statement.ratio, Absent):
        return ""
    ratio = statement.ratio.median
    return f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}"


def _in_script(data: object) -> Markup:
    return _as_data(json.dumps(data, allow_nan=False, separators=(",", ":")))


def _as_data(text: str) -> Markup:
    """Encode JSON for a script element: nothing in it can end the element."""
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _part(name: str) -> str:
    return _PAGE.joinpath(name).read_text(encoding="utf-8")


def _with_code(text: str) -> Markup:
    """Words between backticks, as messages for a terminal have them, as code."""
    parts = [escape(part) for part in text.split("`")]
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


def _policy(script: str) -> str:
    # Inline styles are allowed: the page has one, and colours in its legends. They are harmless without requests.
    rest = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src 'sha256-{_hash(script)}'; {rest}"


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


# Functions that templates call by name.
_FORMATTERS: Final = (verdict_counts, measured_words, published_words, other_verdicts, how_judged, ratio_words)


def _plot(panel: Panel) -> Plot:
    if isinstance(panel, BarChart):
        return bars_plot(panel)
    if isinstance(panel, LaneChart):
        return lanes_plot(panel)
    if isinstance(panel, LineChart):
        return lines_plot(panel)
    if isinstance(panel, ParallelPlot):
        return parallel_plot(panel)
    return heat_plot(panel) if isinstance(panel, HeatMap) else scatter_plot(panel)
