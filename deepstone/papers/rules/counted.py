"""Claims that are counted, not measured: layers, parameters and operations of the layer graph; claims not tested."""

from __future__ import annotations

import math
from collections import Counter
from typing import ClassVar

from deepstone.algorithms.catalog import ALGORITHMS, DIRECT
from deepstone.algorithms.problem import Pass, Problem
from deepstone.graph.ops import Dense
from deepstone.models.caffe.text import Message, Scalar, parse
from deepstone.models.caffe.write import prototxt
from deepstone.models.zoo import ZOO
from deepstone.papers.answer import Answer, not_testable
from deepstone.papers.evidence import Evidence
from deepstone.papers.rules.rule import Rule, RuleOnModel, Scope
from deepstone.papers.verdict import Published, exactly, of_count, of_parts, of_ratio
from deepstone.results.quantity import Quantity
from deepstone.units import digits, percent


class LayerCount(Rule, frozen=True, kw_only=True):
    """`layers`: network to the published number. `implied`: types that our prototxt has and Caffe does not need,
    because the next layer includes them."""

    words: ClassVar[str] = (
        "Layers of the exported prototxt plus one split for each array that several layers read, as Caffe counts."
    )
    scope: ClassVar[Scope] = "counted"
    layers: dict[str, int]
    implied: list[str]

    def answer(self, published: Published, evidence: Evidence) -> Answer:
        counts = {model: caffe_layers(model, self.implied) for model in self.layers}
        parts = [of_count(counts[model], self.layers[model]) for model in self.layers]
        first = next(iter(self.layers))
        listed = ", ".join(f"{model} {counts[model]} (published {self.layers[model]})" for model in self.layers)
        return Answer(
            word=of_parts(parts),
            why=f"{listed}; batch norm and scale apart, splits inserted; {parts[0].why}",
            measured=exactly(counts[first]),
            unit="layers",
            setup="the exported prototxt of each network",
        )


class OperationCounts(RuleOnModel, frozen=True, kw_only=True):
    words: ClassVar[str] = (
        "Operations of the definition over those of Winograd, by formula, each tile size judged by itself; and "
        "operations of both gradients over those of forward. The interval is the range over layers and tile sizes."
    )
    scope: ClassVar[Scope] = "counted"
    layers: list[str]
    formulas: list[str]
    paper_batch: int
    backward: float  # operations of both gradients over those of forward, as published
    tolerance: float

    def answer(self, published: Published, evidence: Evidence) -> Answer:
        graph = ZOO[self.model].make()
        problems = {name: Problem.of_layer(graph, graph.layer(name), self.paper_batch) for name in self.layers}
        saved = {
            formula: _range([_saved(problem, formula) for problem in problems.values()]) for formula in self.formulas
        }
        backward = _range([_backward(problem, formula) for problem in problems.values() for formula in self.formulas])
        parts = {formula: of_ratio(saved[formula], published.number, published.bound) for formula in self.formulas}
        twice = [of_count(end, self.backward, tolerance=self.tolerance) for end in (backward.low, backward.high)]
        listed = ", ".join(
            f"{_span(saved[formula])} with {formula} ({parts[formula].word})" for formula in self.formulas
        )
        return Answer(
            word=of_parts([*parts.values(), *twice]),
            why=(
                f"over {', '.join(problems)}, the definition has more operations than Winograd, transforms included, "
                f"by a factor of {listed}; {parts[self.formulas[0]].why}; backward has {_span(backward)} times those "
                "of "
                "forward"
            ),
            measured=_range([end for each in saved.values() for end in (each.low, each.median, each.high)]),
            setup=f"{self.model}, batch {self.paper_batch}, counted by formula",
        )


class ParameterShare(RuleOnModel, frozen=True, kw_only=True):
    words: ClassVar[str] = (
        "Parameters of the layer graph, and the share of the dense layers, to as many digits as the paper gives."
    )
    scope: ClassVar[Scope] = "counted"
    parameters: float
    tolerance: float

    def answer(self, published: Published, evidence: Evidence) -> Answer:
        graph = ZOO[self.model].make()
        counts = {
            layer.name: sum(math.prod(shape) for shape in graph.parameters(layer).values()) for layer in graph.layers
        }
        everything = sum(counts.values())
        dense = sum(counts[layer.name] for layer in graph.layers if isinstance(layer.op, Dense))
        parts = [
            of_count(everything, self.parameters, tolerance=self.tolerance),
            of_count(dense / everything, published.number, tolerance=self.tolerance),
        ]
        return Answer(
            word=of_parts(parts),
            why=f"{everything:,} parameters, {percent(dense / everything)} of them in dense layers; counted",
            measured=exactly(dense / everything),
            unit="share",
            setup=f"{graph.name}, from the layer graph",
        )


class NotTestable(Rule, frozen=True, kw_only=True):
    words: ClassVar[str] = "Not tested, for the reason given."
    scope: ClassVar[Scope] = "counted"
    reason: str

    def answer(self, published: Published, evidence: Evidence) -> Answer:
        return not_testable(self.reason)


def caffe_layers(model: str, implied: list[str]) -> int:
    """Count layers as Caffe does, with the splits that it inserts."""
    net = parse(prototxt(ZOO[model].make(), batch=1).encode(), f"{model}.prototxt")
    layers = [layer for layer in net.fields["layer"] if isinstance(layer, Message)]
    return sum(_texts(layer, "type")[0] not in implied for layer in layers) + _splits(layers)


def _splits(layers: list[Message]) -> int:
    """Count one split for each array that several layers read. An in-place layer makes a new array of the same name."""
    version: Counter[str] = Counter()
    readers: Counter[tuple[str, int]] = Counter()
    for layer in layers:
        for blob in _texts(layer, "bottom"):
            readers[blob, version[blob]] += 1
        for blob in _texts(layer, "top"):
            version[blob] += 1
    return sum(count > 1 for count in readers.values())


def _texts(layer: Message, field: str) -> list[str]:
    return [value.text for value in layer.fields.get(field, []) if isinstance(value, Scalar)]


def _saved(problem: Problem, formula: str) -> float:
    return _flops(problem, DIRECT, "forward") / _flops(problem, formula, "forward")


def _backward(problem: Problem, formula: str) -> float:
    return (_flops(problem, formula, "data") + _flops(problem, formula, "weight")) / _flops(problem, formula, "forward")


def _flops(problem: Problem, formula: str, direction: Pass) -> int:
    return ALGORITHMS[formula].operations(problem, direction).flops


def _span(value: Quantity) -> str:
    """Format both ends, as one number if they look the same."""
    return " – ".join(dict.fromkeys([digits(value.low), digits(value.high)]))


def _range(values: list[float]) -> Quantity:
    """Return the median of the values with their range as interval. A single value is exact."""
    if len(values) == 1:
        return exactly(values[0])
    ordered = sorted(values)
    return Quantity.of(median=ordered[len(ordered) // 2], low=ordered[0], high=ordered[-1], n=len(ordered))
