"""What makes the answer of a search less sure, in words: launches that were refused, and the doubts of its runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from statistics import median
from typing import Final

from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.errors import StoreError, UsageError
from deepstone.measure.ratios import LEAST_DIFFERENCE
from deepstone.results.record import Setup as RecordedSetup
from deepstone.results.tune import NOT_THE_SAME, Finalist, Look, Tuned, TuneLog
from deepstone.setups.axes import AUTO, AXES, Value
from deepstone.setups.tuning import Facts, Tuning
from deepstone.store.store import Store
from deepstone.tuner.answer import words_of
from deepstone.tuner.finals import FEWEST_ROUNDS, Contest
from deepstone.tuner.looks import Looks, is_cut_off

_TOLD: Final = 3  # refused setups that are named
_UNEVEN: Final = 1.3  # times the others: what one round of the finals, or the whole search, may differ unsaid
_FEWEST: Final = 3  # rounds of which one can be told from the others


def with_doubt_of_limits(answer: Tuned) -> Tuned:
    """Where nothing was found within the limits, the doubts say first which limit the default breaks."""
    broken = answer.nothing_within_limits
    return replace(answer, doubts=[broken, *answer.doubts]) if broken else answer


def refused_launches(log: TuneLog) -> list[str]:
    """What the first steps of launches showed, at any level: setups that are refused by it were not searched on."""
    found = {
        words_of(look.setup): look.samples_per_s.reason.removeprefix(NOT_THE_SAME)
        for look in log.looks
        if isinstance(look.samples_per_s, Absent) and _is_refused(look)
    }
    told = [f"{setup}: {reason}" for setup, reason in found.items()][:_TOLD]
    more = f" ({len(found) - len(told)} more)" if len(found) > len(told) else ""
    return [f"other training by the steps of its own launch, so not chosen{more}: {each}" for each in told]


def kin_of_refused(looks: Sequence[Look], finals: Sequence[Finalist], facts: Facts) -> list[str]:
    """Finalists that share all their changes with a setup that was refused, whose further changes alter the order of
    operations alone: it may only have run long enough to show what the finalist does too."""
    refused = [each.setup for each in looks if _is_refused(each)]
    found: list[str] = []
    for final in finals:
        if final.is_default or final.setup in refused:
            continue
        kin = [each for each in refused if final.setup.items() < each.items() and _is_order(final.setup, each, facts)]
        if kin:
            more = f" ({len(kin) - 1} more)" if len(kin) > 1 else ""
            found.append(
                f"{words_of(final.setup)} may be other training too: all its changes are among those of a setup that "
                f"was refused{more}: {words_of(kin[0])}"
            )
    return found


def _is_order(setup: Mapping[str, Value], more: Mapping[str, Value], facts: Facts) -> bool:
    """Whether what the second setup changes beyond the first is the order of operations alone."""
    tunings = ((AXES[name].tuning, value) for name, value in more.items() if name not in setup)
    return all(isinstance(tuning, Tuning) and tuning.alters(value, facts) == "order" for tuning, value in tunings)


def _is_refused(look: Look) -> bool:
    speed = look.samples_per_s
    return isinstance(speed, Absent) and speed.reason.startswith(NOT_THE_SAME)


def beaten_without(answer: Tuned) -> list[str]:
    """Changes without which the best setup looked better, in looks outside the finals: those do not decide, and do not
    go unsaid."""

    def looked(ratio: float) -> str:
        times = f"{answer.number_as_told(ratio):.3g}x"
        return f"{times} as fast" if answer.is_of_speed else f"to have {times} the {answer.sought}"

    return [
        f"without {why.axis}={why.best} the best setup looked {looked(1 / removed.ratio.median)} in looks outside "
        f"the finals, which do not decide: compare it with {why.axis}={why.default}"
        for why in answer.why
        if not isinstance(removed := why.removed, Absent)
        and not removed.estimated
        and removed.ratio.median < 1 / (1 + LEAST_DIFFERENCE)
    ]


def uneven_rounds(answer: Tuned) -> list[str]:
    """Finalists of which one round tells something else than the others: something disturbed a launch, maybe that of
    the others. Rounds are speeds, so where something else is sought they say nothing about the interval."""
    if not answer.is_of_speed:
        return []
    default = next((final for final in answer.finals if final.is_default), None)
    found: list[str] = []
    for final in answer.finals:
        if default is None or final.is_default:
            continue
        ratios = {
            number: ours / base
            for number, (ours, base) in enumerate(zip(final.rounds, default.rounds, strict=False), start=1)
            if not isinstance(ours, Absent) and not isinstance(base, Absent)
        }
        if len(ratios) < _FEWEST:
            continue
        middle = median(ratios.values())
        worst = max(ratios, key=lambda number: abs(math.log(ratios[number] / middle)))
        if abs(math.log(ratios[worst] / middle)) > math.log(_UNEVEN):
            found.append(
                f"the rounds of the finals disagree: in round {worst} {words_of(final.setup)} has "
                f"{ratios[worst]:.3g}x the speed of the default, in the middle one {middle:.3g}x; something disturbed "
                "a launch, and the interval includes it"
            )
    return found


def other_machine_state(answer: Tuned, compiled: Collection[Finalist] = ()) -> list[str]:
    """Finalists whose gain in the finals is far from that in the search: the machine was not the same. `compiled`:
    those of which `compiled_unevenly` tells."""
    found: list[str] = []
    for final in answer.finals:
        in_finals, in_search = _gains(answer, final)
        if final.is_default or final in compiled or in_finals is None or in_search is None:
            continue
        if abs(in_finals - in_search) > math.log(_UNEVEN):
            found.append(
                f"{words_of(final.setup)} has {math.exp(in_finals):.3g}x the speed of the default in the finals, and "
                f"had {math.exp(in_search):.3g}x in the search: the machine was not the same; compare them once more"
            )
    return found


def failed_finalists(answer: Tuned) -> list[str]:
    """Launches of the finals that failed, or of which the meters told nothing where they are asked."""
    needs_energy = answer.objective.name == "energy" or any(limit.name == "power" for limit in answer.limits)
    found: list[str] = []
    for look in answer.looks:
        if look.kind != "final" or is_cut_off(look, answer.budget.asked_s):
            continue
        where = f"{words_of(look.setup)} in round {look.round} of the finals"
        if look.outcome != "ok" and isinstance(look.samples_per_s, Absent):
            found.append(f"{where} failed: {look.samples_per_s.reason}")
        elif needs_energy and isinstance(look.samples_per_j, Absent):
            found.append(f"{where} has no energy: {look.samples_per_j.reason}")
    return found


def chooses_kernels(setup: RecordedSetup) -> bool:
    """Whether a launch compiles its step or tries algorithms, by what took effect: then two that do so anew may choose
    other kernels. A graph that is only recorded is run as it is."""
    is_compiled = setup.value("compile") not in ("", AUTO, "off", "graph") or setup.value("engine") == "xla"
    return is_compiled or setup.value("algorithm").startswith("benchmark")


def finalists_that_compile(answer: Tuned, store: Store) -> list[Finalist]:
    found: list[Finalist] = []
    for finalist in answer.finals:
        with suppress(StoreError, UsageError):  # it was deleted meanwhile
            if any(chooses_kernels(store.get(run).setup) for run in finalist.runs[:1]):
                found.append(finalist)
    return found


def compiled_unevenly(answer: Tuned, compiled: Collection[Finalist]) -> list[str]:
    """Of the finalists that compile, those that the search and the finals, each of which compiled them anew, saw at
    different speeds. The speed of the default stands for what the machine did meanwhile."""
    found: list[str] = []
    for finalist in compiled:
        in_finals, in_search = _gains(answer, finalist)
        if finalist.is_default or in_finals is None or in_search is None:
            continue
        if abs(in_finals - in_search) > math.log1p(LEAST_DIFFERENCE):
            ratio = math.exp(in_finals - in_search)
            found.append(
                f"compiled anew for the finals, {words_of(finalist.setup)} is {ratio:.3g}x as fast as in the search: "
                "what its compiler chooses differs from time to time"
            )
    return found


def _gains(answer: Tuned, finalist: Finalist) -> tuple[float | None, float | None]:
    """The log of its speed over that of the default, by the finals, and by all other looks; None if there is none. Of
    the finals, as the answer tells it, if speed is sought."""
    in_search = _gain_of_looks(answer, finalist.setup, are_finals=False)
    if answer.is_of_speed and not isinstance(finalist.ratio, Absent):
        return math.log(finalist.ratio.median), in_search
    return _gain_of_looks(answer, finalist.setup, are_finals=True), in_search


def _gain_of_looks(answer: Tuned, setup: Mapping[str, Value], *, are_finals: bool) -> float | None:
    logs: list[float] = []
    for each in (setup, answer.default.setup):
        speeds = [
            look.samples_per_s
            for look in answer.looks
            if look.setup == each
            and (look.kind == "final") == are_finals
            and not isinstance(look.samples_per_s, Absent)
        ]
        if not speeds:
            return None
        logs.append(math.log(median(speeds)))
    return logs[0] - logs[1]


def doubts_of_runs(store: Store, runs: Sequence[str]) -> list[str]:
    """The doubts about these runs, each once, with how many have it."""
    found: dict[str, list[str]] = {}
    for run in runs:
        with suppress(StoreError, UsageError):  # it was deleted meanwhile
            for doubt in store.get(run).doubts:
                found.setdefault(doubt.code, []).append(doubt.detail)
    return [f"{code} ({len(details)} of {len(runs)} runs): {details[-1]}" for code, details in found.items()]


def too_short(looks: Looks, contest: Contest) -> list[str]:
    """Why an answer says little: the time was over too soon."""
    others = [look for look, point in looks.points() if point != looks.space.default]
    reasons = [look.samples_per_s.reason for look in others if isinstance(look.samples_per_s, Absent)]
    more = "give a larger --budget"
    if not others and looks.space.count > 1:
        return [f"only the default was looked at in this time; {more}"]
    if others and len(reasons) == len(others):
        return [f"none of the other setups that were looked at has a speed, so nothing is decided: {reasons[0]}"]
    rounds = len(looks.rounds(contest))
    if others and rounds < min(2, contest.rounds):
        return [f"the finals were not finished in this time, so nothing is decided; {more}"]
    if rounds < min(FEWEST_ROUNDS, contest.rounds):
        how = "their intervals come from how far all launches of the same setup are apart"
        return [f"{rounds} of {contest.rounds} rounds of the finals were measured in this time; {how}; {more}"]
    return []
