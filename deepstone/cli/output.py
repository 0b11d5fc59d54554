"""Data on standard output, messages on standard error. Tables fit the window; JSON never holds anything else."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_json(data: object) -> None:
    json.dump(data, sys.stdout, indent=2, allow_nan=False, ensure_ascii=False)
    sys.stdout.write("\n")


def note(message: str) -> None:
    """A message for the person, not for the next program."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


def console() -> Console:
    """Standard output as rich sees it; wide enough not to wrap where no terminal says how wide it is."""
    from rich.console import Console

    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=160)


def table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], *, title: str | None = None) -> Table:
    """Columns are (heading, "left" or "right")."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    made = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for heading, side in columns:
        made.add_column(heading, justify="right" if side == "right" else "left", overflow="fold")
    for row in rows:
        made.add_row(*(escape(cell) for cell in row))
    return made
