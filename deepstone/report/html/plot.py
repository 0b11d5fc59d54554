"""What the page's script needs to draw a panel: plotly's traces and layout, and what depends on the width."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final, TypeAlias

from deepstone.report.figure import Panel
from deepstone.report.labels import PointName
from deepstone.report.legend import Entry, legend
from deepstone.report.scales import Scale
from deepstone.report.wording import shortened

PlotlyObject: TypeAlias = dict[str, Any]  # plotly's JSON: a trace, a layout, or a part of one

LABEL_ROOM: Final = 34
NARROW_LABEL_ROOM: Final = 20
_TICK_ROOM: Final = 22


@dataclass(frozen=True, kw_only=True, slots=True)
class Plot:
    """`labels` stand left of the rows, shorter ones in a narrow window; `wide_only` are notes that need a wide one.

    `keys` is the legend. Each entry shows and hides its traces; one without traces only explains a colour. `across` is
    an axis that the script sets; `letters` is what words behind the bars need beyond its end.
    """

    title: str
    traces: tuple[PlotlyObject, ...]
    layout: PlotlyObject
    keys: tuple[tuple[Entry, tuple[int, ...]], ...]
    height_px: int
    least_px: int = 0
    labels: tuple[str, ...] = ()
    narrow_labels: tuple[str, ...] = ()
    across: Scale | None = None
    letters: int | None = None
    wide_only: tuple[PlotlyObject, ...] = ()

    def for_script(self) -> PlotlyObject:
        """Without what the page itself shows."""
        return {
            "traces": self.traces,
            "layout": self.layout,
            "height_px": self.height_px,
            "least_px": self.least_px,
            "labels": self.labels,
            "narrow_labels": self.narrow_labels,
            "wide_only": self.wide_only,
            "ruler": self._ruler(),
        }

    def _ruler(self) -> PlotlyObject | None:
        scale = self.across
        return scale and {
            "low": scale.low,
            "high": scale.high,
            "at": list(scale.ticks),
            "texts": [inert(shortened(text, _TICK_ROOM)) for text in scale.ticks.values()],
            "title": inert(scale.title),
            "letters": self.letters or 0,
            "log": scale.log,
            "room": self.letters is not None,
        }


def keys(panel: Panel, traces: Callable[[int], Iterable[int]]) -> tuple[tuple[Entry, tuple[int, ...]], ...]:
    """`traces` are those of an entry, by its place in the legend."""
    entries = enumerate(legend(panel))
    return tuple((entry, () if entry.series is None else tuple(traces(place))) for place, entry in entries)


def inert(text: str) -> str:
    """For plotly, which reads a little HTML, and formulas between dollars, in all its texts: here nothing is markup."""
    return escape(text, quote=False).replace("$", "&#36;")


def lines(*parts: str) -> str:
    """Several lines in a text of plotly's."""
    return "<br>".join(inert(part) for part in parts if part)


def labels(names: Sequence[str], room: int) -> tuple[str, ...]:
    return tuple(inert(shortened(name, room)) for name in names)


def axis(scale: Scale) -> PlotlyObject:
    """For an axis that is the same in every window."""
    return {
        "type": "log" if scale.log else "linear",
        "range": [scale.place(scale.low), scale.place(scale.high)],
        "tickvals": list(scale.ticks),
        "ticktext": [inert(text) for text in scale.ticks.values()],
        "title": {"text": inert(scale.title), "standoff": 8, "font": {"size": 12}},
    }


def note(scales: tuple[Scale, Scale], at: tuple[float, float], text: str, side: str) -> PlotlyObject:
    """A text at a place, above it, held at that side."""
    return {
        "x": scales[0].place(at[0]),
        "y": scales[1].place(at[1]),
        "text": inert(text),
        "showarrow": False,
        "xanchor": side,
        "yanchor": "bottom",
        "font": {"size": 11},
    }


def point_note(scales: tuple[Scale, Scale], name: PointName) -> PlotlyObject:
    shift = {"xshift": name.shift[0], "yshift": name.shift[1]}
    return {**note(scales, (name.point.x, name.point.y.middle), name.label, name.pin.side), **shift}


def whiskers(below: Sequence[float], above: Sequence[float], **style: float | str) -> PlotlyObject:
    return {"type": "data", "symmetric": False, "array": list(above), "arrayminus": list(below), **style}


def scatter(
    x: Sequence[float], y: Sequence[float], mode: str, told: Sequence[str] | None, **style: Any
) -> PlotlyObject:
    """A trace of points; `told` is for who points at them."""
    hover = {"hoverinfo": "skip"} if told is None else {"hovertext": list(told), "hoverinfo": "text"}
    return {"type": "scatter", "mode": mode, "x": list(x), "y": list(y), **hover, **style}
