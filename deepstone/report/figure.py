"""The content of a figure, independent of its renderer: panels, a caption, and the table of its numbers.

Two renderers read it, so a figure is written once and looks the same in a paper and in a browser.
"""

from __future__ import annotations

from msgspec import Struct

from deepstone.errors import UsageError
from deepstone.report.panels import Panel
from deepstone.report.table import Table


class NothingToDrawError(UsageError):
    """A result lacks the data of a figure; the message says what is missing and how to get it."""


class Figure(Struct, frozen=True, kw_only=True):
    """Panels, one below the other. `commands` reproduce the numbers; `doubts` are reasons to trust them less.

    `model` is empty if a figure shows several.
    """

    name: str
    model: str
    title: str
    subtitle: str
    panels: tuple[Panel, ...]
    caption: tuple[str, ...]
    table: Table
    commands: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        return f"{self.model}: {self.title}" if self.model else self.title
