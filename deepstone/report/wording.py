"""Formats names and numbers for figures: escaped, shortened to their room, with interval or reason."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.errors import RefusedInputError, shown
from deepstone.report.table import IntervalOf, Table, TableCell, Unit, Value
from deepstone.results.record import Record
from deepstone.units import bytes_, count, digits, percent, seconds

_LONGEST_NAME = 300  # nobody reads more, and a line of megabytes stops a renderer
LONGEST_SENTENCE = 1500
_LARGEST = 1e100

Shown = TypeVar("Shown")
SHOWN: Final[Mapping[Unit, Callable[[float], str]]] = {
    Unit.SECONDS: seconds,
    Unit.BYTES: bytes_,
    Unit.FLOPS_PER_S: lambda value: count(value, "FLOP/s"),
    Unit.FLOPS_PER_BYTE: lambda value: f"{digits(value)} FLOP/byte",
    Unit.BYTES_PER_S: lambda value: count(value, "B/s"),
    Unit.SAMPLES_PER_S: lambda value: f"{digits(value)} images/s",
    Unit.OTHER_SAMPLES_PER_S: lambda value: f"{digits(value)} samples/s",
    Unit.SAMPLES_PER_J: lambda value: f"{digits(value)} images/J",
    Unit.OTHER_SAMPLES_PER_J: lambda value: f"{digits(value)} samples/J",
    Unit.RATIO: lambda value: f"{digits(value)}×",
    Unit.SHARE: percent,
    Unit.YEAR: lambda value: f"{value:.0f}",
    Unit.GIGAFLOPS: digits,
    Unit.RELATIVE_ERROR: lambda value: f"{value:.1e}",
    Unit.NUMBER: digits,
}


def harmless(text: str, longest: int = _LONGEST_NAME) -> str:
    """Escape control characters and those that change the direction of text."""
    return shortened(shown(text), longest)


def made_harmless(part: Shown) -> Shown:
    """Return a figure, a report, or a part of one with every text escaped.

    Raises RefusedInputError for a number that no axis can show or whose sums may not be finite.
    """
    return _made_harmless(part)


def _made_harmless(part: Any) -> Any:
    if isinstance(part, str):
        return harmless(part, LONGEST_SENTENCE)
    if isinstance(part, float):
        if not abs(part) <= _LARGEST:
            raise RefusedInputError(f"holds the number {part:g}; one of at most {_LARGEST:g} can be shown")
        return part
    if isinstance(part, tuple):
        return tuple(_made_harmless(each) for each in cast(Iterable[object], part))
    if isinstance(part, list):
        return [_made_harmless(each) for each in cast(Iterable[object], part)]
    if isinstance(part, Mapping):
        return {key: _made_harmless(each) for key, each in cast(Mapping[str, object], part).items()}
    if isinstance(part, Absent):
        return Absent(_made_harmless(part.reason))
    if part is None or isinstance(part, int | Enum | Record):  # the shown parts of a record are text already
        return part
    assert isinstance(part, Struct), f"a page shows no {type(part).__name__}"  # else its texts would not be escaped
    names = part.__struct_fields__
    return replace(part, **{name: _made_harmless(getattr(part, name)) for name in names})


def shortened(text: str, room: int) -> str:
    """Shorten a name to this many characters. Both ends stay, because names of layers differ at either end."""
    if len(text) <= room:
        return text
    tail = (room - 1) // 2
    return f"{text[: room - 1 - tail]}…{text[-tail:] if tail else ''}"


def cut(text: str, room: int) -> str:
    """Cut a sentence to this many characters."""
    return text if len(text) <= room else f"{text[: room - 1].rstrip()}…"


def listed(words: list[str], at_most: int = 4) -> str:
    """List a few names, and the number of the rest."""
    more = len(words) - at_most
    return ", ".join(words[:at_most]) + (f" and {more} more" if more > 0 else "")


def wrapped_name(name: str, room: int, lines: int = 3) -> list[str]:
    """Wrap a name over a few lines, at blanks and underscores if it has any."""
    parts = textwrap.wrap(name.replace("_", "_ ").replace("-", "- "), room) or [""]
    joined = [part.replace("_ ", "_").replace("- ", "-") for part in parts]
    return joined if len(joined) <= lines else [*joined[: lines - 1], shortened("".join(joined[lines - 1 :]), room)]


def file_name(name: str) -> str:
    """Return a name of letters, digits and dashes only, for anchors and files."""
    words = "".join(sign if sign.isascii() and sign.isalnum() else " " for sign in name).split()
    return "-".join(words)[:100] or "figure"


def distinct(name: str, taken: set[str]) -> str:
    """Return the name, with a number if it is in use, and reserve it."""
    number = 1
    while (chosen := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    taken.add(chosen)
    return chosen


def share(value: float) -> str:
    """Format a percentage briefly: tiny shares need no digits."""
    return "< 0.01 %" if 0 < value < 1e-4 else percent(value)


def value_words(value: Value, shown: Callable[[float], str]) -> str:
    """Format a number with its interval, or with the reason why it has none."""
    interval = interval_words(value, shown)
    return f"{shown(value.middle)} ({interval})" if interval else shown(value.middle)


def interval_words(value: Value, shown: Callable[[float], str]) -> str:
    """Format an interval, or the reason for its absence; nothing for numbers that never have one."""
    if value.low is None or value.high is None:
        return value.no_interval
    return f"{shown(value.low)} – {shown(value.high)}"


def is_resolved(value: Value) -> bool:
    """Whether a time is resolved: a difference whose interval reaches below 0 is not."""
    return (value.middle if value.low is None else value.low) >= 0


def table_text(table: Table) -> list[tuple[str, ...]]:
    """Format the rows of a table for people."""
    units = [column.unit for column in table.columns]
    return [tuple(_cell(cell, unit) for cell, unit in zip(row, units, strict=True)) for row in table.rows]


def _cell(cell: TableCell, unit: Unit | None) -> str:
    if cell is None or isinstance(cell, str):
        return cell or ""
    if isinstance(cell, Absent):
        return "" if unit is Unit.SHARE else f"absent: {cell.reason}"
    shown = share if unit is Unit.SHARE else SHOWN[unit or Unit.NUMBER]
    if isinstance(cell, IntervalOf):
        return interval_words(cell.value, shown)
    if isinstance(cell, int) and unit in (None, Unit.NUMBER):
        return f"{cell:,}"
    if isinstance(cell, int | float):
        return shown(cell)
    if unit is Unit.SECONDS and not is_resolved(cell):
        return f"not resolved ({interval_words(cell, shown)})"
    return value_words(cell, shown)
