"""What the gradient of the image would cost the first convolution: backward with it over backward without."""

from __future__ import annotations

from deepstone.papers.answer import Answer, not_testable
from deepstone.papers.arithmetic import in_words, ratio, total
from deepstone.papers.evidence import Evidence
from deepstone.papers.rules.labs import NO_LAB, lab_remarks, labs_by_batch
from deepstone.papers.rules.rule import Asked, Rule
from deepstone.papers.verdict import of_rank


def _apply(asked: Asked, evidence: Evidence) -> Answer:
    labs = labs_by_batch(asked, evidence)
    if not labs:
        return not_testable(NO_LAB)
    lab, layer = labs[-1], asked.parameters["layer"]
    data = next((timing for timing in lab.of(layer, "data") if timing.picked), None)
    weight = next((timing for timing in lab.of(layer, "weight") if timing.picked), None)
    if data is None or weight is None:
        return not_testable(f"both gradients of {layer} were not timed", setup=lab.words)
    longer = ratio(total([data.time_s, weight.time_s]), weight.time_s)
    judged = of_rank(longer)
    return Answer(
        word=judged.word,
        why=f"backward of {layer} takes {in_words(longer)} times as long with the gradient of the image; {judged.why}",
        measured=longer,
        setup=f"{lab.words}, algorithms as picked",
        findings=(lab.id,),
    ).noting(lab_remarks(asked, labs, lab))


RULE = Rule(
    words="From the convolution lab: both gradients of the first convolution over that of its weights, as picked.",
    parameters=("model", "layer", "paper_batches"),
    scope="place",
    apply=_apply,
)
