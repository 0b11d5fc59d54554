"""Checks that the timed programs train, and that all sides do the same training.

A module of one's own may be random, so its training is compared only if all launches start with the same loss. What was
established about it, and what was not, is told in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final, TypeAlias

from deepstone.measure.training import SAME_START, disagreement, fault, same_training, untouched_array
from deepstone.results.record import Training
from deepstone.runner.job import Job
from deepstone.runner.measurement import Launched

Timed: TypeAlias = tuple[str, Job, Sequence[Launched]]  # name, job and launches of a side

_NO_REFERENCE: Final = "its layers are not checked: a module of your own has no reference"


def not_the_same_training(sides: Sequence[Timed]) -> str:
    """Return why the speeds are not comparable, from what the timed processes did; empty if they are."""
    for name, _, launches in sides:
        for launched in launches:
            if launched.evidence is not None and (reason := fault(launched.evidence)):
                return f"{name} is not shown to train: {reason}"
    return next((reason for a, b in combinations(sides, 2) if (reason := _differ(a, b))), "")


def established(sides: Sequence[Timed]) -> str:
    """Return what is known of the sameness of a module of one's own, in words; empty for a graph, whose sides are
    compared in any case, and for sides that are not to do the same training. Call it if there is no refusal."""
    names = " and ".join(name for name, *_ in sides)
    pairs = list(combinations(sides, 2))
    if not sides[0][1].model.graph.opaque or not all(_asked_for_the_same(a[1], b[1]) for a, b in pairs):
        return ""
    if reason := _unlike_starts(sides):
        return f"not established that {names} do the same training: {reason}; {_NO_REFERENCE}"
    changes = [training.early_change for side in sides for training in _trainings(side)]
    updates = " and the size of the early updates" if changes and None not in changes else ""
    return f"{names} start with the same loss; the losses{updates} agree; {_NO_REFERENCE}"


def _differ(a: Timed, b: Timed) -> str:
    if not _asked_for_the_same(a[1], b[1]) or (a[1].model.graph.opaque and _unlike_starts([a, b])):
        return ""
    for of_a, of_b in zip(a[2], b[2], strict=False):
        if of_a.evidence is None or of_b.evidence is None:
            continue
        precisions = (of_a.evidence.precision, of_b.evidence.precision)
        reason = disagreement(of_a.evidence.training, of_b.evidence.training, precisions)
        if reason := reason or untouched_array(of_a.evidence, of_b.evidence):
            return f"{a[0]} and {b[0]} do not do the same training: {reason}"
    return ""


def _asked_for_the_same(a: Job, b: Job) -> bool:
    return a.model.graph.sha == b.model.graph.sha and same_training(a.request, b.request)


def _unlike_starts(sides: Sequence[Timed]) -> str:
    """Why it cannot be known whether a module is random; empty if all its launches start alike."""
    starts = [
        (name, dict(training.losses)[1])
        for name, job, launches in sides
        for training in _trainings((name, job, launches))
        if 1 in dict(training.losses)
    ]
    if {name for name, _ in starts} != {name for name, *_ in sides}:
        return "their first losses are not known"
    least, most = min(starts, key=lambda start: start[1]), max(starts, key=lambda start: start[1])
    if most[1] - least[1] <= SAME_START * max(abs(most[1]), abs(least[1])):
        return ""
    lost = f"the first loss is {least[1]:.6g} in a launch of {least[0]} and {most[1]:.6g} in one of {most[0]}"
    return f"{lost}, so the module may be random"


def _trainings(side: Timed) -> list[Training]:
    found = [launched.evidence.training for launched in side[2] if launched.evidence is not None]
    return [training for training in found if isinstance(training, Training)]
