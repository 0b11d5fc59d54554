"""How commands declare their arguments and options, and the examples at the end of their help."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import typer


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


def examples(*lines: str, before: str = "") -> str:
    """Format examples for the end of a command's help, with their line breaks."""
    listed = "\n".join(f"  {line}" for line in lines)
    return f"{before}\n\nExamples:\n\n\b\n{listed}".strip()
