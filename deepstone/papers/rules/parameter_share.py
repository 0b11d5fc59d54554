"""How many parameters a network has, and which part of them its dense layers hold: counted from the layer graph."""

from __future__ import annotations

import math

from deepstone.graph.ops import Dense
from deepstone.models.zoo import ZOO
from deepstone.papers.answer import Answer
from deepstone.papers.evidence import Evidence
from deepstone.papers.rules.rule import Asked, Rule
from deepstone.papers.verdict import exactly, of_count, of_parts
from deepstone.units import percent


def _apply(asked: Asked, evidence: Evidence) -> Answer:
    graph = ZOO[asked.parameters["model"]].make()
    counts = {layer.name: sum(math.prod(shape) for shape in graph.parameters(layer).values()) for layer in graph.layers}
    everything = sum(counts.values())
    dense = sum(counts[layer.name] for layer in graph.layers if isinstance(layer.op, Dense))
    tolerance = asked.parameters["tolerance"]
    parts = [
        of_count(everything, asked.parameters["parameters"], tolerance=tolerance),
        of_count(dense / everything, asked.number, tolerance=tolerance),
    ]
    return Answer(
        word=of_parts(parts),
        why=f"{everything:,} parameters, {percent(dense / everything)} of them in dense layers; counted",
        measured=exactly(dense / everything),
        unit="share",
        setup=f"{graph.name}, from the layer graph",
    )


RULE = Rule(
    words="Parameters of the layer graph, and the share of the dense layers, to as many digits as the paper gives.",
    parameters=("model", "parameters", "tolerance"),
    scope="counted",
    apply=_apply,
)
