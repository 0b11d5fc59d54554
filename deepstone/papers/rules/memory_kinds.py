"""Whether a machine has two kinds of memory at all; without them a claim about the faster one cannot be tested."""

from __future__ import annotations

from deepstone.papers.answer import Answer, not_testable
from deepstone.papers.evidence import Evidence
from deepstone.papers.rules.rule import Asked, Rule


def _apply(asked: Asked, evidence: Evidence) -> Answer:
    nodes = next((place.numa_nodes for place in evidence.places if place.numa_nodes is not None), None)
    if nodes is None or nodes < 2:
        seen = "it is not known how many kinds of memory there are" if nodes is None else "one memory node, of one kind"
        return not_testable(f"{seen}; the claim needs fast and plain memory side by side")
    return not_testable(f"{nodes} memory nodes, but no axis chooses between them yet")


RULE = Rule(
    words="Needs a machine with fast and plain memory, each a memory node of its own, and an axis that chooses.",
    parameters=(),
    scope="place",
    apply=_apply,
)
