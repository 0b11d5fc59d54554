"""Arguments and options that several commands share, declared once."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepstone.cli.completion import complete_axis, complete_model
from deepstone.cli.output import note
from deepstone.errors import StoreError, UsageError, shown
from deepstone.setups.request import changed as changed

if TYPE_CHECKING:
    from deepstone.results.record import Record
    from deepstone.store.layout import Damage
    from deepstone.store.rows import Filters
    from deepstone.store.store import Store


_LONGEST_S = 30 * 86400
MODEL_HELP = "A model of the zoo, file.py:function, or a file .onnx, .prototxt or .json."


def not_nan(value: float | None) -> float | None:
    """A range lets NaN through, since it is neither below nor above."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a number to stop at")
    return value


def argument(metavar: str, help: str, complete: Callable[[str], list[str]] | None = None) -> Any:
    return typer.Argument(help=help, metavar=metavar, autocompletion=complete, show_default=False)


def number(name: str, unit: str, help: str, *, least: float, most: float) -> Any:
    """An option with a number of a unit, within a range."""
    return typer.Option(name, help=help, metavar=unit, min=least, max=most, callback=not_nan)


def seconds(name: str, help: str, *, least: float = 0.01, most: float = 86400) -> Any:
    return number(name, "SECONDS", help, least=least, most=most)


def percent(name: str, help: str, *, least: float = 0.01, most: float = 100) -> Any:
    return number(name, "PERCENT", help, least=least, most=most)


def file(*names: str, help: str, metavar: str = "FILE") -> Any:
    return typer.Option(*names, help=help, metavar=metavar)


def flag(name: str, help: str) -> Any:
    return typer.Option(name, help=help)


Model = Annotated[str, argument("MODEL", MODEL_HELP, complete_model)]
Axes = Annotated[
    list[str] | None,
    argument("AXIS=VALUE", "The setup, as in batch=32 layout=nchw,nhwc; `deepstone axes` lists all.", complete_axis),
]
Image = Annotated[
    str | None,
    typer.Option(
        "--input",
        help="The size of an image, as 3x224x224, for a .prototxt or .onnx file that leaves it open.",
        metavar="CxHxW",
    ),
]
Filter = Annotated[
    list[str] | None,
    argument("NAME=VALUE", "Only runs with these values, as in model=resnet50 outcome=ok layout=nhwc."),
]
Json = Annotated[bool, flag("--json", "Print JSON on standard output.")]
DryRun = Annotated[bool, flag("--dry-run", "Say what would be measured, and measure nothing.")]
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
Target = Annotated[float, percent("--target", "Stop when the interval is within ± this many percent.")]
Budget = Annotated[float, seconds("--budget", "Stop after so many seconds of timed steps.")]
Timeout = Annotated[
    float, seconds("--timeout", "End a process that runs longer than so many seconds.", least=0.1, most=_LONGEST_S)
]


def _hand_on_hosts(hosts: str | None) -> str | None:
    """Jobs read them from the variable, whichever command makes them."""
    if hosts is not None:
        os.environ["DEEPSTONE_HOSTS"] = hosts
    return hosts


Hosts = Annotated[
    str | None,
    typer.Option(
        "--hosts",
        help="Where mpirun or srun is to start the processes of nodes=N, as in a,b.",
        metavar="NAMES",
        envvar="DEEPSTONE_HOSTS",
        callback=_hand_on_hosts,
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
    file("--also", help="Records, findings, or a folder of them, as results/h200. May be repeated.", metavar="PATH"),
]


def examples(*lines: str, before: str = "") -> str:
    """The end of a command's help, its lines kept as they are."""
    listed = "\n".join(f"  {line}" for line in lines)
    return f"{before}\n\nExamples:\n\n\b\n{listed}".strip()


def image_size(text: str | None) -> tuple[int, int, int] | None:
    """What --input says: channels, height, width."""
    if text is None:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,5}(x[1-9][0-9]{0,5}){2}", text):
        raise UsageError(f"--input {shown(text)}: must be channels, height and width, as in 3x224x224")
    channels, height, width = map(int, text.split("x"))
    return channels, height, width


def image_words(text: str | None) -> list[str]:
    """The option again, for the command that a record keeps."""
    return [] if text is None else ["--input", text]


def store_folder(given: Path | None) -> Path:
    from deepstone.store.layout import default_folder

    return default_folder() if given is None else given.expanduser()


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
