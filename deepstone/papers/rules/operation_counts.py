"""How many operations Winograd saves, and how backward compares with forward: counted by formula."""

from __future__ import annotations

from deepstone.algorithms.catalog import ALGORITHMS, DIRECT
from deepstone.algorithms.problem import Pass, Problem
from deepstone.measure.statistics import Quantity
from deepstone.models.zoo import ZOO
from deepstone.papers.answer import Answer
from deepstone.papers.arithmetic import in_words
from deepstone.papers.evidence import Evidence
from deepstone.papers.rules.rule import Asked, Rule
from deepstone.papers.verdict import Judgement, of_count, of_parts, of_ratio
from deepstone.units import digits


def _apply(asked: Asked, evidence: Evidence) -> Answer:
    parameters = asked.parameters
    graph = ZOO[parameters["model"]].make()
    problems = {
        name: Problem.of_layer(graph, graph.layer(name), parameters["paper_batch"]) for name in parameters["layers"]
    }
    saved = _range([_saved(problem, formula) for problem in problems.values() for formula in parameters["formulas"]])
    backward = _range(
        [_backward(problem, formula) for problem in problems.values() for formula in parameters["formulas"]]
    )
    parts: list[Judgement] = [
        of_ratio(saved, asked.number),
        of_count(backward.median, parameters["backward"], tolerance=parameters["tolerance"]),
    ]
    named = " and ".join(parameters["formulas"])
    return Answer(
        word=of_parts(parts),
        why=(
            f"the definition has {in_words(saved)} times the operations of Winograd, transforms included (the range "
            f"over {', '.join(problems)} and {named}: which of them a library uses is not published); backward has "
            f"{digits(backward.median)} times those of forward; {parts[0].why}"
        ),
        measured=saved,
        setup=f"{parameters['model']}, batch {parameters['paper_batch']}, counted by formula",
    )


def _saved(problem: Problem, formula: str) -> float:
    return _flops(problem, DIRECT, "forward") / _flops(problem, formula, "forward")


def _backward(problem: Problem, formula: str) -> float:
    return (_flops(problem, formula, "data") + _flops(problem, formula, "weight")) / _flops(problem, formula, "forward")


def _flops(problem: Problem, formula: str, direction: Pass) -> int:
    return ALGORITHMS[formula].operations(problem, direction).flops


def _range(values: list[float]) -> Quantity:
    """All of them, the middle one and both ends."""
    ordered = sorted(values)
    return Quantity(median=ordered[len(ordered) // 2], low=ordered[0], high=ordered[-1], n=len(ordered))


RULE = Rule(
    words=(
        "Operations of the definition over those of Winograd, by formula, and operations of both gradients over those "
        "of forward. The interval is the range over layers and tile sizes."
    ),
    parameters=("model", "layers", "formulas", "paper_batch", "backward", "tolerance"),
    scope="counted",
    apply=_apply,
)
