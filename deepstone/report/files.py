"""Reads saved results; writes figures and reports, each file completely or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, cast

from deepstone.durable import write_whole
from deepstone.errors import MissingError, RefusedInputError, UsageError, reason, remedy
from deepstone.report.book import Book
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.figures import CHART, KINDS, SCALE, Drawable, Result, make_figure, make_figures
from deepstone.report.markdown import render_markdown
from deepstone.report.tune_page import TunePage, tune_page
from deepstone.report.wording import distinct, file_name, made_harmless
from deepstone.results.chart import Chart
from deepstone.results.codec import as_bare_finding, as_chart, as_record, as_scaling
from deepstone.results.findings import Finding
from deepstone.results.plain import MAX_BYTES, parse_json, shown
from deepstone.results.record import SCHEMA, Record
from deepstone.results.scaling import Scaling
from deepstone.results.tune import Tuned
from deepstone.store.files import open_regular

FORMATS: Final = ("svg", "png", "html")
_INSTALL: Final = "from the clone: pip install -e '.[figures]'"


def draw(result: Result, path: Path, figure: str | None = None) -> tuple[str, ...]:
    """Write the figure of that name, replacing an existing file; return the names of the written figures.

    Without a name, an SVG or PNG gets the first figure of the result's kind, an HTML file all figures of the result.
    Raises UsageError for a wrong result, name or path, and MissingError if the libraries are not installed.
    """
    kind = check_path(path)
    if kind == "html" and figure is None and isinstance(result, Finding) and isinstance(result.content, Tuned):
        page = made_harmless(tune_page(result))
        _write(_tune_page(page), path)
        return tuple(each.name for each in page.drawable.figures)
    if kind == "html":
        drawable = make_figures(result, figure)
        _write(_result_page(drawable), path)
        return tuple(each.name for each in drawable.figures)
    single = make_figure(result, figure)
    _write(_picture(single, kind), path)
    return (single.name,)


def check_path(path: Path) -> str:
    """Return the kind of the file, svg, png or html, before anything is measured for it."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UsageError(f"cannot draw {path}: its name must end in .svg, .png or .html")
    return kind


def as_result(content: Mapping[str, object]) -> Finding | Chart | Record | Scaling:
    """Parse the result in the JSON of a command. Raises UsageError if it cannot be drawn."""
    kind, outcome = content.get("kind"), content.get("outcome", "ok")
    if kind is None and "samples" in content and "identity" in content:
        return as_record(content)
    if kind is None and outcome != "ok":
        failure = content.get("failure")
        reason = f": {failure['reason']}" if isinstance(failure, dict) and "reason" in failure else ""
        raise NothingToDrawError(f"nothing was measured; {outcome}{reason}")
    if kind not in KINDS:
        problem = f"is of kind {shown(kind)}" if "kind" in content else "does not say of which kind it is"
        raise UsageError(f"this result {problem}; results that can be drawn are of kind {', '.join(KINDS)}")
    if content.get("schema", SCHEMA) != SCHEMA:
        raise UsageError(f"this result is of schema {shown(content['schema'])}; this version draws schema {SCHEMA}")
    known = {"schema": SCHEMA, **content}
    if kind == SCALE:
        return as_scaling(known)
    return as_chart(known) if kind == CHART else as_bare_finding(known)


def read_json(path: Path) -> Mapping[str, object]:
    """Read the JSON object in a file. Raises UsageError with the file's name if it is not one."""
    try:
        with open_regular(path) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {reason(error)}; give a file that --json wrote") from error
    try:
        content = parse_json(data)
    except RefusedInputError as error:
        raise RefusedInputError(f"{path}: {error}; give a file that --json wrote") from error
    if not isinstance(content, dict):
        raise RefusedInputError(f"{path}: holds {shown(content)}, not one result; give a file that --json wrote")
    return cast(dict[str, object], content)


def write_page(book: Book, path: Path) -> None:
    """Write the page of a report. Raises MissingError if the libraries are missing, and UsageError if the file cannot
    be written."""
    try:
        from deepstone.report.page import render_report
    except ImportError as error:
        raise _no_html(error) from error
    _write(render_report(book), path)


def write_figures(book: Book, folder: Path) -> dict[str, str]:
    """Write every figure as SVG and PNG; return the files by chapter and name, as `render_markdown` needs them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {reason(error)}; name another one") from error
    files: dict[str, str] = {}
    for key, name, figure in _named(book):
        for kind in ("svg", "png"):
            _write(_picture(figure, kind), folder / f"{name}.{kind}")
        files.setdefault(key, f"{folder.name}/{name}.svg")
    return files


def write_markdown(book: Book, path: Path, pictures: Mapping[str, str]) -> None:
    _write(render_markdown(book, pictures).encode("utf-8"), path)


def _named(book: Book) -> Iterator[tuple[str, str, Figure]]:
    """Yield every figure with its position in the report and a unique file name."""
    taken: set[str] = set()
    for chapter in book.chapters:
        for figure in chapter.figures:
            name = distinct(file_name(f"{chapter.anchor} {figure.model} {figure.name}"), taken)
            yield f"{chapter.anchor}/{figure.name}", name, figure


def _picture(figure: Figure, kind: str) -> bytes:
    try:
        from deepstone.report.static import draw_static
    except ImportError as error:
        raise MissingError(f"SVG and PNG are drawn by matplotlib, which is missing ({error}); {_INSTALL}") from error
    return draw_static(figure, kind)


def _result_page(drawable: Drawable) -> bytes:
    try:
        from deepstone.report.page import render_result
    except ImportError as error:
        raise _no_html(error) from error
    return render_result(drawable)


def _tune_page(page: TunePage) -> bytes:
    try:
        from deepstone.report.page import render_tune
    except ImportError as error:
        raise _no_html(error) from error
    return render_tune(page)


def _no_html(error: ImportError) -> MissingError:
    return MissingError(f"HTML is written by jinja2, which is missing ({error}); {_INSTALL}")


def _write(content: bytes, path: Path) -> None:
    try:
        write_whole(content, path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {reason(error)}; {remedy(error, 'name another file')}") from error
