"""The figures of one result as one HTML file."""

from __future__ import annotations

from deepstone.report.catalog import Drawable
from deepstone.report.html.document import Document


def draw_html(drawable: Drawable) -> bytes:
    """The page as a file's content."""
    first = drawable.figures[0]  # all are of one result, so they share model, doubts and commands
    document = Document()
    figures = [document.figure(figure) for figure in drawable.figures]
    title = first.heading if len(figures) == 1 else f"{first.model}: figures"
    return document.render(
        "result.html",
        title=title,
        heading=first.model or first.title,
        doubts=first.doubts,
        commands=first.commands,
        figures=figures,
        missing=drawable.missing,
        runs={},
    )
