"""Arguments and options that several commands share, declared once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from deepstone.cli.completion import complete_axis, complete_model
from deepstone.cli.declare import OptionGroup, argument, file, flag, seconds
from deepstone.setups.request import expand_files

_LONGEST_S = 30 * 86400
MODEL_HELP = "A model of the zoo, file.py:function, or a file .onnx, .prototxt or .json."


def with_files(words: list[str] | None) -> list[str] | None:
    """Read the setups that `@FILE` names, so that the command in a record needs no file."""
    return None if words is None else expand_files(words)


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


class MeasuringOptions(OptionGroup, frozen=True, kw_only=True):
    """How processes are measured. Jobs read `hosts` from its variable."""

    timeout: Timeout = 900.0
    hosts: Hosts = None
    wait_until_quiet: WaitUntilQuiet = None


class OutputOptions(OptionGroup, frozen=True, kw_only=True):
    """Where runs are stored, and what is printed."""

    store: StorePath = None
    dry_run: DryRun = False
    json: Json = False
