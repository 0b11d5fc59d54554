"""One small operation in every framework, each timed by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepstone.papers.evidence import Evidence
from deepstone.papers.figures.chart import Axis, Chart, named
from deepstone.papers.layer_table import LayerTable


def operations_by_framework(parameters: Mapping[str, Any], evidence: Evidence) -> Chart:
    chart = Chart(form="bars", x=Axis(label="operation", scale="category"), y=Axis(label="time", scale="log", unit="s"))
    found: dict[tuple[object, str], LayerTable] = {}
    for model in parameters["models"]:
        for table in evidence.tables:
            if table.model == model:
                found.setdefault((table.place.key, table.framework), table)
    several = len({place for place, _ in found}) > 1
    for table in found.values():
        series = f"{named(table.framework, table.place.name, several)}, {table.model}, batch {table.batch}"
        for label, layer in parameters["operations"].items():
            row = table.row(layer) if layer else None
            if row is None or row.alone_forward_s is None:
                chart.gap(series, label, parameters.get("missing", "not timed by itself"))
            elif row.beside:
                chart.gap(series, label, f"its time holds {row.beside}")
            else:
                chart.point(series, label, row.alone_forward_s, runs=[table.id])
    return chart
