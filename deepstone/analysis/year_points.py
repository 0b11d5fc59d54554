"""The points of a figure by year of release: one for each version of each framework, joined within a framework.

A variant of a version, such as a vendor's build, stands apart from the line: it did not follow the version before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepstone.absent import Absent
from deepstone.analysis.chart_points import FRAMEWORK, Labels, chosen_cases, order_of_frameworks, panel_of
from deepstone.analysis.differences import MACHINE, release_of, value_of, version_of, year_of
from deepstone.analysis.drawn import Drawn
from deepstone.analysis.figure_request import MODEL, FigureRequest
from deepstone.analysis.measures import measure_named
from deepstone.analysis.one_factor import Star
from deepstone.analysis.wording import framework


def year_points(request: FigureRequest, found: Sequence[Star]) -> list[Drawn]:
    """Frameworks in the order in which they are offered, so that colours do not depend on what was measured first."""
    chosen = sorted(chosen_cases(request, found), key=order_of_frameworks)
    labels = Labels.of(chosen)
    told_apart = [
        place
        for place, values in ((MODEL, {case.model for case in chosen}), (MACHINE, labels.machines))
        if len(values) > 1 and place != request.panels
    ]
    return [
        Drawn(
            series=", ".join(
                [
                    str(value_of(case.record, FRAMEWORK)),
                    *(labels.label(case, place) for place in (*told_apart, *request.series) if place != FRAMEWORK),
                ]
            ),
            x=year,
            y=measure_named(request.y).of(case),
            runs=case.runs,
            doubts=case.doubts,
            label=framework(case),
            apart=release_of(case.record) != version_of(case.record),
            panel=panel_of(request, case, labels),
        )
        for case in chosen
        if not isinstance(year := year_of(case.record), Absent)
    ]


def without_year(request: FigureRequest, found: Sequence[Star]) -> dict[str, list[str]]:
    """The names of those whose year is not known, by the reason."""
    missing: dict[str, list[str]] = {}
    for case in chosen_cases(request, found):
        year = year_of(case.record)
        if isinstance(year, Absent):
            names = missing.setdefault(year.reason, [])
            names += [] if framework(case) in names else [framework(case)]
    return missing
