"""One factor at a time: the base setup of each network, its neighbours that differ in one axis, and the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from deepstone.analysis.cases import Case
from deepstone.analysis.contrast import differences
from deepstone.analysis.facts import ENVIRONMENT, asked_framework, full_request, value_of
from deepstone.setups.axes import AXES, OFFERED, Value

# These change the workload or what runs it. They count as settings only if a figure requests them.
_NO_SETTINGS: Final = frozenset({"batch", "phase", "framework", "seed", ENVIRONMENT})
_WHERE: Final = ("framework", "device")  # not settings


class Neighbour(Struct, frozen=True, kw_only=True):
    """A case that differs from the base only in this axis, and in values that follow from it."""

    axis: str
    case: Case


class Star(Struct, frozen=True, kw_only=True):
    """The cases of one network in one framework and phase on one machine, around their base. A version that was
    requested by name counts as another framework.

    `main` is the base of the network on this machine: its training in the first framework, so it may be this one.
    `combined`: cases that differ from the base in several axes.
    """

    main: Case
    base: Case
    neighbours: tuple[Neighbour, ...]
    combined: tuple[Case, ...]

    @property
    def model(self) -> str:
        return self.base.model

    @property
    def framework(self) -> str:
        """Return torch, or torch 1.1.0 if that version was requested."""
        return asked_framework(self.base.record).replace("@", " ")

    @property
    def phase(self) -> str:
        return self.base.record.workload.phase

    @property
    def in_main_phase(self) -> bool:
        return self.phase == self.main.record.workload.phase

    @property
    def is_main(self) -> bool:
        return self.base is self.main

    @property
    def all(self) -> tuple[Case, ...]:
        return (self.base, *(neighbour.case for neighbour in self.neighbours), *self.combined)

    def settings(self) -> list[tuple[tuple[str, ...], Case]]:
        """Return the cases that differ from the base only in settings, with those axes."""
        single = [((each.axis,), each.case) for each in self.neighbours]
        several = [(differences(case.record, self.base.record).axes, case) for case in self.combined]
        return [(axes, case) for axes, case in single + several if not _NO_SETTINGS & set(axes)]

    def along(self, axis: str) -> list[Case]:
        """Return the neighbours in this axis."""
        return [neighbour.case for neighbour in self.neighbours if neighbour.axis == axis]


def stars(found: Iterable[Case], base: Mapping[str, Value] | None = None) -> list[Star]:
    """Return one star for each machine, network, framework and phase, in order of appearance; a network's main one
    first.

    `base` is the first setup of the study. Without it, the setup nearest to the defaults is the base.
    """
    places: dict[tuple[str, str, str], list[Case]] = {}
    for case in found:
        identity = case.record.identity
        places.setdefault((identity.machine_sha, identity.graph_sha, case.model), []).append(case)
    return [star for members in places.values() for star in _stars_of(members, base or {})]


def _stars_of(members: Sequence[Case], base: Mapping[str, Value]) -> list[Star]:
    main = _fittest(members, base)
    groups: dict[tuple[str, str], list[Case]] = {_ray(main): []}
    for case in members:
        groups.setdefault(_ray(case), []).append(case)
    return [_star(main, several, base) for several in groups.values()]


def _ray(case: Case) -> tuple[str, str]:
    return asked_framework(case.record), case.record.workload.phase


def _star(main: Case, members: Sequence[Case], base: Mapping[str, Value]) -> Star:
    centre = _counterpart(main, members) or _fittest(members, base)
    neighbours: list[Neighbour] = []
    combined: list[Case] = []
    for case in members:
        if case is centre:
            continue
        axes = differences(case.record, centre.record).axes
        if len(axes) == 1:
            neighbours.append(Neighbour(axis=axes[0], case=case))
        elif axes:
            combined.append(case)
    return Star(main=main, base=centre, neighbours=tuple(neighbours), combined=tuple(combined))


def _counterpart(main: Case, members: Sequence[Case]) -> Case | None:
    """Return the main base itself, or a measured case that differs from it only in framework and phase."""
    if any(case is main for case in members):
        return main
    other = asked_framework(members[0].record) != asked_framework(main.record)
    allowed = {"framework", "phase", ENVIRONMENT} if other else {"framework", "phase"}
    alike = (case for case in members if allowed >= set(differences(case.record, main.record).axes))
    return next((case for case in alike if case.good), None)


def _fittest(members: Sequence[Case], base: Mapping[str, Value]) -> Case:
    """Choose the base: measured, not refused as other training, training; in a study the case with every setting at
    its default, then the one with most neighbours, then the study's own base; else the case nearest to the defaults,
    then the framework that `auto` would choose.
    """
    neighbours = _count_neighbours(members)

    def fitness(case: Case) -> tuple[float, ...]:
        request = full_request(case.record)
        like_base = sum(request.get(axis) == value for axis, value in base.items())
        plain = sum(
            value == AXES[axis].default for axis, value in request.items() if axis in AXES and axis not in _WHERE
        )
        settings = [axis for axis in request if axis in AXES and axis not in (*_NO_SETTINGS, *_WHERE)]
        is_default = all(request[axis] == AXES[axis].default for axis in settings)
        trains = case.record.workload.phase == "train"
        framework = value_of(case.record, "framework")
        preferred = -OFFERED.index(str(framework)) if framework in OFFERED else -len(OFFERED)
        latest = "@" not in asked_framework(case.record)
        around = neighbours[case.key]
        by_study = (is_default, around, like_base) if base else ()
        return bool(case.good), not case.refused, trains, *by_study, plain, preferred, latest, around

    return max(members, key=fitness)


def _count_neighbours(members: Sequence[Case]) -> Counter[str]:
    """Count the other cases whose request differs in one axis: their requests without that axis are equal."""
    holes: dict[tuple[str, tuple[tuple[str, Value], ...]], list[str]] = {}
    for case in members:
        request = sorted(full_request(case.record).items())
        for axis, _ in request:
            rest = tuple(item for item in request if item[0] != axis)
            holes.setdefault((axis, rest), []).append(case.key)
    counts: Counter[str] = Counter()
    for sharing in holes.values():
        for key in sharing:
            counts[key] += len(sharing) - 1
    return counts


def setting(case: Case, axes: Iterable[str]) -> str:
    """Return the values of these axes as words: `precision=bf16-mixed layout=nhwc`."""
    return " ".join(f"{axis}={value_of(case.record, axis)}" for axis in axes)
