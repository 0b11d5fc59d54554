"""Where a study was read from, so that a mistake is told with its place: file and line, or file and key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deepstone.errors import UsageError
from deepstone.studies.toml_lines import Place


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """`shown` is what a message calls it; `folder` is where the paths in it begin; `lines` is empty for Python."""

    shown: str
    folder: Path | None = None
    lines: Mapping[Place, int] = field(default_factory=dict[Place, int])

    def at(self, place: Place) -> str:
        """`FILE, line N` of this place or of what holds it; the keys themselves where there are no lines."""
        if not self.lines:
            keys = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
            return f"{self.shown}: {keys}" if keys else self.shown
        while place and place not in self.lines:
            place = place[:-1]
        return f"{self.shown}, line {self.lines[place]}" if place else self.shown

    def refused(self, place: Place, why: str) -> UsageError:
        return UsageError(f"{self.at(place)}: {why}")
