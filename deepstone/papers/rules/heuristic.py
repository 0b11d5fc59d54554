"""Whether what a library picks by itself is as fast as the best of all it could pick."""

from __future__ import annotations

from deepstone.algorithms.problem import Pass
from deepstone.measure.statistics import Quantity
from deepstone.papers.answer import Answer, not_testable
from deepstone.papers.arithmetic import in_words, ratio, total
from deepstone.papers.evidence import Evidence
from deepstone.papers.families import passes_in_words
from deepstone.papers.lab import Timing
from deepstone.papers.rules.labs import NO_LAB, lab_remarks, labs_by_batch
from deepstone.papers.rules.rule import Asked, Rule
from deepstone.papers.verdict import LEAST_DIFFERENCE, exactly, of_equality


def _apply(asked: Asked, evidence: Evidence) -> Answer:
    labs = labs_by_batch(asked, evidence)
    if not labs:
        return not_testable(NO_LAB)
    lab = labs[-1]
    picked: list[Quantity] = []
    best: list[Quantity] = []
    missed: list[str] = []
    missing = [case for case in lab.cases() if not any(timing.picked for timing in lab.of(*case))]
    for case in lab.cases():
        timings = lab.of(*case)
        taken = next((timing for timing in timings if timing.picked), None)
        if taken is None:
            continue
        better = _better(taken, timings)
        # Where both are one algorithm, its error is the same on both sides and cancels.
        picked.append(exactly(taken.time_s.median) if better is None else taken.time_s)
        best.append(exactly(taken.time_s.median) if better is None else better.time_s)
        if better is not None:
            missed.append(f"{case[0]} {case[1]}: {better.algorithm} instead of {taken.algorithm}")
    if not picked:
        return not_testable("nothing that the library picks was timed", setup=lab.words)
    lost = ratio(total(picked), total(best))
    judged = of_equality(lost, far=asked.parameters["far"])
    detail = f" ({'; '.join(missed)})" if missed else ""
    return (
        Answer(
            word=judged.word,
            why=(
                f"the convolutions of a step as picked take {in_words(lost)} times as long as with the best of each; "
                f"the pick is the best in {len(picked) - len(missed)} of {len(picked)} passes{detail}; {judged.why}"
            ),
            measured=lost,
            setup=lab.words,
            findings=(lab.id,),
        )
        .noting(_untimed(missing))
        .noting(lab_remarks(asked, labs, lab))
    )


def _better(taken: Timing, timings: list[Timing]) -> Timing | None:
    """Another algorithm that is shown to be faster: its whole interval lies below, and by more than 2 %."""
    faster = [
        timing
        for timing in timings
        if timing.time_s.high < taken.time_s.low and timing.time_s.median * (1 + LEAST_DIFFERENCE) < taken.time_s.median
    ]
    return min(faster, key=lambda timing: timing.time_s.median, default=None)


def _untimed(missing: list[tuple[str, Pass]]) -> str:
    return f"without {passes_in_words(missing)}, which was not timed" if missing else ""


RULE = Rule(
    words=(
        "From the convolution lab, over all passes that a training step needs: time as the library picks over time "
        "with the best algorithm of each pass. Another is better only if its whole interval lies below, by over 2 %."
    ),
    parameters=("model", "paper_batches", "far"),
    scope="place",
    apply=_apply,
)
