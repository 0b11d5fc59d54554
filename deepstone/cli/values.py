"""Values of arguments and options that pydantic need not convert.

typer 0.29 converts every value with pydantic, whose import takes 0.07 s of CPU time: half of what a short command
takes. Text, paths without conditions, and plain numbers are converted here, to what typer would make of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

_LEFT_TO_TYPER: Final = object()
_PLAIN_NUMBERS: Final[dict[object, re.Pattern[str]]] = {
    int: re.compile(r"[0-9]{1,15}"),
    float: re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?"),
}


def skip_needless_conversions(parameters: Iterable[Any]) -> None:
    """Have these parameters of typer convert plain values without pydantic. Other values go to typer."""
    for parameter in parameters:
        # typer has type_descriptor since it uses pydantic. A command may be parsed twice.
        if hasattr(parameter, "type_descriptor") and "process_value" not in vars(parameter):
            parameter.process_value = partial(_process_value, parameter, parameter.process_value)


def _process_value(parameter: Any, convert: Any, ctx: Any, value: Any) -> Any:
    """Do what typer's method does, as far as pydantic is not needed."""
    several: bool = parameter.multiple or parameter.nargs != 1
    taken = _several(parameter, value) if several else _single(parameter, value)
    if taken is _LEFT_TO_TYPER:
        return convert(ctx, value)
    return taken if parameter.callback is None else parameter.callback(ctx, parameter, taken)


def _single(parameter: Any, value: Any) -> Any:
    if value is None:
        return _LEFT_TO_TYPER if parameter.required else None
    if not isinstance(value, str):  # a default: the command line and the environment give text
        return value if isinstance(value, bool | int | float) else _LEFT_TO_TYPER
    annotation = parameter.type_descriptor.annotation
    if annotation is str:
        return value
    if annotation is Path:
        return _path(parameter.type_descriptor.parameter_info, value)
    if annotation in _PLAIN_NUMBERS and _PLAIN_NUMBERS[annotation].fullmatch(value):
        return _number(parameter.type_descriptor.parameter_info, annotation(value))
    return _LEFT_TO_TYPER


def _path(info: Any, text: str) -> Any:
    """Of what is there, typer checks whether it can be read."""
    has_conditions = info.exists or info.resolve_path or info.writable or info.allow_dash or info.path_type is not None
    is_anything = info.file_okay and info.dir_okay
    # os.path.exists: no file is there whose name is too long for a file system.
    if has_conditions or not is_anything or (os.path.exists(text) and not os.access(text, os.R_OK)):  # noqa: PTH110
        return _LEFT_TO_TYPER
    return Path(text)


def _number(info: Any, number: float) -> Any:
    is_within = (info.min is None or number >= info.min) and (info.max is None or number <= info.max)
    return number if is_within else _LEFT_TO_TYPER


def _several(parameter: Any, values: Any) -> Any:
    if values is None:
        return _LEFT_TO_TYPER if parameter.required else ()
    is_list_of_text = parameter.type_descriptor.annotation == list[str]
    has_its_type = is_list_of_text and bool(values) and all(isinstance(value, str) for value in values)
    return list(values) if has_its_type else _LEFT_TO_TYPER
