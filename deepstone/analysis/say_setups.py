"""Sentences about one network in one framework: its speed, batch sizes, the effect of each setting, the best setup."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from deepstone.absent import Absent
from deepstone.analysis.advice import KEEP, MEASURE_AGAIN, advise
from deepstone.analysis.cases import Case, rate_of
from deepstone.analysis.contrast import WIDE, Contrast, contrast_cases, other_training, training_apart
from deepstone.analysis.one_factor import Star, setting
from deepstone.analysis.wording import (
    base_words,
    capital,
    chosen_axes,
    counted,
    doing,
    framework,
    in_effect,
    listed,
    on_machine,
    rate,
    span,
    statement,
    times,
    value,
    values,
    verb,
)
from deepstone.measure.ratios import A_FASTER, NO_DIFFERENCE
from deepstone.results.claim import Statement
from deepstone.units import percent

_Entry: TypeAlias = tuple[tuple[str, ...], Case, Contrast]  # the axes that differ, the case, and it against the base

# Ranks.
_DEFAULT, _BATCH, _FORWARD = 100.0, 56.0, 40.0
_BEST, _NONE_BETTER, _CHANGES, _SAME, _UNDECIDED = 90.0, 45.0, 50.0, 20.0, 18.0
_OTHER_TRAINING = 92.0
_MOST_GAIN = 20.0  # of rank, for the size of an effect
_FEWEST_TRIED = 3  # setups, before "none was better" is a useful statement


def say_speed(found: Sequence[Star], machines: Mapping[tuple[str, str], str]) -> Iterator[Statement]:
    for star in found:
        where = on_machine(star, machines)
        if star.is_main:
            yield from _by_default(star, where)
        if star.in_main_phase:
            yield from _by_batch(star, where)
        elif star.phase == "forward":
            yield from _forward_against_training(star, found, where)


def _by_default(star: Star, where: str) -> Iterator[Statement]:
    if not star.base.good:
        return
    chosen = chosen_axes(star)
    manner = f" with {values(star.base, chosen)}" if chosen else " by default"
    yield statement(
        f"{star.model} {verb(star)} at {rate(star.base)}{manner}{where}: {framework(star.base)}, "
        f"{in_effect(star.base)}.",
        rank=_DEFAULT,
        runs=star.base.runs,
        how=_how_sampled(star.base),
    )


def _how_sampled(case: Case) -> str:
    rates = [rate_of(record) for record in case.good]
    if len(rates) > 1 and case.is_of_looks:
        return f"median of {len(rates)} launches of searches, 95 % interval across them"
    if len(rates) > 1:
        return f"median of {len(rates)} rounds in fresh processes, 95 % interval across them"
    return f"median of {counted(rates[0].n, 'sample')} in one run, 95 % interval {case.interval}"


def _forward_against_training(star: Star, found: Sequence[Star], where: str) -> Iterator[Statement]:
    """Compare forward with the training of the same framework."""
    same = (other for other in found if other.main is star.main and other.framework == star.framework)
    training = next((other for other in same if other.phase == "train"), None)
    if training is None:
        return
    against = contrast_cases(star.base, training.base, {"phase"})
    if isinstance(against, Absent) or against.verdict != A_FASTER:
        return
    yield statement(
        f"Forward alone, {star.model} runs at {rate(star.base)}{where} in {star.framework}: a training step takes "
        f"{times(against.speed_ratio)} as long.",
        rank=_FORWARD,
        runs=against.runs,
        ratio=against.speed_ratio,
        how=against.how,
    )


def _by_batch(star: Star, where: str) -> Iterator[Statement]:
    """Find where the speed stops growing: the smallest batch that no larger one was shown to beat."""
    sizes = sorted((case for case in (star.base, *star.along("batch")) if case.good), key=_batch)
    if len(sizes) < 3:
        return
    against = {(one, other): _growth(sizes[one], sizes[other]) for one in range(len(sizes)) for other in range(one)}
    if any(isinstance(growth, Absent) for growth in against.values()):
        return
    known = {pair: growth for pair, growth in against.items() if isinstance(growth, Contrast)}
    top = next(
        small
        for small in range(len(sizes))
        if not any(known[large, small].verdict == A_FASTER for large in range(small + 1, len(sizes)))
    )
    beyond = known.get((len(sizes) - 1, top))
    if beyond is not None and beyond.speed_ratio.high > WIDE:
        return  # it may grow further
    if top == 0:
        last = known[len(sizes) - 1, 0]
        text = (
            f"No batch size beyond {_batch(sizes[0])} was shown to be faster for {star.model} in {star.framework}"
            f"{where}: batch {_batch(sizes[-1])} runs at {times(last.speed_ratio)} the speed."
        )
    elif top == len(sizes) - 1:
        last = known[top, top - 1]
        text = (
            f"{star.model} in {star.framework} is still faster at the largest batch tried{where}: batch "
            f"{_batch(sizes[top])} runs at {times(last.speed_ratio)} the speed of batch {_batch(sizes[top - 1])}."
        )
    else:
        last = known[top, 0]
        assert beyond is not None
        text = (
            f"{star.model} in {star.framework} grows with the batch up to {_batch(sizes[top])}{where}, which runs at "
            f"{times(last.speed_ratio)} the speed of batch {_batch(sizes[0])}; beyond it no growth was shown (batch "
            f"{_batch(sizes[-1])}: {times(beyond.speed_ratio)})."
        )
    runs = [run for growth in known.values() for run in growth.runs]
    yield statement(text, rank=_BATCH, runs=runs, ratio=last.speed_ratio, how=last.how)


def _batch(case: Case) -> int:
    return case.record.workload.batch


def _growth(large: Case, small: Case) -> Contrast | Absent:
    return contrast_cases(large, small, {"batch"})


def say_settings(found: Sequence[Star], machines: Mapping[tuple[str, str], str]) -> Iterator[Statement]:
    for star in found:
        where = on_machine(star, machines)
        where += f" in {star.framework}" if len({other.framework for other in found}) > 1 else ""
        against = [
            (axes, case, contrasted)
            for axes, case in star.settings()
            if isinstance(contrasted := contrast_cases(case, star.base, axes), Contrast)
        ]
        best = _best_of(against)
        if best is not None:
            yield _best(star, *best, where, tried=len(against))
        others = [entry for entry in against if entry is not best]
        yield from (_change(star, axes, case, each, where) for axes, case, each in others if _differs(each))
        yield from _no_difference(star, [entry for entry in against if not _differs(entry[2])], where)
        yield from _none_better(star, against, where)


def say_other_training(found: Sequence[Star], machines: Mapping[tuple[str, str], str]) -> Iterator[Statement]:
    """Name the setups that are not compared with the base, since they do another training."""
    for star in found:
        where = on_machine(star, machines)
        by_reason: dict[str, list[tuple[tuple[str, ...], Case]]] = {}
        for axes, case in star.settings():
            if case.good and star.base.good and (reason := other_training(case, star.base)):
                apart = training_apart(case.good, star.base.good, ("this setup", "the base"))
                by_reason.setdefault(case.refused or apart or reason, []).append((axes, case))
        for reason, several in by_reason.items():
            words = listed([setting(case, axes) for axes, case in several])
            yield statement(
                f"Other training than {base_words(star)} of {star.model}{where}, so not compared: {words} ({reason}).",
                rank=_OTHER_TRAINING,
                runs=[run for _, case in several for run in case.runs],
                how="by the check of `deepstone tune`, or by what the first steps of the runs did",
            )


def _differs(contrast: Contrast) -> bool:
    return contrast.verdict != NO_DIFFERENCE


def _change(star: Star, axes: Sequence[str], case: Case, contrast: Contrast, where: str) -> Statement:
    """Compare one axis with its value in the base, several with the base as a whole."""
    if len(axes) == 1:
        head = f"{capital(value(case, axes[0]))} instead of {value(star.base, axes[0])}"
        tail = "as fast"
    else:
        head, tail = capital(values(case, axes)), f"as fast as {base_words(star)}"
    effect = min(_MOST_GAIN, 10 * abs(math.log2(contrast.speed_ratio.median)))
    return statement(
        f"{head}: {star.model} {verb(star)} {times(contrast.speed_ratio)} {tail}{where}{_apart(contrast)}"
        f"{_unproven(case)}.",
        rank=_CHANGES + effect - (5 if star.phase == "forward" else 0),
        runs=contrast.runs,
        ratio=contrast.speed_ratio,
        how=_how(case, star.base, contrast),
        advice=advise(star, case, axes, contrast),
    )


def _how(case: Case, base: Case, contrast: Contrast) -> str:
    """Add the values that the framework then chose differently."""
    changes = [f"{value(base, axis)} became {value(case, axis)}" for axis in contrast.follow]
    return contrast.how + (f"; of what was left to the framework, {listed(changes)}" if changes else "")


def _apart(contrast: Contrast) -> str:
    return ", measured apart" if contrast.apart else ""


def _unproven(case: Case) -> str:
    return f"; not proven to be the same training: {case.unproven}" if case.unproven else ""


def _no_difference(star: Star, same: Sequence[_Entry], where: str) -> Iterator[Statement]:
    """Name the settings that are shown to be near 1, and separately those with too wide intervals."""
    near = [entry for entry in same if _is_near_one(entry[2])]
    open_ = [entry for entry in same if not _is_near_one(entry[2])]
    for several, head in (
        (near, f"No difference from {base_words(star)} was shown in {doing(star)}{where} with"),
        (open_, f"Not decided in {doing(star)}{where}, faster or slower:"),
    ):
        if not several:
            continue
        words = [
            f"{values(case, axes)} ({span(contrast.speed_ratio)}{_apart(contrast)})" for axes, case, contrast in several
        ]
        margin = max(contrast.margin for _, _, contrast in several)
        yield statement(
            f"{head} {listed(words)}.",
            rank=_SAME if several is near else _UNDECIDED,
            runs=[run for _, _, contrast in several for run in contrast.runs],
            how=f"95 % intervals of the ratio of speeds; a difference counts beyond {percent(margin)}; "
            f"{several[0][2].how}",
        )


def _is_near_one(contrast: Contrast) -> bool:
    return contrast.speed_ratio.low > 1 / WIDE and contrast.speed_ratio.high < WIDE


def _best_of(against: Sequence[_Entry]) -> _Entry | None:
    """Return the fastest if several are faster than the base; a single one needs no extra statement. What a search did
    not prove to be the same training is not the best."""
    faster = [entry for entry in against if entry[2].verdict == A_FASTER and not entry[1].unproven]
    return max(faster, key=lambda entry: entry[2].speed_ratio.low) if len(faster) > 1 else None


def _best(star: Star, axes: Sequence[str], case: Case, contrast: Contrast, where: str, *, tried: int) -> Statement:
    return statement(
        f"Best found for {doing(star)}{where}, of {counted(tried + 1, 'setup')}: {values(case, axes)} at "
        f"{rate(case)}, {times(contrast.speed_ratio)} as fast as {base_words(star)}{_apart(contrast)}.",
        rank=_BEST - (30 if star.phase == "forward" else 0),
        runs=contrast.runs,
        ratio=contrast.speed_ratio,
        how=_how(case, star.base, contrast),
        advice=advise(star, case, axes, contrast),
    )


def _none_better(star: Star, against: Sequence[_Entry], where: str) -> Iterator[Statement]:
    if len(against) < _FEWEST_TRIED or any(contrast.verdict == A_FASTER for _, _, contrast in against):
        return
    is_open = all(contrast.verdict == NO_DIFFERENCE and not _is_near_one(contrast) for _, _, contrast in against)
    how_fast = "faster or slower" if is_open else "faster"
    advice = MEASURE_AGAIN if is_open else KEEP
    yield statement(
        f"None of {counted(len(against), 'other setup')} was shown to be {how_fast} than {base_words(star)} in "
        f"{doing(star)}{where}.",
        rank=_NONE_BETTER,
        runs=[run for _, _, contrast in against for run in contrast.runs],
        how="each against the base; a winner's 95 % interval must lie beyond 2 %, or more where measured apart",
        advice=advice if star.in_main_phase and not chosen_axes(star) else None,
    )
