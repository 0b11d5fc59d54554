"""`deepstone draw`: a saved result as a picture or a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepstone.cli.completion import complete_run
from deepstone.cli.declare import examples, file
from deepstone.cli.options import Json, StorePath
from deepstone.cli.output import note, print_json
from deepstone.cli.stores import open_store
from deepstone.errors import UsageError

if TYPE_CHECKING:
    from deepstone.report.figures import Result

EXAMPLES = examples(
    "deepstone layers alexnet-owt batch=32 --json > layers.json",
    "deepstone draw layers.json -o layers.svg",
    "deepstone draw layers.json -o roofline.png --figure roofline",
    "deepstone draw layers.json -o layers.html",
    "deepstone draw 3f2a -o run.svg",
    "deepstone draw ethernet.json infiniband.json -o both.svg",
    "deepstone draw 3f2a -o timeline.svg --figure timeline",
)
FigureFile = Annotated[Path | None, file("-o", "--output", help="Draw a figure: .svg, .png or .html.")]


def draw(
    results: Annotated[
        list[Path],
        typer.Argument(
            help="What `deepstone layers`, `run` or another printed with --json, or an id of the store; of `comm` "
            "several, in one figure.",
            metavar="RESULT.json|RUN",
            autocompletion=complete_run,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="Where to draw: .svg, .png or .html.", metavar="FILE", show_default=False),
    ],
    figure: Annotated[
        str | None,
        typer.Option(
            "--figure",
            help="Of layers: bars, groups, roofline; of a run: run, timeline; of scale: scaling, steps; of comm: "
            "bandwidth, time. Others have one.",
            metavar="NAME",
            show_default="the first, or all in HTML",
        ),
    ] = None,
    store: StorePath = None,
    json: Json = False,
) -> None:
    """A saved result, or a run with its phases, timing samples and timeline, as SVG, PNG or HTML. The file is
    overwritten; HTML needs nothing but itself."""
    from deepstone.report.files import check_path
    from deepstone.report.files import draw as draw_result

    target = output.expanduser()
    check_path(target)
    try:
        names = draw_result(_together(results, store), target, figure)
    except UsageError as error:
        message, given = str(error), ", ".join(map(str, results))
        named = str(target) in message or any(str(result) in message for result in results)
        raise type(error)(message if named else f"{given}: {message}") from error
    if json:
        print_json({"file": str(output), "figures": list(names)})
    else:
        note(f"{output}: {', '.join(names)}")


def _together(given: Sequence[Path], store: Path | None) -> Result:
    """One result as it is; several of `deepstone comm` under the names of their files."""
    found = {path.stem if path.suffix else str(path): _result(path, store) for path in given}
    if len(given) == 1:
        return next(iter(found.values()))
    from deepstone.report.figures.comm import together
    from deepstone.results.findings import Finding

    if len(found) < len(given):
        raise UsageError("two of them have the same name, which is to tell their curves apart; rename one")
    findings = {name: result for name, result in found.items() if isinstance(result, Finding) and result.kind == "comm"}
    if len(findings) < len(found):
        raise UsageError("only results of `deepstone comm` share a figure; draw the others one by one")
    return together(findings)


def _result(given: Path, store: Path | None) -> Result:
    """Return the result in a file, or the run with this id."""
    from deepstone.report.files import as_result, read_json

    if given.suffix or given.exists() or len(given.parts) != 1:
        return as_result(read_json(given))
    return open_store(store).get_any(str(given))


def check_folder(path: Path | None) -> None:
    """Check the folder of the file, and that the file is no folder itself, before anything is measured."""
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"no folder {folder} to write {path.name} in; make it first")
    import tempfile

    try:  # root may write everywhere by its rights, and still not into /proc
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(f"{path}: {folder} takes no files: {error.strerror}; choose another folder") from None


def check_figure(path: Path | None) -> None:
    if path is None:
        return
    from deepstone.report.files import check_path

    check_path(path)
    check_folder(path)


def draw_figure(result: Result, path: Path | None) -> None:
    if path is None:
        return
    from deepstone.report.files import draw

    draw(result, path)
    note(f"drew {path}")


def check_page(path: Path | None) -> None:
    """Check the name and the folder of a page before anything is measured or read. Raises UsageError."""
    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(
            f"cannot write {path}: the name of a page must end in .html; `deepstone report --figures` gives SVG and PNG"
        )
    check_folder(None if path is None else path.expanduser())
