"""The answer of a search in a few words: what a report and the page about one search both show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.report.figures.captions import commands
from deepstone.report.figures.tune import content, setup_words
from deepstone.report.machines import machines_of
from deepstone.results.findings import Finding
from deepstone.results.quantity import Quantity
from deepstone.results.tune import SameSetup, Tuned, TunedSetup
from deepstone.units import bytes_, digits

_MEANS: Final = {
    "exact": "only the order of operations may change",
    "close": "rounding may change too, by no more than a tenth of what other data change",
    "any": "anything may change; what was given up is told",
}
_STAY: Final = "the default"


class Search(Struct, frozen=True, kw_only=True):
    """`asked`: what was searched, in words. `ratio`: of the objective of the best setup over that of the default.
    `times`: the gain in a few signs, empty where there is none. `answer`: one sentence. `same`: whether it is the same
    training. `verdict`: that in a word. `later`: of a later search for the same that showed nothing better."""

    finding: str
    model: str
    batch: int | None
    machine: str
    objective: str
    asked: str
    default: str
    default_rates: str
    best: str
    best_rates: str
    ratio: Quantity | Absent
    times: str
    gain: str
    given_up: str
    verdict: str
    answer: str
    advice: str
    same: str
    commands: tuple[str, ...]
    later: str = ""


class Kept(Struct, frozen=True, kw_only=True):
    """Of the searches for the same, the one that a report shows. `later`: one after it that decided nothing."""

    finding: Finding
    later: Finding | None = None


def kept(findings: Iterable[Finding]) -> list[Kept]:
    """Of the searches for the same, the newest that is shown to have found something better; else the newest."""
    by_question: dict[str, Kept] = {}
    for number, finding in enumerate(findings):
        question = f"{finding.task or number} {_question(finding)}"
        earlier = by_question.pop(question, None)
        if earlier is None or content(finding).is_better or not content(earlier.finding).is_better:
            by_question[question] = Kept(finding=finding)
        else:
            by_question[question] = replace(earlier, later=finding)
    return list(by_question.values())


def _question(finding: Finding) -> str:
    """What was asked for beyond the job of the default, which is the task of a finding."""
    found = content(finding)
    axes = sorted((axis.name, *map(str, axis.values)) for axis in found.space.axes)
    return str((found.objective, sorted(map(str, found.limits)), _level(finding), axes))


def _level(finding: Finding) -> str:
    """What may change of the training. Where nothing was compared, only the command says it."""
    same, command = content(finding).same, list(finding.command or ())
    if not isinstance(same, Absent):
        return same.level
    return command[command.index("--same") + 1] if "--same" in command[:-1] else "close"


def _asked(finding: Finding) -> str:
    found, level = content(finding), _level(finding)
    objective = found.objective.name
    if found.objective.slowdown is not None:
        objective += f", at most {found.objective.slowdown:g} times slower"
    parts = [found.space.in_words(), objective if objective != "throughput" else ""]
    for limit in found.limits:
        most = bytes_(limit.most) if limit.name == "memory" else f"{limit.most:g} W"
        parts.append(f"at most {most} of {limit.name}")
    parts.append(f"same training: {level}" if level != "close" else "")
    return "; ".join(part for part in parts if part)


def _later(later: Finding | None) -> str:
    if later is None:
        return ""
    return f"a later search, of {content(later).budget.asked_s:g} s, showed nothing better than the default"


def search_of(finding: Finding, later: Finding | None = None) -> Search:
    """`later`: a search for the same that decided nothing."""
    found, samples = content(finding), samples_of(finding)
    machines = machines_of((), {}, [finding])
    return Search(
        finding=finding.id or "",
        model=finding.model or "",
        batch=None if finding.workload is None else finding.workload.batch,
        machine=machines[0].name if machines else "",
        objective=found.objective.name,
        asked=_asked(finding),
        later=_later(later),
        default=setup_words(found.default.setup),
        default_rates=rates(found.default, samples),
        best=setup_words(found.best.setup) if found.is_better else _none_or_default(found),
        best_rates=rates(found.best, samples) if found.is_better else "",
        ratio=found.ratio if found.is_better else Absent(_why_none(found)),
        times=_gain(found),
        gain=_gain_in_words(found) if found.is_better else _why_none(found),
        given_up=(found.given_up or "nothing") if found.is_better else "nothing",
        verdict=_verdict(found),
        answer=_answer(found, samples),
        advice=_advice(found, samples),
        same=_same(found),
        commands=commands(finding),
    )


def samples_of(finding: Finding) -> str:
    return finding.workload.samples if finding.workload is not None else "images"


def _none_or_default(found: Tuned) -> str:
    return "none" if found.why_none else _STAY


def _why_none(found: Tuned) -> str:
    if found.why_none:
        return found.why_none
    if found.nothing_to_search:
        return found.nothing_to_search
    return "not decided by these finals" if found.answer == "not separable" else "nothing better was shown"


def _verdict(found: Tuned) -> str:
    if not found.is_better:
        return "–" if found.why_none else "it is the default"
    if isinstance(found.same, Absent):
        return "not proven"
    best = next((each for each in found.same.setups if each.setup == found.best.setup), None)
    return "not proven" if best is None else best.verdict


def _gain(found: Tuned) -> str:
    if not found.is_better or isinstance(found.ratio, Absent):
        return ""
    ratio = found.number_as_told(found.ratio.median)
    return f"{ratio:.2f}" if 0.1 <= ratio < 10 else digits(ratio) if ratio < 1 else f"{ratio:.0f}"


def _gain_in_words(found: Tuned) -> str:
    return found.ratio.reason if isinstance(found.ratio, Absent) else found.gain_in_words(found.ratio)


def times(found: Tuned, ratio: Quantity) -> str:
    told = found.as_told(ratio)
    return f"{digits(told.median)}x ({told.span_in_words(digits)})"


def rates(setup: TunedSetup, samples: str) -> str:
    """Format what the finals measured of a setup."""
    speed, energy, peak = setup.samples_per_s, setup.samples_per_j, setup.peak_bytes
    parts = [speed.reason] if isinstance(speed, Absent) else [f"{digits(speed.median)} {samples}/s"]
    parts[0] += "" if isinstance(speed, Absent) else f" ({speed.span_in_words(digits)})"
    parts += [] if isinstance(energy, Absent) else [f"{digits(energy.median)} {samples}/J"]
    parts += [] if isinstance(peak, Absent) else [f"{bytes_(peak)} at most"]
    return ", ".join(parts)


def _answer(found: Tuned, samples: str) -> str:
    """The one sentence with which the page opens."""
    if why := found.why_none:
        said = f"{why[0].upper()}{why[1:]}."
        if isinstance(found.default.samples_per_s, Absent):
            return said
        return f"{said} The default is {setup_words(found.default.setup)}: {rates(found.default, samples)}."
    if not found.is_better:
        default = f"{setup_words(found.default.setup)}: {rates(found.default, samples)}."
        here = " at this batch" if found.has_free_batch else ""
        if found.answer == "not separable":
            undecided = f"Nothing is decided{here}: other setups may be better, but these finals do not show it."
            return f"{undecided} The default, {default}"
        if why := found.nothing_to_search:
            return f"{why[0].upper()}{why[1:]}, {default}"
        return f"Stay with the default, {default} Nothing better was shown{here}."
    gain = _gain_in_words(found)
    given_up = f" Given up: {found.given_up}." if found.given_up else " Nothing was given up."
    return f"Use {setup_words(found.best.setup)}: {rates(found.best, samples)}, {gain}.{given_up}"


def _advice(found: Tuned, samples: str) -> str:
    if not found.is_better:
        return "More time or a quieter machine may decide it." if found.answer == "not separable" else ""
    within = [setup_words(setup) for setup in found.also_within]
    also = f" Within 2 % of it: {'; '.join(within)}." if within else ""
    setup = f", {setup_words(found.default.setup)}," if found.default.setup else ""
    return f"The default{setup} gives {rates(found.default, samples)}.{also}"


def _same(found: Tuned) -> str:
    same = found.same
    if isinstance(same, Absent):
        return same.reason[0].upper() + same.reason[1:] + "."
    best = next((each for each in same.setups if each.setup == found.best.setup), None)
    level = f"Level {same.level}: {_MEANS[same.level]}."
    if best is None:
        return f"{level} The best setup was not compared with the default."
    return f"{level}{_of_rounding(best)} The best setup: {best.in_words(same.level)}."


def _of_rounding(best: SameSetup) -> str:
    """Why more is allowed than the level says."""
    if best.rounding is None:
        return ""
    share = f"{100 * best.rounding:.0f} % of what other data change"
    return (
        f" Rounding the default's weights alone changes its gradients by {share}; a setup may be four times as far off."
    )
