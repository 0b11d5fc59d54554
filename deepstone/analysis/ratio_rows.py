"""The rows of a figure of ratios: every setup against the base it was varied from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from deepstone.absent import Absent
from deepstone.analysis.cases import Case
from deepstone.analysis.contrast import contrast_cases
from deepstone.analysis.differences import ENVIRONMENT, differences, value_of
from deepstone.analysis.drawn import Drawn
from deepstone.analysis.figure_request import SETTING, FigureRequest
from deepstone.analysis.machines import machine_key, machine_names
from deepstone.analysis.one_factor import Star, setting
from deepstone.setups.axes import AXES

# These change the workload, or what runs it, and not the setting, unless a figure asks for one of them.
NO_SETTINGS: Final = frozenset({"batch", "phase", "framework", "seed", ENVIRONMENT})


def ratio_rows(request: FigureRequest, found: Sequence[Star]) -> list[Drawn]:
    """The fastest first; what could not be compared last, as gaps."""
    telling = [star for star in found if _wanted(request, star)]
    rows = [row for star in telling for row in _rows_of(request, star, _series_name(star, telling))]
    return sorted(rows, key=lambda row: -row.y.median if not isinstance(row.y, Absent) else 0)


def settings_of(star: Star) -> list[tuple[tuple[str, ...], Case]]:
    """The cases that differ from the base in settings alone, with the axes they differ in."""
    single = [((each.axis,), each.case) for each in star.neighbours]
    several = [(differences(case.record, star.base.record).axes, case) for case in star.combined]
    return [(axes, case) for axes, case in single + several if not NO_SETTINGS & set(axes)]


def _wanted(request: FigureRequest, star: Star) -> list[tuple[tuple[str, ...], Case]]:
    several = settings_of(star) if request.x == SETTING else [((request.x,), case) for case in star.along(request.x)]
    return [
        (axes, case)
        for axes, case in several
        if all(_passes(request, axis, value_of(case.record, axis)) for axis in AXES)
    ]


def _rows_of(request: FigureRequest, star: Star, series: str) -> list[Drawn]:
    rows: list[Drawn] = []
    for axes, case in _wanted(request, star):
        found = contrast_cases(case, star.base, axes)
        gone = isinstance(found, Absent)
        rows.append(
            Drawn(
                series=series,
                x=setting(case, axes),
                y=found if gone else found.ratio,
                runs=() if gone else found.runs,
                doubts=() if gone else found.doubts,
            )
        )
    return rows


def _passes(request: FigureRequest, axis: str, value: object) -> bool:
    return axis not in request.filters or str(value) in request.filters[axis]


def _series_name(star: Star, found: Sequence[Star]) -> str:
    """The network, and whatever else tells the stars apart."""
    machines = machine_names(other.base.record for other in found)
    words = [star.model]
    words += [star.phase] if len({other.phase for other in found}) > 1 else []
    words += [star.framework] if len({other.framework for other in found}) > 1 else []
    words += [machines[machine_key(star.base.record)]] if len(machines) > 1 else []
    return ", ".join(words)
