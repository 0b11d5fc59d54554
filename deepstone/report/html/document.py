"""One HTML file that needs nothing else: plotly's script is inside, and the browser may ask for nothing.

Whatever a result holds is text here. Jinja escapes it in the page, `inert` in plotly's texts, and a content security
policy lets only the two scripts run whose hashes it names.
"""

from __future__ import annotations

import base64
import hashlib
import json
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from plotly import offline

import deepstone
from deepstone.report.figure import Bars, Curves, Figure, HeatMap, Panel
from deepstone.report.html.bars import bars_plot
from deepstone.report.html.curves import curves_plot
from deepstone.report.html.heat import heat_plot
from deepstone.report.html.plane import plane_plot
from deepstone.report.html.plot import Plot

_PAGE: Final = resources.files("deepstone.report").joinpath("html", "page")


class Document:
    """Figures are added, each under a name of its own in the page; then the whole is rendered once."""

    def __init__(self) -> None:
        self._plots: list[Plot] = []
        self._names: set[str] = set()

    def figure(self, figure: Figure, *, within: str = "") -> dict[str, Any]:
        """For the page; each panel's plot goes to the end of the list that the script reads."""
        panels: list[dict[str, Any]] = []
        for panel in figure.panels:
            panels.append({"number": len(self._plots), "plot": _plot(panel)})
            self._plots.append(panels[-1]["plot"])
        return {
            "anchor": self._anchor(f"{within}-{figure.name}" if within else figure.name),
            "title": figure.title,
            "subtitle": figure.subtitle,
            "panels": panels,
            "caption": figure.caption,
            "table": figure.table,
            "commands": figure.commands,
            "doubts": figure.doubts,
        }

    def render(self, template: str, **data: Any) -> bytes:
        """The file's content."""
        plotly = offline.get_plotlyjs()
        script = _part("page.js")
        environment = Environment(
            loader=FunctionLoader(_part),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        text = environment.get_template(template).render(
            **data,
            version=deepstone.__version__,
            policy=_policy(plotly, script),
            style=Markup(_part("page.css")),
            plots=in_script([plot.for_script() for plot in self._plots]),
            plotly=Markup(plotly),
            script=Markup(script),
        )
        return text.encode("utf-8")

    def _anchor(self, name: str) -> str:
        """A name made of letters, digits and dashes that no other figure has."""
        plain = (
            "-".join("".join(sign if sign.isascii() and sign.isalnum() else " " for sign in name).split()) or "figure"
        )
        number = 1
        while (chosen := plain if number == 1 else f"{plain}-{number}") in self._names:
            number += 1
        self._names.add(chosen)
        return chosen


def in_script(data: object) -> Markup:
    """JSON as it can stand in a script element: nothing in it can end the element."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _part(name: str) -> str:
    return _PAGE.joinpath(name).read_text(encoding="utf-8")


def _policy(*scripts: str) -> str:
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    # Styles may stand inline since plotly sets them all over; without scripts and requests they can do no harm.
    rest = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {hashes}; {rest}"


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _plot(panel: Panel) -> Plot:
    if isinstance(panel, Bars):
        return bars_plot(panel)
    if isinstance(panel, Curves):
        return curves_plot(panel)
    return heat_plot(panel) if isinstance(panel, HeatMap) else plane_plot(panel)
