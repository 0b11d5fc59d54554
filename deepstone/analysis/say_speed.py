"""Sentences about how fast a network runs here: by default, forward against training, and by batch size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from deepstone.absent import Absent
from deepstone.analysis.cases import Case, rate_of
from deepstone.analysis.contrast import A_FASTER, WIDE, Contrast, contrast_cases
from deepstone.analysis.machines import machine_key
from deepstone.analysis.one_factor import Star
from deepstone.analysis.statement import Statement
from deepstone.analysis.wording import chosen_axes, counted, framework, in_effect, rate, times, values, verb

_DEFAULT, _BATCH, _FORWARD = 100.0, 56.0, 40.0


def say_speed(found: Sequence[Star], machines: Mapping[tuple[str, str], str]) -> Iterator[Statement]:
    for star in found:
        where = f" on {machines[machine_key(star.base.record)]}" if len(machines) > 1 else ""
        if star.is_main:
            yield from _by_default(star, where)
        if star.in_main_phase:
            yield from _by_batch(star, where)
        elif star.phase == "forward":
            yield from _forward(star, found, where)


def _by_default(star: Star, where: str) -> Iterator[Statement]:
    if not star.base.good:
        return
    chosen = chosen_axes(star)
    manner = f" with {values(star.base, chosen)}" if chosen else " by default"
    yield Statement(
        text=f"{star.model} {verb(star)} at {rate(star.base)}{manner}{where}: {framework(star.base)}, "
        f"{in_effect(star.base)}.",
        rank=_DEFAULT,
        runs=star.base.runs,
        how=_how(star.base),
    )


def _how(case: Case) -> str:
    rates = [rate_of(record) for record in case.good]
    if len(rates) > 1:
        return f"median of {len(rates)} rounds in fresh processes, 95 % interval across them"
    return f"median of {counted(rates[0].n, 'sample')} in one run, 95 % interval {case.interval}"


def _forward(star: Star, found: Sequence[Star], where: str) -> Iterator[Statement]:
    """Against the training of the same framework."""
    same = (other for other in found if other.main is star.main and other.framework == star.framework)
    training = next((other for other in same if other.phase == "train"), None)
    if training is None:
        return
    against = contrast_cases(star.base, training.base, {"phase"})
    if isinstance(against, Absent) or against.verdict != A_FASTER:
        return
    yield Statement(
        text=f"Forward alone, {star.model} runs at {rate(star.base)}{where} in {star.framework}: a training step takes "
        f"{times(against.ratio)} as long.",
        rank=_FORWARD,
        runs=against.runs,
        ratio=against.ratio,
        how=against.how,
    )


def _by_batch(star: Star, where: str) -> Iterator[Statement]:
    """Where the speed stops growing: the smallest batch that no larger one was shown to beat."""
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
    if beyond is not None and beyond.ratio.high > WIDE:
        return  # it may well grow further: nothing can be said
    if top == 0:
        last = known[len(sizes) - 1, 0]
        text = (
            f"No batch size beyond {_batch(sizes[0])} was shown to be faster for {star.model} in {star.framework}"
            f"{where}: batch {_batch(sizes[-1])} runs at {times(last.ratio)} the speed."
        )
    elif top == len(sizes) - 1:
        last = known[top, top - 1]
        text = (
            f"{star.model} in {star.framework} is still faster at the largest batch tried{where}: batch "
            f"{_batch(sizes[top])} runs at {times(last.ratio)} the speed of batch {_batch(sizes[top - 1])}."
        )
    else:
        last = known[top, 0]
        assert beyond is not None
        text = (
            f"{star.model} in {star.framework} grows with the batch up to {_batch(sizes[top])}{where}, which runs at "
            f"{times(last.ratio)} the speed of batch {_batch(sizes[0])}; beyond it no growth was shown (batch "
            f"{_batch(sizes[-1])}: {times(beyond.ratio)})."
        )
    runs = [run for growth in known.values() for run in growth.runs]
    yield Statement(text=text, rank=_BATCH, runs=runs, ratio=last.ratio, how=last.how)


def _batch(case: Case) -> int:
    return case.record["workload"]["batch"]


def _growth(large: Case, small: Case) -> Contrast | Absent:
    return contrast_cases(large, small, {"batch"})
