"""Sentences about what each setting changes, what was shown to change nothing, and the best setup found."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from deepstone.analysis.cases import Case
from deepstone.analysis.contrast import A_FASTER, NO_DIFFERENCE, WIDE, Contrast, contrast_cases
from deepstone.analysis.machines import machine_key
from deepstone.analysis.one_factor import Star
from deepstone.analysis.ratio_rows import settings_of
from deepstone.analysis.statement import Statement
from deepstone.analysis.wording import (
    base_words,
    capital,
    counted,
    doing,
    listed,
    rate,
    span,
    times,
    value,
    values,
    verb,
)
from deepstone.units import percent

_Entry: TypeAlias = tuple[tuple[str, ...], Case, Contrast]  # the axes that differ, the case, and it against the base

_BEST, _NONE_BETTER, _CHANGES, _SAME, _UNDECIDED = 90.0, 45.0, 50.0, 20.0, 18.0
_MOST_GAIN = 20.0  # of rank, for the size of an effect
_FEWEST_TRIED = 3  # setups, before it says something that none of them was better


def say_settings(found: Sequence[Star], machines: Mapping[tuple[str, str], str]) -> Iterator[Statement]:
    for star in found:
        where = f" on {machines[machine_key(star.base.record)]}" if len(machines) > 1 else ""
        where += f" in {star.framework}" if len({other.framework for other in found}) > 1 else ""
        against = [
            (axes, case, contrasted)
            for axes, case in settings_of(star)
            if isinstance(contrasted := contrast_cases(case, star.base, axes), Contrast)
        ]
        best = _best_of(against)
        if best is not None:
            yield _best(star, *best, where, tried=len(against))
        others = [entry for entry in against if entry is not best]
        yield from (_change(star, axes, case, each, where) for axes, case, each in others if _differs(each))
        yield from _no_difference(star, [entry for entry in against if not _differs(entry[2])], where)
        yield from _none_better(star, against, where)


def _differs(contrast: Contrast) -> bool:
    return contrast.verdict != NO_DIFFERENCE


def _change(star: Star, axes: Sequence[str], case: Case, contrast: Contrast, where: str) -> Statement:
    """One axis against what the base has in it, several against the base as a whole."""
    if len(axes) == 1:
        head = f"{capital(value(case, axes[0]))} instead of {value(star.base, axes[0])}"
        tail = "as fast"
    else:
        head, tail = capital(values(case, axes)), f"as fast as {base_words(star)}"
    effect = min(_MOST_GAIN, 10 * abs(math.log2(contrast.ratio.median)))
    return Statement(
        text=f"{head}: {star.model} {verb(star)} {times(contrast.ratio)} {tail}{where}{_apart(contrast)}.",
        rank=_CHANGES + effect - (5 if star.phase == "forward" else 0),
        runs=contrast.runs,
        ratio=contrast.ratio,
        how=_how(case, star.base, contrast),
    )


def _how(case: Case, base: Case, contrast: Contrast) -> str:
    """With what the framework then chose differently by itself."""
    changes = [f"{value(base, axis)} became {value(case, axis)}" for axis in contrast.follow]
    return contrast.how + (f"; of what was left to the framework, {listed(changes)}" if changes else "")


def _apart(contrast: Contrast) -> str:
    return ", measured apart" if contrast.apart else ""


def _no_difference(star: Star, same: Sequence[_Entry], where: str) -> Iterator[Statement]:
    """What is near 1 as far as one can tell, and apart from it what is not known at all."""
    near = [entry for entry in same if _is_near_one(entry[2])]
    open_ = [entry for entry in same if not _is_near_one(entry[2])]
    for several, head in (
        (near, f"No difference from {base_words(star)} was shown in {doing(star)}{where} with"),
        (open_, f"Not decided in {doing(star)}{where}, faster or slower:"),
    ):
        if not several:
            continue
        words = [f"{values(case, axes)} ({span(contrast.ratio)}{_apart(contrast)})" for axes, case, contrast in several]
        margin = max(contrast.margin for _, _, contrast in several)
        yield Statement(
            text=f"{head} {listed(words)}.",
            rank=_SAME if several is near else _UNDECIDED,
            runs=[run for _, _, contrast in several for run in contrast.runs],
            how=f"95 % intervals of the ratio of speeds; a difference counts beyond {percent(margin)}; "
            f"{several[0][2].how}",
        )


def _is_near_one(contrast: Contrast) -> bool:
    return contrast.ratio.low > 1 / WIDE and contrast.ratio.high < WIDE


def _best_of(against: Sequence[_Entry]) -> _Entry | None:
    """The fastest, where several are faster than the base: a single one is told like any other."""
    faster = [entry for entry in against if entry[2].verdict == A_FASTER]
    return max(faster, key=lambda entry: entry[2].ratio.low) if len(faster) > 1 else None


def _best(star: Star, axes: Sequence[str], case: Case, contrast: Contrast, where: str, *, tried: int) -> Statement:
    return Statement(
        text=f"Best found for {doing(star)}{where}, of {counted(tried + 1, 'setup')}: {values(case, axes)} at "
        f"{rate(case)}, {times(contrast.ratio)} as fast as {base_words(star)}{_apart(contrast)}.",
        rank=_BEST - (30 if star.phase == "forward" else 0),
        runs=contrast.runs,
        ratio=contrast.ratio,
        how=_how(case, star.base, contrast),
    )


def _none_better(star: Star, against: Sequence[_Entry], where: str) -> Iterator[Statement]:
    if len(against) < _FEWEST_TRIED or any(contrast.verdict == A_FASTER for _, _, contrast in against):
        return
    yield Statement(
        text=f"None of {counted(len(against), 'other setup')} was shown to be faster than {base_words(star)} in "
        f"{doing(star)}{where}.",
        rank=_NONE_BETTER,
        runs=[run for _, _, contrast in against for run in contrast.runs],
        how="each against the base; a winner's 95 % interval must lie beyond 2 %, or more where measured apart",
    )
