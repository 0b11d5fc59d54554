"""How much more memory one kind of convolution algorithm needs for a whole step than another."""

from __future__ import annotations

from deepstone.algorithms.problem import Pass
from deepstone.graph.memory import step_memory
from deepstone.papers.answer import Answer, not_testable
from deepstone.papers.evidence import Evidence
from deepstone.papers.families import FFT, GEMM, alike, fastest
from deepstone.papers.lab import Lab
from deepstone.papers.rules.labs import NO_LAB, lab_remarks, labs_by_batch
from deepstone.papers.rules.rule import Asked, Rule
from deepstone.papers.verdict import exactly, of_ratio
from deepstone.units import bytes_, digits


def _apply(asked: Asked, evidence: Evidence) -> Answer:
    labs = labs_by_batch(asked, evidence)
    if not labs or labs[-1].graph is None:
        return not_testable(NO_LAB)
    lab = labs[-1]
    assert lab.graph is not None
    gemm, fft = _largest_workspace(lab, GEMM), _largest_workspace(lab, FFT)
    by_formula = max((size for formula, size in lab.references.items() if formula.startswith("fft")), default=None)
    if gemm is None or (fft is None and by_formula is None):
        return not_testable("the workspace of one of the two is not known", setup=lab.words)
    step = step_memory(lab.graph, batch=lab.batch, phase="train").total_bytes
    if fft is None:
        assert by_formula is not None
        return not_testable(
            f"no library here runs FFT and tells its workspace; by formula a step would need "
            f"{digits((step + by_formula) / (step + gemm))} times the memory at batch {lab.batch}",
            setup=lab.words,
            measured=exactly((step + by_formula) / (step + gemm)),
        )
    more = exactly((step + fft) / (step + gemm))
    judged = of_ratio(more, asked.number)
    return Answer(
        word=judged.word,
        why=(
            f"{digits(more.median)} times the memory: {bytes_(step)} for the step by the layer graph, and a workspace "
            f"of {bytes_(fft)} for FFT against {bytes_(gemm)} for GEMM as the library asks for them, the largest over "
            f"all passes; {judged.why}"
        ),
        measured=more,
        setup=f"{lab.words}; counted, not measured at its peak",
        findings=(lab.id,),
    ).noting(lab_remarks(asked, labs, lab))


def _largest_workspace(lab: Lab, family: str) -> int | None:
    """Of the fastest of the family in each pass: one workspace serves all layers in turn."""
    sizes = [size for case in lab.cases() if (size := _workspace(lab, case, family)) is not None]
    return max(sizes, default=None)


def _workspace(lab: Lab, case: tuple[str, Pass], family: str) -> int | None:
    chosen = fastest(alike(lab.of(*case)), family)
    return None if chosen is None else chosen.workspace_bytes


RULE = Rule(
    words=(
        "Memory of a training step by the layer graph plus the largest workspace of the algorithms, FFT over GEMM. "
        "Workspaces are those that the library asks for in the convolution lab; by formula alone nothing is judged."
    ),
    parameters=("model", "paper_batches"),
    scope="place",
    apply=_apply,
)
