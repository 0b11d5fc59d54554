"""Checks that the timed programs train, and that all sides do the same training."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TypeAlias

from deepstone.measure.training import disagreement, fault, same_training, untouched_array
from deepstone.runner.job import Job
from deepstone.runner.measurement import Launched

Timed: TypeAlias = tuple[str, Job, Sequence[Launched]]  # name, job and launches of a side


def not_the_same_training(sides: Sequence[Timed]) -> str:
    """Return why the speeds are not comparable, from what the timed processes did; empty if they are."""
    for name, _, launches in sides:
        for launched in launches:
            if launched.evidence is not None and (reason := fault(launched.evidence)):
                return f"{name} is not shown to train: {reason}"
    return next((reason for a, b in combinations(sides, 2) if (reason := _differ(a, b))), "")


def _differ(a: Timed, b: Timed) -> str:
    if not _comparable(a[1], b[1]):
        return ""
    for of_a, of_b in zip(a[2], b[2], strict=False):
        if of_a.evidence is None or of_b.evidence is None:
            continue
        precisions = (of_a.evidence.precision, of_b.evidence.precision)
        reason = disagreement(of_a.evidence.training, of_b.evidence.training, precisions)
        if reason := reason or untouched_array(of_a.evidence, of_b.evidence):
            return f"{a[0]} and {b[0]} do not do the same training: {reason}"
    return ""


def _comparable(a: Job, b: Job) -> bool:
    """A user's own module may be random, so its training is not comparable."""
    graphs = a.model.graph, b.model.graph
    return graphs[0].sha == graphs[1].sha and not graphs[0].opaque and same_training(a.request, b.request)
