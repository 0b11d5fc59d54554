"""Rules on convolution algorithms: which kind is fastest, where, and the gain of choosing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from deepstone.algorithms.problem import Pass
from deepstone.measure.statistics import ratio_of_bounds
from deepstone.papers.answer import Answer, in_words, not_testable
from deepstone.papers.conv_lab import (
    FAMILIES,
    SMALL_ERROR,
    Case,
    Lab,
    Uniform,
    best_mix,
    candidates,
    family_of,
    fastest,
    inexact,
    inexact_in_words,
    missing_cases,
    passes_in_words,
    timed_cases,
    uniform,
)
from deepstone.papers.rules.convolutions import LabRule
from deepstone.papers.verdict import REVERSED, Judgement, Published, Word, of_parts, of_rank, of_ratio
from deepstone.results.quantity import Quantity
from deepstone.units import seconds


class AlgorithmChoice(LabRule, frozen=True, kw_only=True):
    """The gain of choosing the algorithm: time of the slowest kind everywhere over that of the best for each pass."""

    words: ClassVar[str] = (
        "From the convolution lab, over all passes that a training step needs: the time of the slowest kind of "
        "algorithm that can do at least half of them (where it cannot, GEMM) over that of the fastest for each pass. "
        "All that compute in fp32 are compared, as in the paper; what a relative error up to 1e-4 leaves is told too."
    )

    def on_labs(self, published: Published, labs: list[Lab]) -> Answer:
        lab = labs[-1]
        cases = timed_cases(lab)
        kinds = _kinds(lab, cases)
        if not kinds or len({family_of(timing) for case in cases for timing in candidates(lab, case)}) < 2:
            return not_testable("only one kind of algorithm was timed", setup=lab.words)
        slowest, best = _slowest(kinds), best_mix(lab, cases)
        gain = ratio_of_bounds(slowest.time_s, best)
        judged = of_ratio(gain, published.number, published.bound)
        listed = ", ".join(f"{kind.family} {seconds(kind.time_s.median)}" for kind in kinds)
        return Answer(
            word=judged.word,
            why=(
                f"all convolutions of a step with {slowest.family} take {in_words(gain)} times as long as with the "
                "best "
                f"for each ({listed}, best {seconds(best.median)}); {judged.why}"
            ),
            measured=gain,
            setup=lab.words,
            findings=(lab.id,),
        ).noting(
            "; ".join(filter(None, [_gain_if_exact(lab, cases, gain), self.remarks(labs, lab, missing_cases(lab))]))
        )


class AlgorithmRanks(LabRule, frozen=True, kw_only=True):
    """Which kind is fastest: `overall` over all passes, `small` on some layers at the smallest batch."""

    words: ClassVar[str] = (
        "Two orders from the convolution lab. Time of the fastest other kind over that of `overall`, over all passes "
        "of a step that it can do, at the batch that suits it least; and the same for `small`, forward on some layers "
        "at the smallest batch. All that compute in fp32 are compared, as in the paper, Winograd on 5x5 too; what "
        "errors up to 1e-4 leave is said beside it. Where the first order is reversed, so is the claim."
    )
    overall: str
    small: str
    small_layers: list[str]

    def on_labs(self, published: Published, labs: list[Lab]) -> Answer:
        overall, small = self._overall_order(labs), self._small_order(labs[0])
        leads = [part.lead for part in (overall, small) if part.lead is not None]
        if not leads:
            return not_testable(f"{overall.text}; {small.text}", setup=labs[-1].words)
        used = list({lab.batch: lab for lab in [*overall.labs, *small.labs]}.values())
        return (
            Answer(
                word=_word_of_orders(overall.judged, small.judged),
                why=f"{overall.text}; {small.text}",
                measured=leads[0],
                setup="; ".join(lab.words for lab in used),
                findings=tuple(dict.fromkeys(lab.id for lab in used)),
            )
            .noting(_order_if_exact(overall.labs, self.overall))
            .noting(self.remarks(labs, used[0]))
        )

    def _overall_order(self, labs: Sequence[Lab]) -> _Order:
        """The claim is for every batch, so the least favourable one decides."""
        family = self.overall
        leads = [(_lead(lab, family, _own_cases(lab, family)), lab) for lab in self._as_in_paper(labs)]
        known = [(lead, lab) for lead, lab in leads if lead is not None]
        if not known:
            return _Order(text=f"no library here was seen to run {family}")
        lead, lab = min(known, key=lambda entry: entry[0].median)
        passes = passes_in_words(_own_cases(lab, family))
        by_batch = f" ({_leads_by_batch(known)})" if len(known) > 1 else ""
        return _Order(
            text=f"over {passes} at batch {lab.batch}, {_lead_in_words(lead, family)}{by_batch}",
            lead=lead,
            labs=tuple(lab for _, lab in known),
        )

    def _small_order(self, smallest: Lab) -> _Order:
        family, layers = self.small, self.small_layers
        lead = _lead(smallest, family, [(layer, "forward") for layer in layers if layer in smallest.layers])
        if lead is None:
            return _Order(text=f"no library here was seen to run {family} on {', '.join(layers)}")
        where = f"forward on {', '.join(layers)} at batch {smallest.batch}"
        return _Order(text=f"{where}, {_lead_in_words(lead, family)}", lead=lead, labs=(smallest,))

    def _as_in_paper(self, labs: Sequence[Lab]) -> Sequence[Lab]:
        """Return the labs at batches within the paper's range; if there are none, the nearest one."""
        least = min(self.paper_batches)
        return [lab for lab in labs if lab.batch >= least] or labs[-1:]


class AlgorithmOverBatches(LabRule, frozen=True, kw_only=True):
    """Where a kind of algorithm is slow, and whether it loses more than another one as the batch shrinks."""

    words: ClassVar[str] = (
        "From the convolution lab: the first convolution's gradient with this kind of algorithm over the fastest "
        "other, at the largest batch; and how much more its time per image grows towards the smallest than GEMM's."
    )
    family: str
    other: str
    layer: str
    direction: Pass

    def on_labs(self, published: Published, labs: list[Lab]) -> Answer:
        family, other, layer = self.family, self.other, self.layer
        largest = labs[-1]
        slower = _slowdown(largest, family, layer, self.direction)
        if slower is None:
            refused = "; ".join(f"{name}: {why}" for name, why in largest.refused.items() if name.lower() == family)
            return not_testable(
                f"no library here was seen to run {family} convolution{refused and f' ({refused})'}",
                setup=largest.words,
            )
        parts: list[Judgement] = [of_rank(slower)]
        text = [
            f"{layer}'s {self.direction} gradient takes {in_words(slower)} times as long with {family} as "
            f"with the fastest other at batch {largest.batch}: {parts[0].why}"
        ]
        lost = _batch_loss(labs, family, other)
        if lost is None:
            text.append("its scaling needs two batches")
        else:
            parts.append(of_rank(lost))
            text.append(
                f"from batch {largest.batch} to {labs[0].batch} its time per image grows {in_words(lost)} times as "
                "much as "
                f"that of {other}: {parts[1].why}"
            )
        return Answer(
            word=of_parts(parts),
            why="; ".join(text),
            measured=slower,
            setup="; ".join(dict.fromkeys([labs[0].words, largest.words])),
            findings=tuple(dict.fromkeys([labs[0].id, largest.id])),
        ).noting(self.remarks(labs, largest))


def _kinds(lab: Lab, cases: Sequence[Case], largest_error: float | None = None) -> list[Uniform]:
    """Return the kinds that run at least half of the passes themselves."""
    found = [uniform(lab, family, cases, largest_error) for family in FAMILIES]
    return [kind for kind in found if kind is not None and 2 * kind.own >= len(cases)]


def _slowest(kinds: Sequence[Uniform]) -> Uniform:
    return max(kinds, key=lambda kind: kind.time_s.median)


def _gain_if_exact(lab: Lab, cases: Sequence[Case], gain: Quantity) -> str:
    """Describe the gain among algorithms with a small error, if it differs. A remark, not judged."""
    loose = inexact(lab, cases)
    exact = [case for case in cases if candidates(lab, case, SMALL_ERROR)]
    kinds = _kinds(lab, exact, SMALL_ERROR) if loose else []
    if not kinds:
        return ""
    limited = ratio_of_bounds(_slowest(kinds).time_s, best_mix(lab, exact, SMALL_ERROR))
    if limited == gain:
        return ""
    return f"with errors up to {SMALL_ERROR:.0e} alone, so without {inexact_in_words(loose)}, {in_words(limited)}"


class _Order(Struct, frozen=True, kw_only=True):
    """One of the two orders: judged, or `lead` is None and `text` says why not."""

    text: str
    lead: Quantity | None = None
    labs: tuple[Lab, ...] = ()

    @property
    def judged(self) -> list[Judgement]:
        return [] if self.lead is None else [of_rank(self.lead)]


def _word_of_orders(overall: Sequence[Judgement], small: Sequence[Judgement]) -> Word:
    """The overall order is the claim, and that of some layers limits it: without the first, nothing holds."""
    if any(part.word == REVERSED for part in overall):
        return REVERSED
    return of_parts([*overall, *small])


def _lead_in_words(lead: Quantity, family: str) -> str:
    return f"the fastest other takes {in_words(lead)} times as long as {family}: {of_rank(lead).why}"


def _leads_by_batch(leads: Sequence[tuple[Quantity, Lab]]) -> str:
    return "by batch: " + ", ".join(f"{lab.batch}: {in_words(lead)}" for lead, lab in leads)


def _own_cases(lab: Lab, family: str) -> list[Case]:
    return [case for case in timed_cases(lab) if fastest(candidates(lab, case), family) is not None]


def _lead(lab: Lab, family: str, cases: Sequence[Case], largest_error: float | None = None) -> Quantity | None:
    """Return the time of the fastest other kind over that of this one."""
    own = uniform(lab, family, cases, largest_error) if cases else None
    found = [uniform(lab, name, cases, largest_error) for name in FAMILIES if name != family]
    others = [kind.time_s for kind in found if kind is not None]
    if own is None or own.own < len(cases) or not others:
        return None
    return ratio_of_bounds(min(others, key=lambda time: time.median), own.time_s)


def _order_if_exact(labs: Sequence[Lab], family: str) -> str:
    """Describe the same order among algorithms with a small error, if another one won. A remark, not judged."""
    loose = {lab.batch: inexact(lab, _own_cases(lab, family)) for lab in labs}
    leads = [(_lead(lab, family, _own_cases(lab, family), SMALL_ERROR), lab) for lab in labs if loose[lab.batch]]
    known = [(lead, lab) for lead, lab in leads if lead is not None]
    if not known:
        return ""
    dropped = inexact_in_words([timing for timings in loose.values() for timing in timings])
    lead, lab = min(known, key=lambda entry: entry[0].median)
    return (
        f"with errors up to {SMALL_ERROR:.0e} alone, so without {dropped}, at batch {lab.batch} "
        f"{_lead_in_words(lead, family)}"
    )


def _slowdown(lab: Lab, family: str, layer: str, direction: Pass) -> Quantity | None:
    timings = candidates(lab, (layer, direction))
    own = fastest(timings, family)
    others = fastest([timing for timing in timings if family_of(timing) != family])
    return None if own is None or others is None else ratio_of_bounds(own.time_s, others.time_s)


def _batch_loss(labs: list[Lab], family: str, other: str) -> Quantity | None:
    """Return how much more speed per image the family loses towards the smallest batch than the other one."""
    if len(labs) < 2:
        return None
    small, large = labs[0], labs[-1]
    common = [case for case in timed_cases(small) if case in timed_cases(large)]
    sums = [uniform(lab, kind, common) for kind in (family, other) for lab in (small, large)]
    if any(found is None for found in sums):
        return None
    own_small, own_large, other_small, other_large = (found.time_s for found in sums if found is not None)
    return ratio_of_bounds(ratio_of_bounds(own_small, own_large), ratio_of_bounds(other_small, other_large))
