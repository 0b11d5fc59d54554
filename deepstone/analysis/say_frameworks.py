"""Sentences about framework against framework and release against release.

A ratio is given only if both are known to compute the same; otherwise only the speeds are given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from deepstone.absent import Absent
from deepstone.analysis.advice import advise
from deepstone.analysis.cases import Case
from deepstone.analysis.contrast import WIDE, Contrast, contrast_cases
from deepstone.analysis.facts import (
    ENVIRONMENT,
    asked_framework,
    release_of,
    value_of,
    version_of,
    year_of,
)
from deepstone.analysis.one_factor import Star
from deepstone.analysis.wording import framework, listed, on_machine, rate, releases, statement, times, value, verb
from deepstone.environments.environment import newness
from deepstone.measure.ratios import NO_DIFFERENCE
from deepstone.results.claim import Statement
from deepstone.results.quantity import Quantity

Sameness: TypeAlias = Mapping[str, Mapping[str, bool]]  # network, framework: whether it computes what the graph says

_COMPARED, _ALIKE, _TOLD = 80.0, 25.0, 60.0
_BEST_OF_YEARS, _BUILDS, _VERSIONS = 92.0, 88.0, 86.0
_FORWARD_BEHIND = 50.0  # in rank: the studies are about training


def say_frameworks(
    found: Sequence[Star], machines: Mapping[tuple[str, str], str], sameness: Sameness
) -> Iterator[Statement]:
    for star in found:
        if star.is_main or not star.in_main_phase:
            continue
        against = contrast_cases(star.base, star.main, {"framework", ENVIRONMENT})
        if isinstance(against, Absent):
            continue
        where = on_machine(star, machines)
        checked = sameness.get(star.model, {})
        pair = _framework_names(star)
        if all(checked.get(name) for name in pair):
            yield _compared(star, against, where)
        else:
            yield _not_compared(star, against, where, failed=any(checked.get(name) is False for name in pair))


def _framework_names(star: Star) -> tuple[str, str]:
    """Return the names as requested; the checks use the same names."""
    return asked_framework(star.base.record), asked_framework(star.main.record)


def _compared(star: Star, against: Contrast, where: str) -> Statement:
    one, other = releases(star.base, star.main)
    apart = ", measured apart" if against.apart else ""
    if against.verdict == NO_DIFFERENCE:
        text = f"No difference was shown between {one} and {other} when {star.model} {verb(star)}{where}"
        text += f": {times(against.speed_ratio)}{apart}."
        rank = _ALIKE
    else:
        text = f"{one}: {star.model} {verb(star)} {times(against.speed_ratio)} as fast as with {other}{where}{apart}."
        rank = _COMPARED
    return statement(
        f"{text} {_choices(star, against)}Both were checked to compute the same.".replace("  ", " "),
        rank=rank,
        runs=against.runs,
        ratio=against.speed_ratio,
        how=against.how,
        advice=advise(star, star.base, ["framework"], against),
    )


def _choices(star: Star, against: Contrast) -> str:
    """Describe what each framework chose itself. On a GPU threads say little, and some frameworks have none."""
    cases = (star.base, star.main)
    shown = [axis for axis in against.follow if axis in ("precision", "layout", "engine", "compile", "threads")]
    shown = [axis for axis in shown if all(value_of(case.record, axis) != "not used" for case in cases)]
    words = [f"{value(star.base, axis)} against {value(star.main, axis)}" for axis in shown]
    return f"Each with its own defaults ({listed(words)}). " if words else ""


def _not_compared(star: Star, against: Contrast, where: str, *, failed: bool) -> Statement:
    speeds = [f"{framework(case)} at {rate(case)}" for case in (star.base, star.main)]
    one, other = _framework_names(star)
    if failed:
        why = "they do not compute the same"
    else:
        why = f"`deepstone verify {star.model} framework={other},{one}` checks whether they compute the same"
    return statement(
        f"Measured, not compared: {star.model} {verb(star)} with {listed(speeds)}{where}; {why}.",
        rank=_TOLD,
        runs=against.runs,
        how="a ratio of frameworks is given only where both are known to compute the same",
    )


def say_years(
    found: Sequence[Star], machines: Mapping[tuple[str, str], str], sameness: Sameness
) -> Iterator[Statement]:
    """The effect of years of software on one machine: the best of the years, versions of a framework, and builds of one
    version. Only releases that were checked to compute the same are compared."""
    groups: dict[tuple[int, str], list[Star]] = {}
    for star in found:
        if star.base.good and sameness.get(star.model, {}).get(asked_framework(star.base.record)):
            groups.setdefault((id(star.main), star.phase), []).append(star)
    for alike in groups.values():
        where = on_machine(alike[0], machines)
        behind = 0.0 if alike[0].phase == "train" else _FORWARD_BEHIND
        yield from _best_of_years(alike, where, behind)
        yield from _builds(alike, where, behind)
        yield from _versions(alike, where, behind)


def _best_of_years(alike: Sequence[Star], where: str, behind: float) -> Iterator[Statement]:
    """Compare the fastest of the oldest half of the years with the fastest of the newest year."""
    years = {id(star): year for star in alike if isinstance(year := year_of(star.base.record), int)}
    known = [star for star in alike if id(star) in years]
    if len(set(years.values())) < 2:
        return
    newest = max(years.values())
    middle = (min(years.values()) + newest) / 2
    old = max((star for star in known if years[id(star)] <= middle), key=_speed)
    new = max((star for star in known if years[id(star)] == newest), key=_speed)
    against = _decided(old.base, new.base)
    if against is None:
        return
    span = f"{min(years.values())} to {int(middle)}"
    head = (
        f"The fastest of {span}, {framework(old.base)} of {years[id(old)]}, against the fastest of {newest}, "
        f"{framework(new.base)}{where}"
    )
    if against.verdict == NO_DIFFERENCE:
        text = f"{head}: no difference was shown when {old.model} {verb(old)}, {times(against.speed_ratio)}."
    else:
        text = f"{head}: {old.model} {verb(old)} {times(against.speed_ratio)} as fast."
    yield _checked_statement(text, against, _BEST_OF_YEARS - behind)


def _builds(alike: Sequence[Star], where: str, behind: float) -> Iterator[Statement]:
    """Compare builds of one version by different vendors: they differ in their libraries."""
    for variant in alike:
        plain = next((star for star in alike if _is_plain_of(star.base, variant.base)), None)
        against = None if plain is None else _decided(variant.base, plain.base)
        if plain is None or against is None or against.verdict == NO_DIFFERENCE:
            continue
        text = (
            f"The same version in another build: {variant.model} {verb(variant)} {times(against.speed_ratio)} as "
            f"fast with {framework(variant.base)} as with {framework(plain.base)}{where}."
        )
        yield _checked_statement(text, against, _BUILDS - behind)


def _versions(alike: Sequence[Star], where: str, behind: float) -> Iterator[Statement]:
    """Compare the newest version of each framework with its oldest, by their plain builds."""
    by_framework: dict[str, list[Star]] = {}
    for star in alike:
        if release_of(star.base.record) == version_of(star.base.record):
            by_framework.setdefault(str(value_of(star.base.record, "framework")), []).append(star)
    for several in by_framework.values():
        ordered = sorted(several, key=lambda star: newness(version_of(star.base.record)))
        old, new = ordered[0], ordered[-1]
        against = _decided(new.base, old.base) if len(ordered) > 1 else None
        if against is None or against.verdict == NO_DIFFERENCE:
            continue
        one, other = releases(new.base, old.base)
        between = [f"{release_of(star.base.record)} {rate(star.base)}" for star in ordered[1:-1]]
        text = f"{one}: {new.model} {verb(new)} {times(against.speed_ratio)} as fast as with {other}{where}"
        yield _checked_statement(
            f"{text}{f'; between them {listed(between)}' if between else ''}.", against, _VERSIONS - behind
        )


def _decided(a: Case, b: Case) -> Contrast | None:
    """Return None if there is no contrast, or if its interval is too wide to show that there is no difference."""
    found = contrast_cases(a, b, {"framework", ENVIRONMENT})
    if not isinstance(found, Contrast):
        return None
    too_wide = found.speed_ratio.low < 1 / WIDE or found.speed_ratio.high > WIDE
    return None if found.verdict == NO_DIFFERENCE and too_wide else found


def _is_plain_of(plain: Case, variant: Case) -> bool:
    one, other = plain.record, variant.record
    same = value_of(one, "framework") == value_of(other, "framework") and version_of(one) == version_of(other)
    return same and release_of(one) == version_of(one) and release_of(other) != version_of(other)


def _speed(star: Star) -> float:
    speed = star.base.samples_per_s
    return speed.median if isinstance(speed, Quantity) else 0.0


def _checked_statement(text: str, against: Contrast, rank: float) -> Statement:
    apart = " Measured apart." if against.apart else ""
    return statement(
        f"{text}{apart} Both were checked to compute the same.",
        rank=rank,
        runs=against.runs,
        ratio=against.speed_ratio,
        how=against.how,
    )
