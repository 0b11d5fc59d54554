"""Times, memory and operations of the four kinds of convolution algorithm, by batch or by layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepstone.algorithms.catalog import ALGORITHMS
from deepstone.algorithms.problem import Pass, Problem
from deepstone.graph.memory import step_memory
from deepstone.models.zoo import ZOO
from deepstone.papers.arithmetic import total
from deepstone.papers.evidence import Evidence
from deepstone.papers.families import FAMILIES, alike, fastest, uniform
from deepstone.papers.figures.chart import Axis, Chart, named, time_scale
from deepstone.papers.lab import Lab

_NOT_TIMED = "cannot do it, or not in fp32"


def algorithms_by_batch(parameters: Mapping[str, Any], evidence: Evidence) -> Chart:
    """Figure 8 a to c of kim2017: the time of some passes of all layers, one line for each kind."""
    chart = Chart(
        form="lines", x=Axis(label="batch", scale="log"), y=Axis(label="time per batch", scale="log", unit="s")
    )
    labs = _labs(parameters, evidence)
    several = len({lab.place.key for lab in labs}) > 1
    for family in FAMILIES:
        for lab in labs:
            series = named(family, lab.place.name, several)
            cases = [case for case in lab.cases() if case[1] in parameters["passes"] and _wanted(case[0], parameters)]
            found = uniform(lab, family, cases)
            if found is None:
                chart.gap(series, lab.batch, _NOT_TIMED)
            else:
                chart.point(series, lab.batch, found.time_s, runs=[lab.id], doubts=lab.doubts)
    return chart


def memory_by_batch(parameters: Mapping[str, Any], evidence: Evidence) -> Chart:
    """Figure 8 d: a step's memory by the layer graph, and the largest workspace of each kind."""
    chart = Chart(
        form="lines", x=Axis(label="batch", scale="log"), y=Axis(label="memory", scale="linear", unit="bytes")
    )
    labs = _labs(parameters, evidence)
    several = len({lab.place.key for lab in labs}) > 1
    for family in FAMILIES:
        for lab in labs:
            series = named(family, lab.place.name, several)
            chosen = [fastest(alike(lab.of(*case)), family) for case in lab.cases()]
            sizes = [each.workspace_bytes for each in chosen if each is not None and each.workspace_bytes is not None]
            if not sizes or lab.graph is None:
                chart.gap(series, lab.batch, "its workspace is not known")
                continue
            step_bytes = step_memory(lab.graph, batch=lab.batch, phase="train").total_bytes
            chart.point(series, lab.batch, float(step_bytes + max(sizes)), runs=[lab.id])
    return chart


def algorithms_by_layer(parameters: Mapping[str, Any], evidence: Evidence) -> Chart:
    """Figure 9 a and b: each layer at the largest batch that was measured in a place."""
    largest: dict[object, Lab] = {}
    for lab in _labs(parameters, evidence):
        largest[lab.place.key] = lab
    time = Axis(label="time", scale=time_scale(len(largest)), unit="s")
    chart = Chart(form="bars", x=Axis(label="layer", scale="category"), y=time)
    chart.subtitle = "; ".join(f"{lab.place.name}: batch {lab.batch}" for lab in largest.values())
    for family in FAMILIES:
        for lab in largest.values():
            series = named(family, lab.place.name, len(largest) > 1)
            for layer in lab.layers:
                cases: list[tuple[str, Pass]] = [
                    (layer, each) for each in parameters["passes"] if lab.needed(layer, each)
                ]
                chosen = [fastest(alike(lab.of(*case)), family) for case in cases]
                if any(timing is None for timing in chosen):
                    chart.gap(series, layer, _NOT_TIMED)
                else:
                    times = [timing.time_s for timing in chosen if timing is not None]
                    chart.point(series, layer, total(times), runs=[lab.id], doubts=lab.doubts)
    return chart


def operations_by_layer(parameters: Mapping[str, Any], evidence: Evidence) -> Chart:
    """Figure 9 c: operations of a forward pass by formula."""
    chart = Chart(
        form="bars", x=Axis(label="layer", scale="category"), y=Axis(label="operations", scale="linear", unit="flop")
    )
    graph, batch = ZOO[parameters["model"]].make(), parameters["batch"]
    chart.subtitle = f"forward, batch {batch}, by formula"
    for formula, series in parameters["formulas"].items():
        for layer in parameters["layers"]:
            problem = Problem.of_layer(graph, graph.layer(layer), batch)
            refusal = ALGORITHMS[formula].refusal(problem)
            if refusal:
                chart.gap(series, layer, refusal)
            else:
                chart.point(series, layer, float(ALGORITHMS[formula].operations(problem, "forward").flops))
    return chart


def _labs(parameters: Mapping[str, Any], evidence: Evidence) -> list[Lab]:
    """The newest of each batch and place, small batches first."""
    newest: dict[object, Lab] = {}
    for lab in evidence.labs:
        if lab.model == parameters["model"] and lab.timings:
            newest.setdefault((lab.place.key, lab.batch), lab)
    return sorted(newest.values(), key=lambda lab: lab.batch)


def _wanted(layer: str, parameters: Mapping[str, Any]) -> bool:
    return layer in parameters.get("layers", (layer,))
