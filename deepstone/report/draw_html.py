"""Figures as one HTML file that needs nothing else: plotly's script is inside, and the browser may ask for nothing.

Whatever a result holds is text here. Jinja escapes it in the page, `inert` in plotly's texts, and a content security
policy lets only the two scripts run whose hashes it names.
"""

from __future__ import annotations

import base64
import hashlib
import json
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from plotly import offline

import deepstone
from deepstone.report.catalog import Drawable
from deepstone.report.figure import Bars, Figure, HeatMap, Panel
from deepstone.report.html.bars import bars_plot
from deepstone.report.html.heat import heat_plot
from deepstone.report.html.plane import plane_plot
from deepstone.report.html.plot import Plot

_PAGE: Final = resources.files("deepstone.report").joinpath("html", "page")


def draw_html(drawable: Drawable) -> bytes:
    """The page as a file's content."""
    plotly = offline.get_plotlyjs()
    script = _part("page.js")
    first = drawable.figures[0]  # all are of one result, so they share model, doubts and commands
    plots: list[Plot] = []
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    text = environment.from_string(_part("page.html")).render(
        model=first.model,
        doubts=first.doubts,
        commands=first.commands,
        version=deepstone.__version__,
        policy=_policy(plotly, script),
        figures=[_described(figure, plots) for figure in drawable.figures],
        missing=drawable.missing,
        style=Markup(_part("page.css")),
        plots=Markup(_json([plot.for_script() for plot in plots])),
        plotly=Markup(plotly),
        script=Markup(script),
    )
    return text.encode("utf-8")


def _part(name: str) -> str:
    return _PAGE.joinpath(name).read_text(encoding="utf-8")


def _policy(*scripts: str) -> str:
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    # Styles may stand inline since plotly sets them all over; without scripts and requests they can do no harm.
    rest = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {hashes}; {rest}"


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _described(figure: Figure, plots: list[Plot]) -> dict[str, Any]:
    """For the page; each panel's plot goes to the end of the list that the script reads."""
    panels: list[dict[str, Any]] = []
    for panel in figure.panels:
        panels.append({"number": len(plots), "plot": _plot(panel)})
        plots.append(panels[-1]["plot"])
    return {
        "name": figure.name,
        "title": figure.title,
        "subtitle": figure.subtitle,
        "panels": panels,
        "caption": figure.caption,
        "table": figure.table,
    }


def _plot(panel: Panel) -> Plot:
    if isinstance(panel, Bars):
        return bars_plot(panel)
    return heat_plot(panel) if isinstance(panel, HeatMap) else plane_plot(panel)


def _json(data: object) -> str:
    """As it can stand in a script element: nothing in it can end the element."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
