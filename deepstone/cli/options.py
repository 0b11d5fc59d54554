"""Arguments and options that several commands share, declared once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepstone.cli.completion import complete_axis, complete_model
from deepstone.cli.output import note
from deepstone.errors import StoreError, UsageError
from deepstone.setups.request import changed as changed

if TYPE_CHECKING:
    from deepstone.results.record import Record
    from deepstone.store.layout import Damage
    from deepstone.store.rows import Filters
    from deepstone.store.store import Store


_LONGEST_S = 30 * 86400
MODEL_HELP = "A model of the zoo, file.py:function, or a file .onnx, .prototxt or .json."

Model = Annotated[
    str,
    typer.Argument(
        help=MODEL_HELP,
        metavar="MODEL",
        autocompletion=complete_model,
        show_default=False,
    ),
]
Axes = Annotated[
    list[str] | None,
    typer.Argument(
        help="The setup, as in batch=32 layout=nchw,nhwc; `deepstone axes` lists all.",
        metavar="AXIS=VALUE",
        autocompletion=complete_axis,
        show_default=False,
    ),
]


def not_nan(value: float | None) -> float | None:
    """A range lets NaN through, since it is neither below nor above."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a number to stop at")
    return value


Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be measured, and measure nothing.")]
StorePath = Annotated[
    Path | None,
    typer.Option(
        "--store",
        help="Where runs are kept.",
        metavar="DIR",
        envvar="DEEPSTONE_STORE",
        show_default="deepstone in your data folder",
    ),
]
Target = Annotated[
    float,
    typer.Option(
        "--target",
        help="Stop when the interval is within ± this many percent.",
        metavar="PERCENT",
        min=0.01,
        max=100,
        callback=not_nan,
    ),
]
Budget = Annotated[
    float,
    typer.Option(
        "--budget",
        help="Stop after so many seconds of timed steps.",
        metavar="SECONDS",
        min=0.01,
        max=86400,
        callback=not_nan,
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        help="End a process that runs longer than so many seconds.",
        metavar="SECONDS",
        min=0.1,
        max=_LONGEST_S,
        callback=not_nan,
    ),
]

WaitUntilQuiet = Annotated[
    str | None,
    typer.Option(
        "--wait-until-quiet",
        help="Wait before measuring until others do not use the machine, at most so long, as in '10 min'.",
        metavar="TIME",
    ),
]
TimeLimit = Annotated[
    str | None,
    typer.Option("--time", help="Stop within this time, the most informative first, as in '10 min'.", metavar="TIME"),
]
Also = Annotated[
    list[Path] | None,
    typer.Option(
        "--also", help="Records, findings, or a folder of them, as results/h200. May be repeated.", metavar="PATH"
    ),
]


def examples(*lines: str, before: str = "") -> str:
    """The end of a command's help, its lines kept as they are."""
    listed = "\n".join(f"  {line}" for line in lines)
    return f"{before}\n\nExamples:\n\n\b\n{listed}".strip()


def store_folder(given: Path | None) -> Path:
    from deepstone.store.layout import default_folder

    return default_folder() if given is None else given.expanduser()


Filter = Annotated[
    list[str] | None,
    typer.Argument(
        help="Only runs with these values, as in model=resnet50 outcome=ok layout=nhwc.", metavar="NAME=VALUE"
    ),
]


def open_store(store: Path | None) -> Store:
    """The store that there is; StoreError where there is none."""
    from deepstone.store.store import Store

    return Store.open(store_folder(store), create=False)


def filters_in(words: Sequence[str]) -> Filters:
    from deepstone.store.rows import filters_of

    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"{word!r} is not NAME=VALUE, as in model=resnet50")
        given[name] = value
    return filters_of(given)


def warn(damaged: Iterable[Damage]) -> None:
    for damage in damaged:
        note(f"deepstone: damaged record {damage.path}: {damage.reason}; `deepstone results delete` removes it")


def tell_skipped(damaged: Iterable[Damage]) -> None:
    """Tells what was skipped and leaves with the exit code of a damaged store; does nothing if nothing was."""
    told = list(dict.fromkeys(damaged))
    warn(told)
    if told:
        raise typer.Exit(StoreError.exit_code)


def records_in(store: Store, wanted: Filters) -> list[Record]:
    """The runs that match, oldest first; a damaged one is told, and the others come."""
    listing = store.list(wanted)
    damaged = list(listing.damaged)
    records = list(store.records(listing.rows, damaged=damaged))
    warn(damaged)
    return records
