"""How commands declare their arguments and options, and the examples at the end of their help."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import wraps
from typing import Any, cast

import typer
from msgspec import Struct


class OptionGroup(Struct, frozen=True, kw_only=True):
    """Options that several commands have side by side. A command takes them as one parameter, without a default."""


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command as typer reads it: in place of each group of options, these options."""
    declared = inspect.signature(command, eval_str=True)
    groups = {name: each.annotation for name, each in declared.parameters.items() if _is_group(each.annotation)}
    if not groups:
        return command

    @wraps(command)
    def with_options(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{option: given.pop(option) for option in group.__struct_fields__})
        command(**given)

    options: list[inspect.Parameter] = []
    for name, each in declared.parameters.items():
        options += inspect.signature(groups[name], eval_str=True).parameters.values() if name in groups else [each]
    cast(Any, with_options).__signature__ = declared.replace(parameters=options)
    with_options.__annotations__ = {option.name: option.annotation for option in options}
    return with_options


def _is_group(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, OptionGroup)


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
