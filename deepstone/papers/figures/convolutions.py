"""Times, memory and operations of the kinds of convolution algorithm, by batch or by layer; and counts of layers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from deepstone.algorithms.catalog import ALGORITHMS
from deepstone.algorithms.problem import Pass, Problem
from deepstone.graph.cost import layer_cost
from deepstone.graph.memory import step_memory
from deepstone.measure.statistics import sum_of_bounds
from deepstone.models.zoo import ZOO
from deepstone.papers.conv_lab import FAMILIES, Lab, candidates, comparable, fastest, uniform
from deepstone.papers.evidence import Evidence
from deepstone.papers.figures.chart import ChartDraft, OneNetwork, named, time_scale
from deepstone.results.chart import ChartAxis

_NOT_TIMED = "cannot do it, or not in fp32"


def _by_family(evidence: Evidence, model: str) -> Iterator[tuple[str, str, Lab]]:
    """Yield each kind of algorithm in each lab, with the name of its series."""
    labs = comparable(evidence.labs, model)
    several = len({lab.place.key for lab in labs}) > 1
    for family in FAMILIES:
        for lab in labs:
            yield named(family, lab.place.name, several), family, lab


def _draft_by_batch(y: ChartAxis) -> ChartDraft:
    return ChartDraft(form="lines", x=ChartAxis(label="batch", scale="log"), y=y)


class AlgorithmsByBatch(OneNetwork, frozen=True, kw_only=True):
    """Figure 8 a to c of kim2017: the time of some passes of all layers, one line for each kind."""

    passes: list[Pass]
    layers: tuple[str, ...] = ()  # empty: all

    def chart(self, evidence: Evidence) -> ChartDraft:
        chart = _draft_by_batch(ChartAxis(label="time per batch", scale="log", unit="s"))
        for series, family, lab in _by_family(evidence, self.model):
            cases = [case for case in lab.cases() if case[1] in self.passes]
            found = uniform(lab, family, [case for case in cases if not self.layers or case[0] in self.layers])
            if found is None:
                chart.gap(series, lab.batch, _NOT_TIMED)
            else:
                chart.point(series, lab.batch, found.time_s, runs=[lab.id], doubts=lab.doubts)
        return chart


class MemoryByBatch(OneNetwork, frozen=True, kw_only=True):
    """Figure 8 d: a step's memory by the layer graph, and the largest workspace of each kind."""

    def chart(self, evidence: Evidence) -> ChartDraft:
        chart = _draft_by_batch(ChartAxis(label="memory", scale="linear", unit="bytes"))
        for series, family, lab in _by_family(evidence, self.model):
            chosen = [fastest(candidates(lab, case), family) for case in lab.cases()]
            sizes = [each.workspace_bytes for each in chosen if each is not None and each.workspace_bytes is not None]
            if not sizes or lab.graph is None:
                chart.gap(series, lab.batch, "its workspace is not known")
                continue
            step_bytes = step_memory(lab.graph, batch=lab.batch, phase="train").total_bytes
            chart.point(series, lab.batch, float(step_bytes + max(sizes)), runs=[lab.id])
        return chart


class AlgorithmsByLayer(OneNetwork, frozen=True, kw_only=True):
    """Figure 9 a and b: each layer at the largest batch that was measured in a place."""

    passes: list[Pass]

    def chart(self, evidence: Evidence) -> ChartDraft:
        largest: dict[object, Lab] = {}
        for lab in comparable(evidence.labs, self.model):
            largest[lab.place.key] = lab
        time = ChartAxis(label="time", scale=time_scale(len(largest)), unit="s")
        chart = ChartDraft(form="bars", x=ChartAxis(label="layer", scale="category"), y=time)
        chart.subtitle = "; ".join(f"{lab.place.name}: batch {lab.batch}" for lab in largest.values())
        for family in FAMILIES:
            for lab in largest.values():
                series = named(family, lab.place.name, len(largest) > 1)
                for layer in lab.layers:
                    cases: list[tuple[str, Pass]] = [(layer, each) for each in self.passes if lab.needed(layer, each)]
                    chosen = [fastest(candidates(lab, case), family) for case in cases]
                    if any(timing is None for timing in chosen):
                        chart.gap(series, layer, _NOT_TIMED)
                    else:
                        times = [timing.time_s for timing in chosen if timing is not None]
                        chart.point(series, layer, sum_of_bounds(times), runs=[lab.id], doubts=lab.doubts)
        return chart


class OperationsByLayer(OneNetwork, frozen=True, kw_only=True):
    """Figure 9 c: operations of a forward pass by formula."""

    batch: int
    layers: list[str]
    formulas: dict[str, str]  # to the name of the series

    def chart(self, evidence: Evidence) -> ChartDraft:
        chart = ChartDraft(
            form="bars",
            x=ChartAxis(label="layer", scale="category"),
            y=ChartAxis(label="operations", scale="linear", unit="flop"),
        )
        graph, batch = ZOO[self.model].make(), self.batch
        chart.subtitle = f"forward, batch {batch}, by formula"
        for formula, series in self.formulas.items():
            for layer in self.layers:
                problem = Problem.of_layer(graph, graph.layer(layer), batch)
                refusal = ALGORITHMS[formula].refusal(problem)
                if refusal:
                    chart.gap(series, layer, refusal)
                else:
                    chart.point(series, layer, float(ALGORITHMS[formula].operations(problem, "forward").flops))
        return chart


class LayerCounts(OneNetwork, frozen=True, kw_only=True):
    """Counted from the layer graph; flops are those of a forward pass for a whole batch."""

    what: Literal["parameters", "flops"]
    batch: int = 1
    layers: list[str]

    def chart(self, evidence: Evidence) -> ChartDraft:
        graph = ZOO[self.model].make()
        flops = self.what == "flops"
        label, unit = ("operations, forward", "flop") if flops else ("parameters", "count")
        chart = ChartDraft(
            form="bars", x=ChartAxis(label="layer", scale="category"), y=ChartAxis(label=label, scale="log", unit=unit)
        )
        batch = self.batch
        chart.subtitle = f"{graph.name}, batch {batch}" if flops else graph.name
        for name in self.layers:
            layer = graph.layer(name)
            if flops:
                value = layer_cost(graph, layer).forward_flops * batch
            else:
                value = sum(math.prod(shape) for shape in graph.parameters(layer).values())
            chart.point("counted from the layer graph", name, float(value))
        return chart
