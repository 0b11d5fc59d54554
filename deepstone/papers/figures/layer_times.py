"""Times of layers side by side, one series for each framework on each machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepstone.papers.evidence import Evidence
from deepstone.papers.figures.chart import Axis, Chart, named, time_scale
from deepstone.papers.layer_table import LayerTable

_SUFFIX = {"forward": "f", "backward": "b"}


def layer_times(parameters: Mapping[str, Any], evidence: Evidence) -> Chart:
    """Of the first model that was measured; frameworks at different batches are told apart by it."""
    tables = _tables(parameters, evidence)
    places = len({table.place.key for table in tables})
    several = places > 1
    batches = sorted({table.batch for table in tables})
    axis = Axis(label="time", scale=time_scale(places), unit="s")
    chart = Chart(form="bars", x=Axis(label="layer", scale="category"), y=axis)
    for table in tables:
        chart.subtitle = f"{table.model}, batch {' and '.join(map(str, batches))}"
        name = named(table.framework + _options(table), table.place.name, several)
        series = f"{name}, batch {table.batch}" if len(batches) > 1 else name
        for layer in parameters.get("layers") or [row.name for row in table.rows if row.op in parameters["ops"]]:
            row = table.row(layer)
            for part in parameters["parts"]:
                time = None if row is None else row.time_s(part)
                label = f"{layer}{_SUFFIX[part]}" if len(parameters["parts"]) > 1 else layer
                if time is None:
                    chart.gap(series, label, "the layer does nothing in that pass, or was not timed")
                else:
                    chart.point(series, label, time, runs=[table.id])
    return chart


def _tables(parameters: Mapping[str, Any], evidence: Evidence) -> list[LayerTable]:
    """The newest of each framework, setup, batch and place."""
    for model in parameters["models"]:
        found: dict[object, LayerTable] = {}
        for table in evidence.tables:
            if table.model == model:
                found.setdefault((table.framework, _options(table), table.batch, table.place.key), table)
        if found:
            return sorted(found.values(), key=lambda table: (table.place.kind, table.framework))
    return []


def _options(table: LayerTable) -> str:
    """What was asked for beside the defaults, as the paper puts it behind the framework's name."""
    given = [
        f"{axis}={value}"
        for axis, value in table.asked.items()
        if axis in ("layout", "algorithm", "compile", "engine", "precision") and value != "auto"
    ]
    return f" ({' '.join(given)})" if given else ""
