"""What a report writes: the page, Markdown, and every figure as SVG and PNG."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from deepstone.durable import write_whole
from deepstone.errors import MissingError, UsageError
from deepstone.faults import reason, remedy
from deepstone.report.book import Book
from deepstone.report.draw import INSTALL
from deepstone.report.figure import Figure
from deepstone.report.markdown import render_markdown
from deepstone.report.wording import file_name


def write_page(book: Book, path: Path) -> None:
    """MissingError where the libraries are not installed; UsageError for a place that cannot be written."""
    try:
        from deepstone.report.page import render_page
    except ImportError as error:
        raise MissingError(f"HTML is drawn by plotly and jinja2, which are missing ({error}); {INSTALL}") from error
    _write(render_page(book), path)


def write_figures(book: Book, folder: Path) -> dict[str, str]:
    """Every figure as SVG and PNG; their files by chapter and name, as `render_markdown` wants them."""
    try:
        from deepstone.report.draw_static import draw_static
    except ImportError as error:
        raise MissingError(f"SVG and PNG are drawn by matplotlib, which is missing ({error}); {INSTALL}") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {reason(error)}; name another one") from error
    files: dict[str, str] = {}
    for key, name, figure in _named(book):
        for kind in ("svg", "png"):
            _write(draw_static(figure, kind), folder / f"{name}.{kind}")
        files.setdefault(key, f"{folder.name}/{name}.svg")
    return files


def write_markdown(book: Book, path: Path, pictures: dict[str, str]) -> None:
    _write(render_markdown(book, pictures).encode("utf-8"), path)


def _named(book: Book) -> Iterator[tuple[str, str, Figure]]:
    """Every figure with its place in the book and a file name that no other has."""
    taken: set[str] = set()
    for chapter in book.chapters:
        for figure in chapter.figures:
            plain = file_name(f"{chapter.anchor} {figure.model} {figure.name}")
            number = 1
            while (name := plain if number == 1 else f"{plain}-{number}") in taken:
                number += 1
            taken.add(name)
            yield f"{chapter.anchor}/{figure.name}", name, figure


def _write(content: bytes, path: Path) -> None:
    try:
        write_whole(content, path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {reason(error)}; {remedy(error, 'name another file')}") from error
