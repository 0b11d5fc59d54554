"""Help is there for every command, and asking costs no framework."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest
from cli_kit import Cli, code_and_imports

import deepstone

COMMANDS = (
    (),
    ("doctor",),
    ("models",),
    ("axes",),
    ("run",),
    ("compare",),
    ("tune",),
    ("scale",),
    ("comm",),
    ("verify",),
    ("layers",),
    ("memory",),
    ("conv",),
    ("draw",),
    ("study",),
    ("papers",),
    ("report",),
    ("caffe",),
    ("caffe", "time"),
    ("env",),
    *(("env", name) for name in ("list", "add", "remove", "doctor")),
    ("results",),
    *(("results", name) for name in ("list", "show", "export", "import", "delete", "rebuild", "gate", "compare")),
)
TOP_LEVEL = {command[0] for command in COMMANDS if command}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help(reader: Cli, command: tuple[str, ...]) -> None:
    done = reader(*command, "-h" if command else "--help").assert_ok()
    assert done.out.startswith(f"Usage: {' '.join(('deepstone', *command))}")
    assert done.err == ""
    assert len(command) == 2 or "Examples:" in done.out


def test_version(reader: Cli) -> None:
    assert reader("--version").assert_ok().out == f"deepstone {deepstone.__version__}\n"


_HEAVY = frozenset({"torch", "numpy", "rich", "psutil", "pydantic"})


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["--help"], _HEAVY),
        (["models"], _HEAVY),
        (["models", "resnet50", "--json"], _HEAVY),
        (["axes"], _HEAVY),
        (["run", "cifarnet", "framework=fake", "--dry-run", "--budget", "3", "--store", "x"], {"torch", "pydantic"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_asking_imports_nothing_heavy(reader: Cli, words: list[str], heavy: set[str]) -> None:
    code, imported = code_and_imports(reader, *words)
    assert code == "0"
    assert "typer" in imported
    assert heavy & set(imported) <= _imported_by_typer()
    assert "click" not in imported or "click" in _imported_by_typer()
    commands = {name for name in TOP_LEVEL if f"deepstone.cli.{name}" in imported}
    assert commands <= {words[0], "draw"}  # `run` also draws


def test_help_has_no_escapes(reader: Cli) -> None:
    done = reader("run", "--help").assert_ok()
    assert done.out.startswith("Usage: deepstone run [OPTIONS] MODEL [AXIS=VALUE]...\n")
    assert "[required]" in done.out
    assert "\\" not in done.out


@cache
def _imported_by_typer() -> frozenset[str]:
    """Old versions import rich, or click, or both; newer ones neither."""
    program = "import sys, typer.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=True)
    return frozenset(done.stdout.split())
