"""`deepstone draw`: a saved result as a picture or a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deepstone.cli.options import Json, examples
from deepstone.cli.output import note, print_json
from deepstone.errors import UsageError

EXAMPLES = examples(
    "deepstone layers alexnet-owt batch=32 --json > layers.json",
    "deepstone draw layers.json -o layers.svg",
    "deepstone draw layers.json -o roofline.png --figure roofline",
    "deepstone draw layers.json -o layers.html",
)


def draw(
    result: Annotated[
        Path,
        typer.Argument(help="What `deepstone layers`, `conv` or another printed with --json.", metavar="RESULT.json"),
    ],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="Where to draw: .svg, .png or .html.", metavar="FILE", show_default=False),
    ],
    figure: Annotated[
        str | None,
        typer.Option(
            "--figure",
            help="Of layers: bars, groups, roofline, memory. Of conv: algorithms.",
            metavar="NAME",
            show_default="the first, or all in HTML",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """A saved result as SVG, PNG or HTML. The file is overwritten; HTML needs nothing but itself."""
    from deepstone.report.draw import check_path
    from deepstone.report.draw import draw as draw_result
    from deepstone.report.result_file import read_result

    target = output.expanduser()
    check_path(target)
    content = read_result(result)
    try:
        names = draw_result(content, target, figure)
    except UsageError as error:
        told = str(error)
        raise type(error)(told if str(target) in told else f"{result}: {told}") from error
    if json:
        print_json({"file": str(output), "figures": list(names)})
    else:
        note(f"{output}: {', '.join(names)}")
