"""Which cases a figure shows, and where: its place on x and the name of its series.

What the figure does not name has the value of the base, so a study that varies one factor at a time can be drawn factor
by factor. Networks, frameworks and machines that the figure does not tell apart become series of their own, and so do
setups that would fall on one spot: nothing is merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from deepstone.analysis.cases import Case
from deepstone.analysis.differences import ENVIRONMENT, MACHINE, differences, value_of, version_of
from deepstone.analysis.drawn import Drawn
from deepstone.analysis.figure_request import MODEL, FigureRequest
from deepstone.analysis.machines import machine_key, machine_name, machine_names
from deepstone.analysis.measures import measure_named
from deepstone.analysis.one_factor import Star, setting

FRAMEWORK: Final = "framework"
PHASE: Final = "phase"


def shown_points(request: FigureRequest, found: Sequence[Star]) -> list[Drawn]:
    """Every case that the figure shows, with its value or why there is none."""
    measure = measure_named(request.y)
    bases = {case.key: star.base for star in found for case in star.all}
    chosen = [case for star in found for case in _chosen(request, star)]
    labels = _Labels.of(chosen)
    implied = [
        place
        for place, values in (
            (MODEL, {case.model for case in chosen}),
            (MACHINE, labels.machines),
            (FRAMEWORK, labels.versions),
        )
        if len(values) > 1 and place not in (request.x, *request.series)
    ]
    places = (*implied, *request.series)
    drawn: dict[tuple[str, str | int], Drawn] = {}
    for case in chosen:
        alone = request.title if request.x == MODEL else labels.label(case, MODEL)
        series = ", ".join(labels.label(case, place) for place in places) or alone
        x = _x(request, case, labels)
        if (series, x) in drawn:
            series = f"{series}, {setting(case, differences(case.record, bases[case.key].record).axes)}"
        drawn[series, x] = Drawn(series=series, x=x, y=measure.of(case), runs=case.runs, doubts=case.doubts)
    return list(drawn.values())


def _chosen(request: FigureRequest, star: Star) -> list[Case]:
    """The base and what differs from it in axes that the figure names, as far as the filters let it through.

    Frameworks and phases that are named share one base. Otherwise each framework has its own, and the main phase alone
    is shown.
    """
    if PHASE not in request.named and not star.in_main_phase:
        return []
    base = star.main if {FRAMEWORK, PHASE} & request.named else star.base
    return [
        case
        for case in star.all
        if set(differences(case.record, base.record).axes) - {FRAMEWORK} <= request.named
        and all(_text(case, axis) in values for axis, values in request.filters.items())
    ]


def _text(case: Case, place: str) -> str:
    if place == MODEL:
        return case.model
    if place == MACHINE:
        return machine_name(case.record)
    if place == ENVIRONMENT:
        return version_of(case.record)
    return str(value_of(case.record, place))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Labels:
    """Names that tell apart what is shown together: machines of one name, versions of one framework."""

    machines: Mapping[tuple[str, str], str]
    versions: Mapping[str, set[str]]

    @staticmethod
    def of(chosen: Sequence[Case]) -> _Labels:
        versions: dict[str, set[str]] = {}
        for case in chosen:
            versions.setdefault(_text(case, FRAMEWORK), set()).add(version_of(case.record))
        return _Labels(machines=machine_names(case.record for case in chosen), versions=versions)

    def label(self, case: Case, place: str) -> str:
        if place == MACHINE:
            return self.machines[machine_key(case.record)]
        text = _text(case, place)
        if place == FRAMEWORK and len(self.versions[text]) > 1:
            return f"{text} {version_of(case.record)}".strip()
        return text


def _x(request: FigureRequest, case: Case, labels: _Labels) -> str | int:
    if request.x == MODEL:  # the base may have another batch for each network, and a speed without it says little
        return f"{case.model}, batch {case.record['workload']['batch']}"
    value = value_of(case.record, request.x) if request.counts else ""
    return value if isinstance(value, int) else labels.label(case, request.x)
