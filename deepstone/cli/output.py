"""Data on standard output, messages on standard error. Text fits the window; JSON never holds anything else."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

from deepstone.cli.table import Column, table_lines
from deepstone.errors import DeepstoneError

_NARROWEST = 20  # below this wrapping does no good


def print_json(data: object) -> None:
    write(json.dumps(data, indent=2, allow_nan=False) + "\n")


def print_json_items(items: Iterable[object]) -> None:
    """A list with one item in a line: long lists are written ten times as fast so, and can be searched by line."""
    lines = [json.dumps(item, allow_nan=False) for item in items]
    write("[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n")


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    shown = [[harmless(cell) for cell in row] for row in rows]
    write("".join(f"{line}\n" for line in table_lines(columns, shown, window_width())))


def print_lines(lines: Iterable[str], *, hang: int = 2) -> None:
    """Lines of prose; one that does not fit goes on in the next, indented `hang` deeper than it began."""
    write("".join(f"{part}\n" for line in lines for part in _fitted(harmless(line), hang)))


def note(message: str) -> None:
    """A message for the person, not for the next program."""
    sys.stderr.write(f"{harmless(message)}\n")
    sys.stderr.flush()


def write(text: str) -> None:
    """Everything on standard output goes through here; BrokenPipeError when its reader has gone."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DeepstoneError(f"cannot write to standard output: {reason}") from error


def window_width() -> int | None:
    """Of the terminal that shows standard output; None where there is none, and lines may be as long as they like."""
    if not sys.stdout.isatty():
        return None
    return max(_NARROWEST, shutil.get_terminal_size().columns)


def harmless(text: str) -> str:
    """With control characters spelt out: a record may come from anywhere, and a terminal obeys what it is shown."""
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
