"""`-o FILE` of commands whose result can be drawn: looked at before measuring, drawn after."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from deepstone.cli.output import note
from deepstone.errors import UsageError

FigureFile = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Draw a figure: .svg, .png or .html.", metavar="FILE"),
]


def check_folder(path: Path | None) -> None:
    """Told before measuring, not after."""
    if path is not None and not path.absolute().parent.is_dir():
        raise UsageError(f"no folder {path.absolute().parent} to write {path.name} in; make it first")


def check_figure(path: Path | None) -> None:
    if path is None:
        return
    from deepstone.report.draw import check_path

    check_path(path)
    check_folder(path)


def draw_figure(result: Mapping[str, object], path: Path | None) -> None:
    if path is None:
        return
    from deepstone.report.draw import draw

    draw(result, path)
    note(f"drew {path}")


def check_page(path: Path | None) -> None:
    """UsageError for a name or place that no page can have, before anything is measured or read for it."""
    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(
            f"cannot write {path}: the name of a page must end in .html; `deepstone report --figures` gives SVG and PNG"
        )
    check_folder(None if path is None else path.expanduser())
