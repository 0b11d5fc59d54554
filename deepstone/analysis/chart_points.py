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
from deepstone.analysis.differences import (
    ENVIRONMENT,
    MACHINE,
    asked_framework,
    differences,
    release_of,
    value_of,
    version_of,
)
from deepstone.analysis.drawn import Drawn
from deepstone.analysis.figure_request import MODEL, FigureRequest
from deepstone.analysis.machines import machine_key, machine_name, machine_names
from deepstone.analysis.measures import measure_named
from deepstone.analysis.one_factor import Star, setting
from deepstone.environments.names import newness
from deepstone.setups.axes import FRAMEWORKS

FRAMEWORK: Final = "framework"
PHASE: Final = "phase"
_ORDER: Final = {name: place for place, name in enumerate(FRAMEWORKS)}
_PANEL_NAMES: Final = {"train": "training", "gradient": "forward and backward"}


def shown_points(request: FigureRequest, found: Sequence[Star]) -> list[Drawn]:
    """Every case that the figure shows, with its value or why there is none."""
    measure = measure_named(request.y)
    bases = {case.key: star.base for star in found for case in star.all}
    chosen = chosen_cases(request, found)
    if request.x == FRAMEWORK:
        chosen.sort(key=order_of_frameworks)
    labels = Labels.of(chosen)
    implied = [
        place
        for place, values in (
            (MODEL, {case.model for case in chosen}),
            (MACHINE, labels.machines),
            (FRAMEWORK, {labels.label(case, FRAMEWORK) for case in chosen}),
        )
        if len(values) > 1 and place not in (request.x, *request.series, request.panels)
    ]
    places = (*implied, *request.series)
    drawn: dict[tuple[str, str, str | int], Drawn] = {}
    for case in chosen:
        alone = request.title if request.x == MODEL else labels.label(case, MODEL)
        series = ", ".join(labels.label(case, place) for place in places) or alone
        x = _x(request, case, labels)
        panel = panel_of(request, case, labels)
        if (panel, series, x) in drawn:
            series = f"{series}, {setting(case, differences(case.record, bases[case.key].record).axes)}"
        drawn[panel, series, x] = Drawn(
            series=series, x=x, y=measure.of(case), runs=case.runs, doubts=case.doubts, panel=panel
        )
    return list(drawn.values())


def chosen_cases(request: FigureRequest, found: Sequence[Star]) -> list[Case]:
    return [case for star in found for case in _chosen(request, star)]


def order_of_frameworks(case: Case) -> tuple[int, tuple[int, ...], str, bool]:
    """As they are offered, the newest version first, so that a figure does not depend on what was measured first."""
    framework, release = str(value_of(case.record, FRAMEWORK)), release_of(case.record)
    newest_first = tuple(-number for number in newness(release))
    trains_later = case.record["workload"]["phase"] != "train"
    return _ORDER.get(framework, len(_ORDER)), newest_first, release, trains_later


def panel_of(request: FigureRequest, case: Case, labels: Labels) -> str:
    """What stands above its panel; nothing where there is one alone."""
    label = labels.label(case, request.panels) if request.panels else ""
    return _PANEL_NAMES.get(label, label)


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
        if set(differences(case.record, base.record).axes) - _no_setting(case, base) <= request.named
        and all(_text(case, axis) in values for axis, values in request.filters.items())
    ]


def _no_setting(case: Case, base: Case) -> set[str]:
    """Frameworks become series by themselves, and so do versions of one that were asked for by name."""
    by_version = asked_framework(case.record) != asked_framework(base.record)
    return {FRAMEWORK, ENVIRONMENT} if by_version else {FRAMEWORK}


def _text(case: Case, place: str) -> str:
    if place == MODEL:
        return case.model
    if place == MACHINE:
        return machine_name(case.record)
    if place == ENVIRONMENT:
        return version_of(case.record)
    return str(value_of(case.record, place))


@dataclass(frozen=True, kw_only=True, slots=True)
class Labels:
    """Names that tell apart what is shown together: machines of one name, versions of one framework."""

    machines: Mapping[tuple[str, str], str]
    versions: Mapping[str, set[str]]

    @staticmethod
    def of(chosen: Sequence[Case]) -> Labels:
        versions: dict[str, set[str]] = {}
        for case in chosen:
            versions.setdefault(_text(case, FRAMEWORK), set()).add(release_of(case.record))
        return Labels(machines=machine_names(case.record for case in chosen), versions=versions)

    def label(self, case: Case, place: str) -> str:
        if place == MACHINE:
            return self.machines[machine_key(case.record)]
        text = _text(case, place)
        if place == FRAMEWORK and len(self.versions[text]) > 1:
            return f"{text} {release_of(case.record)}".strip()
        return text


def _x(request: FigureRequest, case: Case, labels: Labels) -> str | int:
    if request.x == MODEL:  # the base may have another batch for each network, and a speed without it says little
        return f"{case.model}, batch {case.record['workload']['batch']}"
    value = value_of(case.record, request.x) if request.counts else ""
    return value if isinstance(value, int) else labels.label(case, request.x)
