"""The points of a chart: which cases a figure shows, their position on x, and their series.

Axes that the figure does not name have the value of the base, so a study that varies one factor at a time gives a chart
for each factor. Networks, frameworks and machines that the figure does not name become separate series, and so do
setups that would have the same point: nothing is merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.analysis.cases import Case, measure_named
from deepstone.analysis.contrast import contrast_cases, differences
from deepstone.analysis.facts import (
    ENVIRONMENT,
    MACHINE,
    asked_framework,
    machine_key,
    machine_name,
    machine_names,
    release_of,
    value_of,
    version_of,
    year_of,
)
from deepstone.analysis.figure_request import MODEL, SETTING, YEAR, FigureRequest
from deepstone.analysis.one_factor import Star, setting
from deepstone.analysis.wording import framework
from deepstone.environments.environment import newness
from deepstone.results.chart import ChartGap, ChartPoint
from deepstone.results.quantity import Quantity
from deepstone.setups.axes import AXES, FRAMEWORKS

FRAMEWORK: Final = "framework"
PHASE: Final = "phase"
_ORDER: Final = {name: place for place, name in enumerate(FRAMEWORKS)}
_PANEL_NAMES: Final = {"train": "training", "gradient": "forward and backward"}


class SeriesPoint(Struct, frozen=True, kw_only=True):
    """One point or gap; in a gap `y` is absent, with the reason.

    `label` is the text at the point. `apart`: the line of its series skips it. `panel` is the name of its part of the
    figure, if there are several.
    """

    series: str
    x: str | int
    y: Quantity | Absent
    runs: Sequence[str]
    doubts: Sequence[str]
    label: str = ""
    apart: bool = False
    panel: str = ""

    def point(self) -> ChartPoint:
        return ChartPoint(
            x=self.x,
            y=self.y,
            runs=list(self.runs),
            doubts=list(self.doubts),
            label=self.label or None,
            apart=self.apart or None,
        )

    def gap(self, why: str) -> ChartGap:
        text = f"{self.label}: {why}" if self.label else why
        return ChartGap(series=self.series, x=self.x, why=text, panel=self.panel or None)


def chart_points(request: FigureRequest, found: Sequence[Star]) -> list[SeriesPoint]:
    """Return every case that the figure shows, with its value or the reason why there is none."""
    if request.form == "ratios":
        return _ratio_points(request, found)
    return _year_points(request, found) if request.x == YEAR else _axis_points(request, found)


def _axis_points(request: FigureRequest, found: Sequence[Star]) -> list[SeriesPoint]:
    measure = measure_named(request.y)
    bases = {case.key: star.base for star in found for case in star.all}
    chosen = _chosen_cases(request, found)
    if request.x == FRAMEWORK:
        chosen.sort(key=_order_of_frameworks)
    labels = _Labels.of(chosen)
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
    placed: dict[tuple[str, str, str | int], SeriesPoint] = {}
    for case in chosen:
        single_name = request.title if request.x == MODEL else labels.label(case, MODEL)
        series = ", ".join(labels.label(case, place) for place in places) or single_name
        x = _x(request, case, labels)
        panel = _panel_of(request, case, labels)
        if (panel, series, x) in placed:
            series = f"{series}, {setting(case, differences(case.record, bases[case.key].record).axes)}"
        placed[panel, series, x] = SeriesPoint(
            series=series, x=x, y=measure.of(case), runs=case.runs, doubts=case.doubts, panel=panel
        )
    return list(placed.values())


def _chosen_cases(request: FigureRequest, found: Sequence[Star]) -> list[Case]:
    return [case for star in found for case in _chosen_of(request, star)]


def _order_of_frameworks(case: Case) -> tuple[int, tuple[int, ...], str, bool]:
    """Sort frameworks in their fixed order, the newest version first, so that the order of measurement has no
    effect."""
    framework, release = str(value_of(case.record, FRAMEWORK)), release_of(case.record)
    newest_first = tuple(-number for number in newness(release))
    trains_later = case.record.workload.phase != "train"
    return _ORDER.get(framework, len(_ORDER)), newest_first, release, trains_later


def _panel_of(request: FigureRequest, case: Case, labels: _Labels) -> str:
    """Return the title of its panel; empty if there is only one."""
    label = labels.label(case, request.panels) if request.panels else ""
    return _PANEL_NAMES.get(label, label)


def _chosen_of(request: FigureRequest, star: Star) -> list[Case]:
    """Return the base and the cases that differ from it in axes that the figure names, if they pass the filters.

    Named frameworks and phases share one base. Otherwise each framework has its own, and only the main phase is shown.
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
    """Frameworks are separate series, and so are versions of a framework that were requested by name."""
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


class _Labels(Struct, frozen=True, kw_only=True):
    """Unique names for the cases of a figure: machines of one name, versions of one framework."""

    machines: Mapping[tuple[str, str], str]
    versions: Mapping[str, set[str]]

    @staticmethod
    def of(chosen: Sequence[Case]) -> _Labels:
        versions: dict[str, set[str]] = {}
        for case in chosen:
            versions.setdefault(_text(case, FRAMEWORK), set()).add(release_of(case.record))
        return _Labels(machines=machine_names(case.record for case in chosen), versions=versions)

    def label(self, case: Case, place: str) -> str:
        if place == MACHINE:
            return self.machines[machine_key(case.record)]
        text = _text(case, place)
        if place == FRAMEWORK and len(self.versions[text]) > 1:
            return f"{text} {release_of(case.record)}".strip()
        return text


def _x(request: FigureRequest, case: Case, labels: _Labels) -> str | int:
    if request.x == MODEL:  # the base may have another batch for each network, and a speed means little without it
        return f"{case.model}, batch {case.record.workload.batch}"
    value = value_of(case.record, request.x) if request.counts else ""
    return value if isinstance(value, int) else labels.label(case, request.x)


def _year_points(request: FigureRequest, found: Sequence[Star]) -> list[SeriesPoint]:
    """Return a point for each version of each framework, by year of release. A variant, such as a vendor's build, is
    not part of the line: it is not the successor of the previous version."""
    chosen = sorted(_chosen_cases(request, found), key=_order_of_frameworks)
    labels = _Labels.of(chosen)
    distinguished = [
        place
        for place, values in ((MODEL, {case.model for case in chosen}), (MACHINE, labels.machines))
        if len(values) > 1 and place != request.panels
    ]
    return [
        SeriesPoint(
            series=", ".join(
                [
                    str(value_of(case.record, FRAMEWORK)),
                    *(labels.label(case, place) for place in (*distinguished, *request.series) if place != FRAMEWORK),
                ]
            ),
            x=year,
            y=measure_named(request.y).of(case),
            runs=case.runs,
            doubts=case.doubts,
            label=framework(case),
            apart=release_of(case.record) != version_of(case.record),
            panel=_panel_of(request, case, labels),
        )
        for case in chosen
        if not isinstance(year := year_of(case.record), Absent)
    ]


def without_year(request: FigureRequest, found: Sequence[Star]) -> dict[str, list[str]]:
    """Return the names of cases without a known year, by the reason."""
    missing: dict[str, list[str]] = {}
    for case in _chosen_cases(request, found):
        year = year_of(case.record)
        if isinstance(year, Absent):
            names = missing.setdefault(year.reason, [])
            names += [] if framework(case) in names else [framework(case)]
    return missing


def _ratio_points(request: FigureRequest, found: Sequence[Star]) -> list[SeriesPoint]:
    """Return the ratio of every setup to its base, the fastest first; setups without a ratio come last, as gaps."""
    comparable = [star for star in found if _compared(request, star)]
    rows = [row for star in comparable for row in _ratio_points_of(request, star, _series_name(star, comparable))]
    return sorted(rows, key=lambda row: -row.y.median if not isinstance(row.y, Absent) else 0)


def _compared(request: FigureRequest, star: Star) -> list[tuple[tuple[str, ...], Case]]:
    several = star.settings() if request.x == SETTING else [((request.x,), case) for case in star.along(request.x)]
    return [
        (axes, case)
        for axes, case in several
        if all(_passes(request, axis, value_of(case.record, axis)) for axis in AXES)
    ]


def _ratio_points_of(request: FigureRequest, star: Star, series: str) -> list[SeriesPoint]:
    rows: list[SeriesPoint] = []
    for axes, case in _compared(request, star):
        found = contrast_cases(case, star.base, axes)
        gone = isinstance(found, Absent)
        rows.append(
            SeriesPoint(
                series=series,
                x=setting(case, axes),
                y=found if gone else found.speed_ratio,
                runs=() if gone else found.runs,
                doubts=() if gone else found.doubts,
            )
        )
    return rows


def _passes(request: FigureRequest, axis: str, value: object) -> bool:
    return axis not in request.filters or str(value) in request.filters[axis]


def _series_name(star: Star, found: Sequence[Star]) -> str:
    """Name a series by the network, and by whatever else distinguishes the stars."""
    machines = machine_names(other.base.record for other in found)
    words = [star.model]
    words += [star.phase] if len({other.phase for other in found}) > 1 else []
    words += [star.framework] if len({other.framework for other in found}) > 1 else []
    words += [machines[machine_key(star.base.record)]] if len(machines) > 1 else []
    return ", ".join(words)
