"""Data on standard output, messages on standard error. Text and tables fit the window; `--json` prints only JSON.

Tables fit by wrapping prose and omitting columns; a number is never cut. Rich could print them, but importing it takes
longer than most commands that print a table.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct

from deepstone.absent import as_json
from deepstone.errors import DeepstoneError

if TYPE_CHECKING:
    from deepstone.results.parts import Json

_NARROWEST = 20  # narrower text is not readable
_GAP = "  "
_ALWAYS = 0


class Column(Struct, frozen=True, kw_only=True):
    """A column of a table. Rank 0 is always shown; others are shown by rank while they fit. Empty columns are omitted.

    `wraps` is the least width of a column with prose or a list of words; 0 means that the column never wraps. `below`:
    where the column does not fit, its cells follow as lines below the table, because nobody may miss them.
    """

    heading: str
    right: bool = False
    rank: int = _ALWAYS
    wraps: int = 0
    below: bool = False


class _Result(Protocol):
    """Any type with `to_json`: a record, a quantity, an absent value."""

    def to_json(self) -> Mapping[str, Json]: ...


Data: TypeAlias = "str | int | float | bool | Mapping[str, Data] | Sequence[Data] | _Result"


def print_json(data: Data) -> None:
    write(json.dumps(as_json(data), indent=2, allow_nan=False) + "\n")


def print_json_items(items: Iterable[Mapping[str, Data]]) -> None:
    """Print a list with one item per line: ten times as fast for long lists, and searchable by line."""
    lines = [json.dumps(item, allow_nan=False) for item in items]
    write("[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n")


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    shown = [[harmless(cell) for cell in row] for row in rows]
    write("".join(f"{line}\n" for line in table_lines(columns, shown, window_width())))


def print_lines(lines: Iterable[str], *, hang: int = 2) -> None:
    """Print lines of prose, wrapped to the window; continuation lines are indented by `hang` more."""
    write("".join(f"{part}\n" for line in lines for part in _fitted(harmless(line), hang)))


def note(message: str) -> None:
    """Print a message for people on standard error."""
    sys.stderr.write(f"{harmless(message)}\n")
    sys.stderr.flush()


def write(text: str) -> None:
    """Write to standard output; all output goes through here. Raises BrokenPipeError if the reader is gone."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DeepstoneError(f"cannot write to standard output: {reason}") from error


def window_width() -> int | None:
    """Return the width of the terminal of standard output, or None if there is none and lines may have any length."""
    if not sys.stdout.isatty():
        return None
    return max(_NARROWEST, shutil.get_terminal_size().columns)


def harmless(text: str) -> str:
    """Escape control characters: a record may come from anywhere, and a terminal obeys them."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text.expandtabs()
    )


def _fitted(line: str, hang: int) -> list[str]:
    width = window_width()
    if width is None or len(line) <= width:
        return [line]
    begin = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line.strip(),
        width,
        initial_indent=begin,
        subsequent_indent=begin + " " * hang,
        break_on_hyphens=False,
        drop_whitespace=True,
    )


class _Sized(Struct, frozen=True, kw_only=True):
    column: Column
    cells: tuple[str, ...]
    natural: int

    @property
    def least(self) -> int:
        return min(self.natural, self.column.wraps) if self.column.wraps else self.natural


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Return the lines of a table for this width. None means a file, where every row is one line."""
    sized = [_sized(column, [row[number] for row in rows]) for number, column in enumerate(columns)]
    filled = [entry for entry in sized if any(entry.cells) or not rows or entry.column.rank == _ALWAYS]
    shown = filled if width is None else _that_fit(filled, width)
    widths = _widths(shown, width)
    lines = _headings(shown, widths)
    lines.append(_GAP.join("─" * size for size in widths))
    for number in range(len(rows)):
        lines += _row([entry.cells[number] for entry in shown], shown, widths)
    left_out = [entry for entry in filled if entry not in shown]
    below = [line for entry in left_out if entry.column.below for line in _below(entry, shown)]
    if below:
        lines += [
            "",
            *(part for line in below for part in textwrap.wrap(line, width or len(line), subsequent_indent="  ")),
        ]
    names = [_one_line(entry.column.heading) for entry in left_out if not entry.column.below]
    if names:
        note = f"Not shown in a window this narrow: {', '.join(names)}. --json has everything."
        lines += ["", *textwrap.wrap(note, width or len(note))]
    return lines


def _below(left_out: _Sized, shown: Sequence[_Sized]) -> Iterator[str]:
    """The cells of a column, each with the words that its row begins with: those before the numbers, or the first."""
    named = list(takewhile(lambda entry: not entry.column.right, shown)) or shown[:1]
    for number, cell in enumerate(left_out.cells):
        if cell:
            row = " ".join(f"{_one_line(entry.column.heading)} {entry.cells[number]}" for entry in named)
            yield f"{_one_line(left_out.column.heading)} of {row}: {cell}"


def _one_line(heading: str) -> str:
    return heading.replace("\n", " ")


def _sized(column: Column, cells: Sequence[str]) -> _Sized:
    texts = [*column.heading.split("\n"), *cells]
    width = len if all(map(str.isascii, texts)) else display_width  # a quarter of the time for ten thousand rows
    return _Sized(column=column, cells=tuple(cells), natural=max(map(width, texts)))


def _that_fit(columns: Sequence[_Sized], width: int) -> list[_Sized]:
    chosen = [entry for entry in columns if entry.column.rank == _ALWAYS]
    for entry in sorted(columns, key=lambda entry: entry.column.rank):
        if entry not in chosen and _total([each.least for each in [*chosen, entry]]) <= width:
            chosen.append(entry)
    return [entry for entry in columns if entry in chosen]


def _widths(columns: Sequence[_Sized], width: int | None) -> list[int]:
    """Share the space beside fixed columns among those that wrap; none gets more than it needs."""
    widths = [entry.natural for entry in columns]
    wrapping = [number for number, entry in enumerate(columns) if entry.column.wraps]
    if width is None or not wrapping:
        return widths
    left = width - _total(widths) + sum(widths[number] for number in wrapping)
    # The narrowest come first: the space that they do not need goes to the others.
    narrowest_first = sorted(wrapping, key=lambda number: columns[number].natural)
    for taken, number in enumerate(narrowest_first):
        others_least = sum(columns[other].least for other in narrowest_first[taken + 1 :])
        share = min(left // (len(wrapping) - taken), left - others_least)
        widths[number] = max(columns[number].least, min(columns[number].natural, share))
        left -= widths[number]
    return widths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _headings(columns: Sequence[_Sized], widths: Sequence[int]) -> list[str]:
    """Return the lines of the headings, aligned at the last line."""
    parts = [entry.column.heading.split("\n") for entry in columns]
    height = max(map(len, parts))
    padded = [[""] * (height - len(part)) + part for part in parts]
    return [_line([part[number] for part in padded], columns, widths) for number in range(height)]


def _row(cells: Sequence[str], columns: Sequence[_Sized], widths: Sequence[int]) -> list[str]:
    if not any(entry.column.wraps for entry in columns):
        return [_line(cells, columns, widths)]
    parts = [
        _wrapped(cell, size) if entry.column.wraps else [cell]
        for cell, entry, size in zip(cells, columns, widths, strict=True)
    ]
    height = max(map(len, parts))
    return [
        _line([part[number] if number < len(part) else "" for part in parts], columns, widths)
        for number in range(height)
    ]


def _line(cells: Sequence[str], columns: Sequence[_Sized], widths: Sequence[int]) -> str:
    padded = [_padded(cell, size, entry.column.right) for cell, entry, size in zip(cells, columns, widths, strict=True)]
    return _GAP.join(padded).rstrip()


def _padded(cell: str, size: int, right: bool) -> str:
    if cell.isascii():
        return cell.rjust(size) if right else cell.ljust(size)
    space = " " * (size - display_width(cell))
    return space + cell if right else cell + space


def _wrapped(text: str, size: int) -> list[str]:
    return textwrap.wrap(text, size, break_on_hyphens=False) or [""]


def display_width(text: str) -> int:
    """Return the number of terminal cells that the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(character) in "WF" else 0 if unicodedata.combining(character) else 1
        for character in text
    )
