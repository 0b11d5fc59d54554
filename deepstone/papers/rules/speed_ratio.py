"""Speed of one setup over that of another, from runs: in rounds where there are any, else measured apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from deepstone.absent import Absent
from deepstone.analysis.cases import Case
from deepstone.analysis.contrast import Contrast, contrast_cases
from deepstone.analysis.differences import differences, value_of, version_of
from deepstone.measure.statistics import Quantity
from deepstone.papers.answer import Answer, not_testable
from deepstone.papers.arithmetic import in_words, widened
from deepstone.papers.evidence import Evidence
from deepstone.papers.rules.rule import Asked, Rule
from deepstone.papers.verdict import Judgement, of_equality, of_rank, of_ratio

_FAR = 1.25


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    a: Case
    b: Case
    contrast: Contrast

    @property
    def ratio(self) -> Quantity:
        """Processes of one setup differ, so a ratio of single processes measured apart has a wider interval."""
        found = self.contrast
        return widened(found.ratio, found.margin) if found.apart else found.ratio

    @property
    def setup(self) -> str:
        workload = self.a.record["workload"]
        changed = " ".join(f"{axis}={value_of(self.a.record, axis)}" for axis in self.contrast.axes)
        other = " ".join(f"{axis}={value_of(self.b.record, axis)}" for axis in self.contrast.axes)
        name = f"{value_of(self.a.record, 'framework')} {version_of(self.a.record)}"
        held = _held(self.a, self.contrast.axes)
        what = f"{workload['model']}, batch {workload['batch']}, {workload['phase']}, {name}{held}"
        return f"{what}: {changed} against {other}"


def _apply(asked: Asked, evidence: Evidence) -> Answer:
    parameters = asked.parameters
    found = list(pairs(parameters, evidence))
    if not found:
        compared = " and ".join(parameters["differ_in"])
        why = _refusal(parameters, evidence) or f"no runs that differ in {compared} alone"
        return not_testable(f"{why}: {_wanted(parameters)}")
    chosen = _best(found) if parameters.get("best") else found[0]
    judged = _judged(asked, chosen.ratio)
    return Answer(
        word=judged.word,
        why=f"{in_words(chosen.ratio)} times as fast, {chosen.contrast.how}; {judged.why}{_doubts(chosen.contrast)}",
        measured=chosen.ratio,
        setup=chosen.setup,
        runs=chosen.contrast.runs,
    ).noting(_beyond(parameters, evidence))


def pairs(parameters: Mapping[str, Any], evidence: Evidence) -> Iterator[Pair]:
    """Those that may be compared: of the first model that has any; in rounds before apart; large batches first."""
    for model in parameters["models"]:
        found = [
            Pair(a=a, b=b, contrast=contrast)
            for a, b in _candidates(parameters, evidence, model)
            if isinstance(contrast := contrast_cases(a, b, differ_in=parameters["differ_in"]), Contrast)
        ]
        if found:
            in_rounds = [pair for pair in found if not pair.contrast.apart]
            yield from sorted(in_rounds or found, key=lambda pair: -pair.a.record["workload"]["batch"])
            return


def _candidates(parameters: Mapping[str, Any], evidence: Evidence, model: str) -> Iterator[tuple[Case, Case]]:
    cases = [case for _, case in evidence.cases if case.model == model and _matches(case, parameters.get("fixed", {}))]
    firsts = [case for case in cases if _matches(case, parameters.get("a", {}))]
    seconds = [case for case in cases if _matches(case, parameters.get("b", {}))]
    return product(firsts, [case for case in seconds if _left_alone(case, parameters.get("b_default", ()))])


def _refusal(parameters: Mapping[str, Any], evidence: Evidence) -> str:
    """Why the first two that differ in nothing else were not compared after all."""
    for model in parameters["models"]:
        for a, b in _candidates(parameters, evidence, model):
            axes = differences(a.record, b.record).axes
            contrast = contrast_cases(a, b, differ_in=parameters["differ_in"])
            if (
                a.good
                and b.good
                and axes
                and set(axes) <= set(parameters["differ_in"])
                and isinstance(contrast, Absent)
            ):
                return contrast.reason
    return ""


def _best(found: list[Pair]) -> Pair:
    """The one that is shown to gain most: by the lower end of its interval."""
    return max(found, key=lambda pair: pair.ratio.low)


def _judged(asked: Asked, ratio: Quantity) -> Judgement:
    match asked.parameters.get("judged", "at least"):
        case "equal":
            return of_equality(ratio, far=_FAR)
        case "rank":
            return of_rank(ratio)
        case _:
            return of_ratio(ratio, asked.number)


def _beyond(parameters: Mapping[str, Any], evidence: Evidence) -> str:
    """What further axes would add that the paper did not have, as a remark."""
    further = parameters.get("beyond", ())
    if not further:
        return ""
    wider = {**parameters, "differ_in": [*parameters["differ_in"], *further]}
    found = [pair for pair in pairs(wider, evidence) if set(further) & set(pair.contrast.axes)]
    if not found:
        return ""
    best = _best(found)
    changed = " ".join(f"{axis}={value_of(best.a.record, axis)}" for axis in ("framework", *best.contrast.axes))
    return f"with {' and '.join(further)} free too, {in_words(best.ratio)} ({changed})"


def _matches(case: Case, wanted: Mapping[str, Any]) -> bool:
    return all(value_of(case.record, axis) == value for axis, value in wanted.items())


def _left_alone(case: Case, axes: tuple[str, ...]) -> bool:
    return all(case.record["setup"]["requested"].get(axis, "auto") == "auto" for axis in axes)


def _held(case: Case, axes: tuple[str, ...]) -> str:
    """What both sides were asked to have beside the defaults."""
    precision = case.record["setup"]["requested"].get("precision", "auto")
    return "" if precision == "auto" or "precision" in axes else f", {precision}"


def _wanted(parameters: Mapping[str, Any]) -> str:
    fixed = " ".join(f"{axis}={value}" for axis, value in parameters.get("fixed", {}).items())
    return f"{' or '.join(parameters['models'])}{' ' + fixed if fixed else ''}"


def _doubts(found: Contrast) -> str:
    return f"; doubts: {', '.join(found.doubts)}" if found.doubts else ""


RULE = Rule(
    words=(
        "Images/s of setup a over those of setup b, which differ in the named axes alone. In rounds where both ran in "
        "at least two; else apart, and then the interval is made wider by what two processes of one setup may differ "
        "by. With `best`, the pair whose interval has the highest lower end."
    ),
    parameters=("models", "fixed", "a", "b", "b_default", "differ_in", "best", "judged", "beyond"),
    scope="place",
    apply=_apply,
)
