"""Which findings of the convolution lab a rule looks at, and what has to be said about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from deepstone.algorithms.problem import Pass
from deepstone.papers.evidence import Evidence
from deepstone.papers.families import passes_in_words
from deepstone.papers.lab import Lab
from deepstone.papers.rules.rule import Asked

NO_LAB: Final = "no convolution was timed here: `deepstone conv`"


def labs_by_batch(asked: Asked, evidence: Evidence) -> list[Lab]:
    """The newest of each batch, small batches first."""
    model = asked.parameters["model"]
    newest: dict[int, Lab] = {}
    for lab in evidence.labs:
        if lab.model == model and lab.timings:
            newest.setdefault(lab.batch, lab)
    return [newest[batch] for batch in sorted(newest)]


def lab_remarks(asked: Asked, labs: Sequence[Lab], lab: Lab, missing: Sequence[tuple[str, Pass]] = ()) -> str:
    """What makes the test less than the paper's: another batch, passes that were not timed, doubts."""
    remarks: list[str] = []
    measured = [each.batch for each in labs]
    not_there = [batch for batch in asked.parameters["paper_batches"] if batch not in measured]
    if not_there:
        listed = " and ".join(filter(None, [", ".join(map(str, not_there[:-1])), str(not_there[-1])]))
        remarks.append(f"at batch {lab.batch}; the paper's {listed} not measured here")
    if missing:
        remarks.append(f"without {passes_in_words(missing)}, which no comparable algorithm was timed in")
    if lab.doubts:
        remarks.append(f"doubts: {', '.join(lab.doubts)}")
    return "; ".join(remarks)
