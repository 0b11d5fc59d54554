"""Prints help: the same text with every version of typer. Versions differ in how they name arguments and escape
brackets. This module uses only what all versions offer, and never click itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from deepstone.cli.values import skip_needless_conversions

_Command = TypeVar("_Command", bound=Callable[..., Any])


class HelpfulCommand(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        skip_needless_conversions(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return _usage(self, ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_parameters(self, ctx, formatter)


class HelpfulGroup(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        skip_needless_conversions(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*_usage(self, ctx), self.subcommand_metavar]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_parameters(self, ctx, formatter)
        self.format_commands(ctx, formatter)


class Commands(typer.Typer):
    """A group of commands with this module's help."""

    def __init__(self, *, cls: type[TyperGroup] = HelpfulGroup, add_completion: bool = False, **options: Any) -> None:
        # Plain help keeps the lines of examples, and needs no import of rich.
        super().__init__(cls=cls, rich_markup_mode=None, add_completion=add_completion, **options)

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = None, **options: Any
    ) -> Callable[[_Command], _Command]:
        return super().command(name, cls=cls or HelpfulCommand, **options)


def _usage(command: Any, ctx: Any) -> list[str]:
    return [command.options_metavar, *(_shown(each) for each in command.get_params(ctx) if _is_argument(each))]


def _write_parameters(command: Any, ctx: Any, formatter: Any) -> None:
    rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for each in command.get_params(ctx):
        record: tuple[str, str] | None = each.get_help_record(ctx)
        if record is not None:
            name, help = record
            section = "Arguments" if _is_argument(each) else "Options"
            rows[section].append((_shown(each) if _is_argument(each) else name, help.replace(r"\[", "[")))
    for section, listed in rows.items():
        if listed:
            with formatter.section(section):
                formatter.write_dl(listed)


def _is_argument(parameter: Any) -> bool:
    return parameter.param_type_name == "argument"


def _shown(argument: Any) -> str:
    """Format an argument as in `MODEL [AXIS=VALUE]...`: optional ones in brackets, repeatable ones with dots."""
    word = str(argument.metavar or argument.name.upper())
    return f"{word if argument.required else f'[{word}]'}{'...' if argument.nargs == -1 else ''}"
