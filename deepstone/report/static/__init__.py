"""Figures as SVG and PNG, by matplotlib: no browser, no screen, and the same bytes for the same figure every time."""

from __future__ import annotations

import io
import logging
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

import matplotlib as mpl

from deepstone.report.figure import BarChart, Figure, HeatMap, LineChart, Panel, ScatterPlot
from deepstone.report.static.bars import bars_height_in, bars_width_in, draw_bars
from deepstone.report.static.heat import draw_heat, heat_height_in, heat_width_in
from deepstone.report.static.lines import draw_lines, lines_height_in, lines_width_in
from deepstone.report.static.scatter import draw_scatter, scatter_height_in, scatter_width_in
from deepstone.report.static.sheet import FAINT_INK, LETTER, Sheet

_MARGIN_IN: Final = 0.3
_BETWEEN_IN: Final = 0.15
_CAPTION_SIZE: Final = 7.5
_CAPTION_LINE_IN: Final = 0.15
_DOUBTS_AT_MOST: Final = 8
_DPI: Final = 144
_SETTINGS: Final[dict[str, Any]] = {
    "font.family": [
        "DejaVu Sans",
        "Verdana",
    ],  # the first comes with matplotlib; a viewer of SVG may have only the second
    "svg.fonttype": "none",  # text stays text: it can be searched, read aloud and edited
    "svg.hashsalt": "deepstone",
    "text.parse_math": False,  # a layer may be called $x$
    "text.usetex": False,
    "axes.unicode_minus": False,
}


@dataclass(frozen=True, slots=True)
class _Drawer:
    width_in: Callable[[Any], float]
    height_in: Callable[[Any, float], float]
    draw: Callable[[Sheet, Any, float, float, float], None]


_DRAWERS: Final[dict[type[Panel], _Drawer]] = {
    BarChart: _Drawer(bars_width_in, bars_height_in, draw_bars),
    LineChart: _Drawer(lines_width_in, lines_height_in, draw_lines),
    ScatterPlot: _Drawer(scatter_width_in, scatter_height_in, draw_scatter),
    HeatMap: _Drawer(heat_width_in, heat_height_in, draw_heat),
}


def draw_static(figure: Figure, kind: str) -> bytes:
    """The figure as a file's content; `kind` is svg or png."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells about its font cache otherwise
    with warnings.catch_warnings(), mpl.rc_context():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph")  # names may hold characters that its font lacks
        mpl.rcdefaults()
        mpl.rcParams.update(cast(Any, _SETTINGS))
        return _saved(_drawn(figure), kind)


def _saved(sheet: Sheet, kind: str) -> bytes:
    target = io.BytesIO()
    metadata = {"Date": None, "Creator": "deepstone"} if kind == "svg" else {"Software": "deepstone"}
    sheet.canvas.savefig(target, format=kind, dpi=_DPI, metadata=metadata)
    return target.getvalue()


def _drawn(figure: Figure) -> Sheet:
    """Everything in a column, each panel as high as it needs to be."""
    drawers = [(panel, _DRAWERS[type(panel)]) for panel in figure.panels]
    inner_in = max(drawer.width_in(panel) for panel, drawer in drawers)
    heights = [drawer.height_in(panel, inner_in) for panel, drawer in drawers]
    head = _head(figure, inner_in)
    caption = _caption(figure, inner_in)
    head_in = sum(line_in for _, line_in, _ in head) + 0.1
    total = head_in + sum(heights) + _BETWEEN_IN * len(heights) + len(caption) * _CAPTION_LINE_IN
    sheet = Sheet.new(inner_in + 2 * _MARGIN_IN, total + 2 * _MARGIN_IN)
    top = _MARGIN_IN
    for words, line_in, style in head:
        sheet.text(_MARGIN_IN, top, words, **style)
        top += line_in
    top = _MARGIN_IN + head_in
    for (panel, drawer), height in zip(drawers, heights, strict=True):
        drawer.draw(sheet, panel, top, _MARGIN_IN, inner_in)
        top += height + _BETWEEN_IN
    for line in caption:
        sheet.text(_MARGIN_IN, top, line, size=_CAPTION_SIZE, color=FAINT_INK)
        top += _CAPTION_LINE_IN
    return sheet


def _head(figure: Figure, width_in: float) -> list[tuple[str, float, dict[str, Any]]]:
    """Lines with their heights and styles."""
    title = [(line, 0.28, {"size": 14, "weight": "bold"}) for line in _wrapped(figure.heading, width_in, 15.5)]
    under = [(line, 0.2, {"size": 9.5, "color": FAINT_INK}) for line in _wrapped(figure.subtitle, width_in, 9.5)]
    return [*title, *under]


def _caption(figure: Figure, width_in: float) -> list[str]:
    words = [*figure.caption]
    words += [f"Doubt: {doubt}" for doubt in figure.doubts[:_DOUBTS_AT_MOST]]
    words += [f"… and {len(figure.doubts) - _DOUBTS_AT_MOST} more doubts"] * (len(figure.doubts) > _DOUBTS_AT_MOST)
    words += [f"Made by: {command}" for command in figure.commands]
    return [line for paragraph in words for line in _wrapped(paragraph, width_in, _CAPTION_SIZE)]


def _wrapped(text: str, width_in: float, size: float) -> list[str]:
    return textwrap.wrap(text, int(width_in / (size * LETTER)), break_on_hyphens=False)
