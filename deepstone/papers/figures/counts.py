"""What a table of a paper counts about layers: parameters and operations, from the layer graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from deepstone.graph.cost import layer_cost
from deepstone.models.zoo import ZOO
from deepstone.papers.evidence import Evidence
from deepstone.papers.figures.chart import Axis, Chart


def layer_counts(parameters: Mapping[str, Any], evidence: Evidence) -> Chart:
    """`what` is parameters or flops; flops of a forward pass for a whole batch."""
    graph = ZOO[parameters["model"]].make()
    flops = parameters["what"] == "flops"
    label, unit = ("operations, forward", "flop") if flops else ("parameters", "count")
    chart = Chart(form="bars", x=Axis(label="layer", scale="category"), y=Axis(label=label, scale="log", unit=unit))
    batch = parameters.get("batch", 1)
    chart.subtitle = f"{graph.name}, batch {batch}" if flops else graph.name
    for name in parameters["layers"]:
        layer = graph.layer(name)
        if flops:
            value = layer_cost(graph, layer).forward_flops * batch
        else:
            value = sum(math.prod(shape) for shape in graph.parameters(layer).values())
        chart.point("counted from the layer graph", name, float(value))
    return chart
