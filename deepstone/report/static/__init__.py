"""Figures as SVG and PNG, by matplotlib: no browser, no screen, and the same bytes for the same figure every time."""

from __future__ import annotations

import io
import logging
import textwrap
import warnings
from typing import Any, Final, cast

import matplotlib as mpl

from deepstone.report.figure import Figure
from deepstone.report.panels import BarChart, HeatMap, LaneChart, LineChart, Panel, ParallelPlot, ScatterPlot
from deepstone.report.static.bars import bars_height_in, draw_bars
from deepstone.report.static.heat import draw_heat, heat_height_in, heat_width_in
from deepstone.report.static.lanes import draw_lanes, lanes_height_in
from deepstone.report.static.parallel import PARALLEL_HEIGHT_IN, draw_parallel
from deepstone.report.static.points import LINES_HEIGHT_IN, SCATTER_HEIGHT_IN, draw_lines, draw_scatter
from deepstone.report.static.sheet import FAINT_INK, LETTER, Sheet, draw_head, head_in

_WIDTH_IN: Final = 10.0
_MARGIN_IN: Final = 0.3
_BETWEEN_IN: Final = 0.15
_TITLE_LINE_IN: Final = 0.28
_SUBTITLE_SIZE: Final = 9.5
_SUBTITLE_LINE_IN: Final = 0.2
_CAPTION_SIZE: Final = 7.5
_CAPTION_LINE_IN: Final = 0.15
_DOUBTS_AT_MOST: Final = 8
_DPI: Final = 144
_SETTINGS: Final[dict[str, Any]] = {
    # The first comes with matplotlib; a viewer of SVG may have only the second.
    "font.family": ["DejaVu Sans", "Verdana"],
    "svg.fonttype": "none",  # text stays text: it can be searched, read aloud and edited
    "svg.hashsalt": "deepstone",
    "text.parse_math": False,  # a layer may be called $x$
    "text.usetex": False,
    "axes.unicode_minus": False,
}


def draw_static(figure: Figure, kind: str) -> bytes:
    """Return the figure as the content of a file; `kind` is svg or png."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it logs messages about its font cache otherwise
    with warnings.catch_warnings(), mpl.rc_context():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph")  # names may contain characters that its font lacks
        mpl.rcdefaults()
        mpl.rcParams.update(cast(Any, _SETTINGS))
        return _saved(_draw(figure), kind)


def _saved(sheet: Sheet, kind: str) -> bytes:
    target = io.BytesIO()
    metadata = {"Date": None, "Creator": "deepstone"} if kind == "svg" else {"Software": "deepstone"}
    sheet.canvas.savefig(target, format=kind, dpi=_DPI, metadata=metadata)
    return target.getvalue()


def _draw(figure: Figure) -> Sheet:
    """Draw all panels in a column, each with the height that it needs."""
    inner_in = max(_width_in(panel) for panel in figure.panels)
    heads = [head_in(panel, inner_in) for panel in figure.panels]
    bodies = [_body_in(panel) for panel in figure.panels]
    title = _wrapped(figure.heading, inner_in, 15.5)
    subtitle = _wrapped(figure.subtitle, inner_in, _SUBTITLE_SIZE)
    caption = _caption(figure, inner_in)
    top_in = len(title) * _TITLE_LINE_IN + len(subtitle) * _SUBTITLE_LINE_IN + 0.1
    panels_in = sum(heads) + sum(bodies) + _BETWEEN_IN * len(bodies)
    total = top_in + panels_in + len(caption) * _CAPTION_LINE_IN
    sheet = Sheet.new(inner_in + 2 * _MARGIN_IN, total + 2 * _MARGIN_IN)
    top = _MARGIN_IN
    for line in title:
        sheet.text(_MARGIN_IN, top, line, size=14, bold=True)
        top += _TITLE_LINE_IN
    for line in subtitle:
        sheet.text(_MARGIN_IN, top, line, size=_SUBTITLE_SIZE, color=FAINT_INK)
        top += _SUBTITLE_LINE_IN
    top = _MARGIN_IN + top_in
    for panel, above_in, body_in in zip(figure.panels, heads, bodies, strict=True):
        draw_head(sheet, panel, _MARGIN_IN, top, inner_in)
        _draw_body(sheet, panel, top + above_in, _MARGIN_IN, inner_in)
        top += above_in + body_in + _BETWEEN_IN
    for line in caption:
        sheet.text(_MARGIN_IN, top, line, size=_CAPTION_SIZE, color=FAINT_INK)
        top += _CAPTION_LINE_IN
    return sheet


def _width_in(panel: Panel) -> float:
    return max(_WIDTH_IN, heat_width_in(panel)) if isinstance(panel, HeatMap) else _WIDTH_IN


def _body_in(panel: Panel) -> float:
    """Return the height of everything below the legend."""
    match panel:
        case BarChart():
            return bars_height_in(panel)
        case HeatMap():
            return heat_height_in(panel)
        case LaneChart():
            return lanes_height_in(panel)
        case LineChart():
            return LINES_HEIGHT_IN
        case ScatterPlot():
            return SCATTER_HEIGHT_IN
        case ParallelPlot():
            return PARALLEL_HEIGHT_IN


def _draw_body(sheet: Sheet, panel: Panel, top_in: float, left_in: float, width_in: float) -> None:
    match panel:
        case BarChart():
            draw_bars(sheet, panel, top_in, left_in, width_in)
        case HeatMap():
            draw_heat(sheet, panel, top_in, left_in)
        case LaneChart():
            draw_lanes(sheet, panel, top_in, left_in, width_in)
        case LineChart():
            draw_lines(sheet, panel, top_in, left_in, width_in)
        case ScatterPlot():
            draw_scatter(sheet, panel, top_in, left_in, width_in)
        case ParallelPlot():
            draw_parallel(sheet, panel, top_in, left_in, width_in)


def _caption(figure: Figure, width_in: float) -> list[str]:
    words = [*figure.caption]
    words += [f"Doubt: {doubt}" for doubt in figure.doubts[:_DOUBTS_AT_MOST]]
    words += [f"… and {len(figure.doubts) - _DOUBTS_AT_MOST} more doubts"] * (len(figure.doubts) > _DOUBTS_AT_MOST)
    words += [f"Made by: {command}" for command in figure.commands]
    return [line for paragraph in words for line in _wrapped(paragraph, width_in, _CAPTION_SIZE)]


def _wrapped(text: str, width_in: float, size: float) -> list[str]:
    return textwrap.wrap(text, int(width_in / (size * LETTER)), break_on_hyphens=False)
