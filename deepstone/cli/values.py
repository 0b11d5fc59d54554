"""Values of arguments and options that need no conversion.

typer 0.29 converts every value with pydantic, whose import takes 0.07 s of CPU time: half of what a short command
takes. Text for a parameter of type `str`, and a default, have their type already.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any


def skip_needless_conversions(parameters: Iterable[Any]) -> None:
    """Have these parameters of typer take values that have their type as they are. Other values go to typer."""
    for parameter in parameters:
        # typer has type_descriptor since it uses pydantic. A command may be parsed twice.
        if hasattr(parameter, "type_descriptor") and "process_value" not in vars(parameter):
            parameter.process_value = partial(_process_value, parameter, parameter.process_value)


def _process_value(parameter: Any, convert: Any, ctx: Any, value: Any) -> Any:
    """Do what typer's method does, as far as no conversion is needed."""
    several: bool = parameter.multiple or parameter.nargs != 1
    if not (_have_their_type(parameter, value) if several else _has_its_type(parameter, value)):
        return convert(ctx, value)
    taken = list(value) if several and value is not None else () if several else value
    return taken if parameter.callback is None else parameter.callback(ctx, parameter, taken)


def _has_its_type(parameter: Any, value: object) -> bool:
    if value is None:
        return not parameter.required
    if isinstance(value, str):
        return parameter.type_descriptor.annotation is str
    return isinstance(value, bool | int | float)  # a default: the command line and the environment give text


def _have_their_type(parameter: Any, values: Any) -> bool:
    if values is None:
        return not parameter.required
    is_list_of_text = parameter.type_descriptor.annotation == list[str]
    return is_list_of_text and bool(values) and all(isinstance(value, str) for value in values)
