"""Sentences about framework against framework: compared where both are known to compute the same, else only told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from deepstone.absent import Absent
from deepstone.analysis.contrast import NO_DIFFERENCE, Contrast, contrast_cases
from deepstone.analysis.differences import ENVIRONMENT, asked_framework
from deepstone.analysis.machines import machine_key
from deepstone.analysis.one_factor import Star
from deepstone.analysis.statement import Statement
from deepstone.analysis.wording import framework, listed, rate, releases, times, value, verb

Sameness: TypeAlias = Mapping[str, Mapping[str, bool]]  # network, framework: whether it computes what the graph says

_COMPARED, _ALIKE, _TOLD = 80.0, 25.0, 60.0


def say_frameworks(
    found: Sequence[Star], machines: Mapping[tuple[str, str], str], sameness: Sameness
) -> Iterator[Statement]:
    for star in found:
        if star.is_main or not star.in_main_phase:
            continue
        against = contrast_cases(star.base, star.main, {"framework", ENVIRONMENT})
        if isinstance(against, Absent):
            continue
        where = f" on {machines[machine_key(star.base.record)]}" if len(machines) > 1 else ""
        checked = sameness.get(star.model, {})
        pair = framework_names(star)
        if all(checked.get(name) for name in pair):
            yield _compared(star, against, where)
        else:
            yield _told(star, against, where, failed=any(checked.get(name) is False for name in pair))


def framework_names(star: Star) -> tuple[str, str]:
    """As one asks for them, which is how they are checked."""
    return asked_framework(star.base.record), asked_framework(star.main.record)


def _compared(star: Star, against: Contrast, where: str) -> Statement:
    one, other = releases(star.base, star.main)
    apart = ", measured apart" if against.apart else ""
    if against.verdict == NO_DIFFERENCE:
        text = f"No difference was shown between {one} and {other} when {star.model} {verb(star)}{where}"
        text += f": {times(against.ratio)}{apart}."
        rank = _ALIKE
    else:
        text = f"{one}: {star.model} {verb(star)} {times(against.ratio)} as fast as with {other}{where}{apart}."
        rank = _COMPARED
    return Statement(
        text=f"{text} {_choices(star, against)}Both were checked to compute the same.".replace("  ", " "),
        rank=rank,
        runs=against.runs,
        ratio=against.ratio,
        how=against.how,
    )


def _choices(star: Star, against: Contrast) -> str:
    """What each framework chose by itself: part of the answer, since nobody forced it."""
    shown = [axis for axis in against.follow if axis in ("precision", "layout", "engine", "compile", "threads")]
    words = [f"{value(star.base, axis)} against {value(star.main, axis)}" for axis in shown]
    return f"Each with its own defaults ({listed(words)}). " if words else ""


def _told(star: Star, against: Contrast, where: str, *, failed: bool) -> Statement:
    told = [f"{framework(case)} at {rate(case)}" for case in (star.base, star.main)]
    one, other = framework_names(star)
    if failed:
        why = "they do not compute the same"
    else:
        why = f"`deepstone verify {star.model} framework={other},{one}` checks whether they compute the same"
    return Statement(
        text=f"Measured, not compared: {star.model} {verb(star)} with {listed(told)}{where}; {why}.",
        rank=_TOLD,
        runs=against.runs,
        how="a ratio of frameworks is given only where both are known to compute the same",
    )
