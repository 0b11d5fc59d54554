"""Sentences about what years of software changed on one machine: the best of the years, versions of a framework, and
builds of one version. Only releases that were checked to compute the same are held against each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from deepstone.analysis.cases import Case
from deepstone.analysis.contrast import NO_DIFFERENCE, WIDE, Contrast, contrast_cases
from deepstone.analysis.differences import ENVIRONMENT, asked_framework, release_of, value_of, version_of, year_of
from deepstone.analysis.machines import machine_key
from deepstone.analysis.one_factor import Star
from deepstone.analysis.say_frameworks import Sameness
from deepstone.analysis.statement import Statement
from deepstone.analysis.wording import framework, listed, rate, releases, times, verb
from deepstone.environments.names import newness
from deepstone.measure.statistics import Quantity

_BEST, _BUILDS, _VERSIONS = 92.0, 88.0, 86.0
_FORWARD_BEHIND = 50.0  # in rank: training is what the studies are about


def say_years(
    found: Sequence[Star], machines: Mapping[tuple[str, str], str], sameness: Sameness
) -> Iterator[Statement]:
    groups: dict[tuple[int, str], list[Star]] = {}
    for star in found:
        if star.base.good and sameness.get(star.model, {}).get(asked_framework(star.base.record)):
            groups.setdefault((id(star.main), star.phase), []).append(star)
    for alike in groups.values():
        where = f" on {machines[machine_key(alike[0].base.record)]}" if len(machines) > 1 else ""
        behind = 0.0 if alike[0].phase == "train" else _FORWARD_BEHIND
        yield from _best_of_years(alike, where, behind)
        yield from _builds(alike, where, behind)
        yield from _versions(alike, where, behind)


def _best_of_years(alike: Sequence[Star], where: str, behind: float) -> Iterator[Statement]:
    """The fastest of the oldest half of the years against the fastest of the newest year, whoever that is."""
    years = {id(star): year for star in alike if isinstance(year := year_of(star.base.record), int)}
    known = [star for star in alike if id(star) in years]
    if len(set(years.values())) < 2:
        return
    newest = max(years.values())
    middle = (min(years.values()) + newest) / 2
    old = max((star for star in known if years[id(star)] <= middle), key=_speed)
    new = max((star for star in known if years[id(star)] == newest), key=_speed)
    against = _against(old.base, new.base)
    if against is None:
        return
    span = f"{min(years.values())} to {int(middle)}"
    head = (
        f"The fastest of {span}, {framework(old.base)} of {years[id(old)]}, against the fastest of {newest}, "
        f"{framework(new.base)}{where}"
    )
    if against.verdict == NO_DIFFERENCE:
        text = f"{head}: no difference was shown when {old.model} {verb(old)}, {times(against.ratio)}."
    else:
        text = f"{head}: {old.model} {verb(old)} {times(against.ratio)} as fast."
    yield _statement(text, against, _BEST - behind)


def _builds(alike: Sequence[Star], where: str, behind: float) -> Iterator[Statement]:
    """Of one version by different hands: what is not the same is the library inside."""
    for variant in alike:
        plain = next((star for star in alike if _is_plain_of(star.base, variant.base)), None)
        against = None if plain is None else _against(variant.base, plain.base)
        if plain is None or against is None or against.verdict == NO_DIFFERENCE:
            continue
        text = (
            f"The same version in another build: {variant.model} {verb(variant)} {times(against.ratio)} as fast with "
            f"{framework(variant.base)} as with {framework(plain.base)}{where}."
        )
        yield _statement(text, against, _BUILDS - behind)


def _versions(alike: Sequence[Star], where: str, behind: float) -> Iterator[Statement]:
    """The newest version of each framework against its oldest, by their plain builds."""
    by_framework: dict[str, list[Star]] = {}
    for star in alike:
        if release_of(star.base.record) == version_of(star.base.record):
            by_framework.setdefault(str(value_of(star.base.record, "framework")), []).append(star)
    for several in by_framework.values():
        ordered = sorted(several, key=lambda star: newness(version_of(star.base.record)))
        old, new = ordered[0], ordered[-1]
        against = _against(new.base, old.base) if len(ordered) > 1 else None
        if against is None or against.verdict == NO_DIFFERENCE:
            continue
        one, other = releases(new.base, old.base)
        between = [f"{release_of(star.base.record)} {rate(star.base)}" for star in ordered[1:-1]]
        text = f"{one}: {new.model} {verb(new)} {times(against.ratio)} as fast as with {other}{where}"
        yield _statement(
            f"{text}{f'; between them {listed(between)}' if between else ''}.", against, _VERSIONS - behind
        )


def _against(a: Case, b: Case) -> Contrast | None:
    """None where it cannot be said, or where the interval is too wide to say that there is no difference."""
    found = contrast_cases(a, b, {"framework", ENVIRONMENT})
    if not isinstance(found, Contrast):
        return None
    too_wide = found.ratio.low < 1 / WIDE or found.ratio.high > WIDE
    return None if found.verdict == NO_DIFFERENCE and too_wide else found


def _is_plain_of(plain: Case, variant: Case) -> bool:
    one, other = plain.record, variant.record
    same = value_of(one, "framework") == value_of(other, "framework") and version_of(one) == version_of(other)
    return same and release_of(one) == version_of(one) and release_of(other) != version_of(other)


def _speed(star: Star) -> float:
    speed = star.base.images_per_s
    return speed.median if isinstance(speed, Quantity) else 0.0


def _statement(text: str, against: Contrast, rank: float) -> Statement:
    apart = " Measured apart." if against.apart else ""
    return Statement(
        text=f"{text}{apart} Both were checked to compute the same.",
        rank=rank,
        runs=against.runs,
        ratio=against.ratio,
        how=against.how,
    )
