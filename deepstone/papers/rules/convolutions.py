"""Rules on convolutions as the library runs them: its choice of algorithm, the gradient of the image, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from msgspec import Struct

from deepstone.algorithms.problem import Pass
from deepstone.graph.memory import step_memory
from deepstone.measure.ratios import LEAST_DIFFERENCE
from deepstone.measure.statistics import ratio_of_bounds, sum_of_bounds, why_no_interval
from deepstone.papers.answer import Answer, in_words, not_testable
from deepstone.papers.conv_lab import (
    FFT,
    FP32,
    GEMM,
    Case,
    Lab,
    Timing,
    candidates,
    comparable,
    family_of,
    fastest,
    passes_in_words,
)
from deepstone.papers.evidence import Evidence
from deepstone.papers.rules.rule import RuleOnModel, Scope
from deepstone.papers.verdict import Published, exactly, of_equality, of_rank, of_ratio
from deepstone.results.quantity import Quantity
from deepstone.units import bytes_, digits

NO_LAB: Final = "no convolution was timed here: `deepstone conv`"


class LabRule(RuleOnModel, frozen=True, kw_only=True):
    """A rule on the convolution labs of a place. `paper_batches`: those that the paper measured."""

    scope: ClassVar[Scope] = "place"
    paper_batches: list[int]

    def answer(self, published: Published, evidence: Evidence) -> Answer:
        labs = comparable(evidence.labs, self.model)
        return self.on_labs(published, labs) if labs else not_testable(NO_LAB)

    def on_labs(self, published: Published, labs: list[Lab]) -> Answer:
        """`labs` are comparable, small batches first; there is at least one."""
        raise NotImplementedError

    def remarks(self, labs: Sequence[Lab], lab: Lab, missing: Sequence[tuple[str, Pass]] = ()) -> str:
        """Describe how the test differs from the paper's: another batch or precision, untimed passes, doubts."""
        remarks: list[str] = []
        measured = [each.batch for each in labs]
        not_there = [batch for batch in self.paper_batches if batch not in measured]
        if not_there:
            listed = " and ".join(filter(None, [", ".join(map(str, not_there[:-1])), str(not_there[-1])]))
            remarks.append(f"at batch {lab.batch}; the paper's {listed} not measured here")
        if lab.precision != FP32:
            remarks.append(f"in {lab.precision}; the paper's {FP32} not measured here")
        if missing:
            remarks.append(f"without {passes_in_words(missing)}, which no comparable algorithm was timed in")
        if lab.doubts:
            remarks.append(f"doubts: {', '.join(lab.doubts)}")
        return "; ".join(remarks)


class HeuristicAgainstExhaustive(LabRule, frozen=True, kw_only=True):
    """`far`: a factor beyond which the opposite of the claim is shown."""

    words: ClassVar[str] = (
        "From the convolution lab, over all passes that a training step needs: time as the library picks over time "
        "with the best algorithm of each pass. Another is better only if its whole interval lies below, by over 2 %."
    )
    far: float

    def on_labs(self, published: Published, labs: list[Lab]) -> Answer:
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
            # If both are the same algorithm, its error is equal on both sides and cancels.
            picked.append(exactly(taken.time_s.median) if better is None else taken.time_s)
            best.append(exactly(taken.time_s.median) if better is None else better.time_s)
            if better is not None:
                missed.append(f"{case[0]} {case[1]}: {better.algorithm} instead of {taken.algorithm}")
        if not picked:
            return not_testable("nothing that the library picks was timed", setup=lab.words)
        lost = ratio_of_bounds(sum_of_bounds(picked), sum_of_bounds(best))
        judged = of_equality(lost, far=self.far)
        detail = f" ({'; '.join(missed)})" if missed else ""
        return (
            Answer(
                word=judged.word,
                why=(
                    f"the convolutions of a step as picked take {in_words(lost)} times as long as with the best of "
                    "each; "
                    f"the pick is the best in {len(picked) - len(missed)} of {len(picked)} passes{detail}; {judged.why}"
                ),
                measured=lost,
                setup=lab.words,
                findings=(lab.id,),
            )
            .noting(_untimed(missing))
            .noting(self.remarks(labs, lab))
        )


class GradientOfImage(LabRule, frozen=True, kw_only=True):
    words: ClassVar[str] = (
        "From the convolution lab: both gradients of the first convolution over that of its weights, as picked."
    )
    layer: str

    def on_labs(self, published: Published, labs: list[Lab]) -> Answer:
        lab, layer = labs[-1], self.layer
        data = next((timing for timing in lab.of(layer, "data") if timing.picked), None)
        weight = next((timing for timing in lab.of(layer, "weight") if timing.picked), None)
        if data is None or weight is None:
            return not_testable(f"both gradients of {layer} were not timed", setup=lab.words)
        longer = ratio_of_bounds(sum_of_bounds([data.time_s, weight.time_s]), weight.time_s)
        judged = of_rank(longer)
        return Answer(
            word=judged.word,
            why=(
                f"backward of {layer} takes {in_words(longer)} times as long with the gradient of the image; "
                f"{judged.why}"
            ),
            measured=longer,
            setup=f"{lab.words}, algorithms as picked",
            findings=(lab.id,),
        ).noting(self.remarks(labs, lab))


class MemoryByAlgorithm(LabRule, frozen=True, kw_only=True):
    """A GEMM may be explicit, with a matrix in memory that is many times the image, or implicit, without one. The paper
    does not say which one it measured, and libraries mix them, so the answer is the range of both."""

    words: ClassVar[str] = (
        "Memory of a training step by the layer graph plus the largest workspace of the algorithms, FFT over GEMM. "
        "Workspaces are those that the library asks for in the convolution lab; by formula alone nothing is judged. "
        "The interval is the range over the kinds of GEMM, from explicit to implicit."
    )

    def on_labs(self, published: Published, labs: list[Lab]) -> Answer:
        lab = labs[-1]
        if lab.graph is None:
            return not_testable(NO_LAB)
        gemm, fft = _gemm_workspaces(lab), _fastest_workspace(lab, FFT)
        by_formula = max((size for formula, size in lab.references.items() if formula.startswith("fft")), default=None)
        if gemm is None or (fft is None and by_formula is None):
            return not_testable("the workspace of one of the two is not known", setup=lab.words)
        step = step_memory(lab.graph, batch=lab.batch, phase="train").total_bytes
        if fft is None:
            assert by_formula is not None
            formula = exactly((step + by_formula) / (step + gemm.fastest))
            return not_testable(
                f"no library here runs FFT and tells its workspace; by formula a step would need "
                f"{digits(formula.median)} times the memory at batch {lab.batch}",
                setup=lab.words,
                measured=formula,
            )
        more = Quantity.of(
            median=(step + fft) / (step + gemm.fastest),
            low=(step + fft) / (step + gemm.most),
            high=(step + fft) / (step + gemm.least),
            n=gemm.variants if gemm.variants > 1 else 0,  # counted: one is exact
        )
        judged = of_ratio(more, published.number, published.bound)
        return Answer(
            word=judged.word,
            why=(
                f"{in_words(more)} times the memory, from {bytes_(step)} for the step by the layer graph and the "
                "largest "
                f"workspace over all passes as the library asks for it: {bytes_(fft)} for FFT, and for GEMM "
                f"{bytes_(gemm.least)} where it is implicit, {bytes_(gemm.most)} where it is explicit and "
                f"{bytes_(gemm.fastest)} with the fastest of both in each pass; the paper does not say which it "
                "measured; "
                f"{judged.why}"
            ),
            measured=more,
            setup=f"{lab.words}; counted, not measured at its peak; the interval is the range over kinds of GEMM",
            findings=(lab.id,),
        ).noting(self.remarks(labs, lab))


def _better(taken: Timing, timings: list[Timing]) -> Timing | None:
    """Return another algorithm that is shown to be faster: its whole interval lies below, by more than 2 %.

    If one of the two has no interval, the other algorithm is returned; the missing interval makes it undecided.
    """
    faster = [
        timing
        for timing in timings
        if (timing.time_s.high < taken.time_s.low or why_no_interval([timing.time_s, taken.time_s]))
        and timing.time_s.median * (1 + LEAST_DIFFERENCE) < taken.time_s.median
    ]
    return min(faster, key=lambda timing: timing.time_s.median, default=None)


def _untimed(missing: list[tuple[str, Pass]]) -> str:
    return f"without {passes_in_words(missing)}, which was not timed" if missing else ""


class _GemmWorkspaces(Struct, frozen=True, kw_only=True):
    """The largest workspace of a step in bytes, with the smallest, the largest or the fastest GEMM in each pass."""

    least: int
    most: int
    fastest: int
    variants: int  # the most choices of one pass


def _gemm_workspaces(lab: Lab) -> _GemmWorkspaces | None:
    chosen = _fastest_workspace(lab, GEMM)
    sizes = [found for case in lab.cases() if (found := _workspaces(lab, case, GEMM))]
    if chosen is None or not sizes:
        return None
    return _GemmWorkspaces(
        least=max(min(each) for each in sizes),
        most=max(max(each) for each in sizes),
        fastest=chosen,
        variants=max(len(each) for each in sizes),
    )


def _fastest_workspace(lab: Lab, family: str) -> int | None:
    """Return the largest workspace of the family's fastest algorithms: all layers share one workspace."""
    chosen = [fastest(candidates(lab, case), family) for case in lab.cases()]
    sizes = [timing.workspace_bytes for timing in chosen if timing is not None and timing.workspace_bytes is not None]
    return max(sizes, default=None)


def _workspaces(lab: Lab, case: Case, family: str) -> list[int]:
    own = [timing for timing in candidates(lab, case) if family_of(timing) == family]
    return [timing.workspace_bytes for timing in own if timing.workspace_bytes is not None]
