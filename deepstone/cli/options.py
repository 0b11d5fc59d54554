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
from deepstone.setups.request import expand_files

if TYPE_CHECKING:
    from deepstone.results.record import Record
    from deepstone.store.layout import Damage
    from deepstone.store.rows import Filters
    from deepstone.store.store import Store


_LONGEST_S = 30 * 86400
MODEL_HELP = "A model of the zoo, file.py:function, or a file .onnx, .prototxt or .json."


def not_nan(value: float | None) -> float | None:
    """Refuse NaN, which every range accepts because it is neither below nor above."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a number to stop at")
    return value


def argument(
    metavar: str,
    help: str,
    complete: Callable[[str], list[str]] | None = None,
    callback: Callable[[Any], Any] | None = None,
) -> Any:
    return typer.Argument(help=help, metavar=metavar, autocompletion=complete, show_default=False, callback=callback)


def with_files(words: list[str] | None) -> list[str] | None:
    """Read the setups that `@FILE` names, so that the command in a record needs no file."""
    return None if words is None else expand_files(words)


def number(name: str, unit: str, help: str, *, least: float, most: float) -> Any:
    """Return an option with a number, its unit and its range."""
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
    argument(
        "AXIS=VALUE",
        "The setup, as in batch=32 layout=nchw,nhwc; `deepstone axes` lists all. @FILE: a setup that `tune` wrote.",
        complete_axis,
        with_files,
    ),
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
NoPhases = Annotated[
    bool, flag("--no-phases", "Measure rate and memory alone: no phases, no communication, no traced steps.")
]
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


def _export_hosts(hosts: str | None) -> str | None:
    """Set the variable from which every command's jobs read the hosts."""
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
        callback=_export_hosts,
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
    """Format examples for the end of a command's help, with their line breaks."""
    listed = "\n".join(f"  {line}" for line in lines)
    return f"{before}\n\nExamples:\n\n\b\n{listed}".strip()


def image_size(text: str | None) -> tuple[int, int, int] | None:
    """Parse --input: channels, height, width."""
    if text is None:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,5}(x[1-9][0-9]{0,5}){2}", text):
        raise UsageError(f"--input {shown(text)}: must be channels, height and width, as in 3x224x224")
    channels, height, width = map(int, text.split("x"))
    return channels, height, width


def image_words(text: str | None) -> list[str]:
    """Return the option for the command in a record."""
    return [] if text is None else ["--input", text]


def store_folder(given: Path | None) -> Path:
    from deepstone.store.layout import default_folder

    return default_folder() if given is None else given.expanduser()


def open_store(store: Path | None) -> Store:
    """Open an existing store. Raises StoreError if there is none."""
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


def report_skipped(damaged: Iterable[Damage]) -> None:
    """Report skipped records, if any, and exit with the code of a damaged store."""
    distinct = list(dict.fromkeys(damaged))
    warn(distinct)
    if distinct:
        raise typer.Exit(StoreError.exit_code)


def records_in(store: Store, wanted: Filters) -> list[Record]:
    """Return the matching runs, oldest first. Damaged ones are reported and skipped."""
    listing = store.list(wanted)
    damaged = list(listing.damaged)
    records = list(store.records(listing.rows, damaged=damaged))
    warn(damaged)
    return records
