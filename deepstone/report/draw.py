"""From a result to a file with its figure: the one door for every command that draws."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deepstone.durable import write_whole
from deepstone.errors import MissingError, UsageError
from deepstone.faults import reason, remedy
from deepstone.report.catalog import make_figure, make_figures

KINDS: Final = ("svg", "png", "html")
INSTALL: Final = "pip install 'deepstone[figures]'"


def draw(result: Mapping[str, object], path: Path, figure: str | None = None) -> tuple[str, ...]:
    """Writes the figure of that name, over a file that is there; returns the names of the figures drawn.

    Without a name, an SVG or PNG gets the first figure of the result's kind, an HTML file all that the result has.
    The file is wholly there or not at all. UsageError for a result, name or place that will not do; MissingError
    where the libraries are not installed.
    """
    kind = check_path(path)
    names, content = (_page if kind == "html" else _picture)(result, kind, figure)
    _write(content, path)
    return names


def check_path(path: Path) -> str:
    """Which kind of file it is, before anything is measured for it: svg, png or html."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in KINDS:
        raise UsageError(f"cannot draw {path}: its name must end in .svg, .png or .html")
    return kind


def _picture(result: Mapping[str, object], kind: str, name: str | None) -> tuple[tuple[str, ...], bytes]:
    figure = make_figure(result, name)
    try:
        from deepstone.report.draw_static import draw_static
    except ImportError as error:
        raise MissingError(f"SVG and PNG are drawn by matplotlib, which is missing ({error}); {INSTALL}") from error
    return (figure.name,), draw_static(figure, kind)


def _page(result: Mapping[str, object], kind: str, name: str | None) -> tuple[tuple[str, ...], bytes]:
    del kind
    drawable = make_figures(result, name)
    try:
        from deepstone.report.draw_html import draw_html
    except ImportError as error:
        raise MissingError(f"HTML is drawn by plotly and jinja2, which are missing ({error}); {INSTALL}") from error
    return tuple(figure.name for figure in drawable.figures), draw_html(drawable)


def _write(content: bytes, path: Path) -> None:
    try:
        write_whole(content, path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {reason(error)}; {remedy(error, 'name another file')}") from error
