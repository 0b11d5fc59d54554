"""What the page's script needs to draw a panel: plotly's traces and layout, and what depends on the width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any, Final, TypeAlias

from deepstone.report.scales import Scale, titled
from deepstone.report.wording import shortened

Trace: TypeAlias = dict[str, Any]

LABEL_ROOM: Final = 34
NARROW_LABEL_ROOM: Final = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """An entry of the legend, which shows and hides traces. One without traces only explains a colour."""

    name: str
    colour: str
    traces: tuple[int, ...] = ()
    frame: bool = False
    marker: str = "square"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ruler:
    """An axis as the script sets it. `letters` is what words behind the bars need beyond its end, if they need room."""

    low: float
    high: float
    at: tuple[float, ...]
    texts: tuple[str, ...]
    title: str
    letters: int = 0
    log: bool = False
    room: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Plot:
    """`labels` stand left of the rows, shorter ones in a narrow window; `wide_only` are notes that need a wide one."""

    title: str
    traces: tuple[Trace, ...]
    layout: dict[str, Any]
    keys: tuple[Key, ...]
    height_px: int
    least_px: int = 0
    labels: tuple[str, ...] = ()
    narrow_labels: tuple[str, ...] = ()
    ruler: Ruler | None = None
    wide_only: tuple[dict[str, Any], ...] = field(default=())

    def for_script(self) -> dict[str, Any]:
        return asdict(self)


def inert(text: str) -> str:
    """For plotly, which reads a little HTML, and formulas between dollars, in all its texts: here nothing is markup."""
    return escape(text, quote=False).replace("$", "&#36;")


def lines(*parts: str) -> str:
    """Several lines in a text of plotly's."""
    return "<br>".join(inert(part) for part in parts if part)


def labels(names: Sequence[str], room: int) -> tuple[str, ...]:
    return tuple(inert(shortened(name, room)) for name in names)


def ruler(scale: Scale, title: str, *, letters: int = 0, log: bool = False) -> Ruler:
    return Ruler(
        low=scale.low,
        high=scale.high,
        at=tuple(tick.at for tick in scale.ticks),
        texts=tuple(tick.text for tick in scale.ticks),
        title=inert(titled(title, scale.unit)),
        letters=letters,
        log=log,
    )
