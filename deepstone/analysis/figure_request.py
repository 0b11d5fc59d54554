"""Reads and checks the `figures` entries of a study."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, TypeVar

from msgspec import Struct

from deepstone.analysis.facts import ENVIRONMENT, MACHINE
from deepstone.errors import UsageError, nearest, shown
from deepstone.results.plain import is_list, is_object
from deepstone.setups.axes import AXES

Form: TypeAlias = Literal["bars", "lines", "ratios"]
Scale: TypeAlias = Literal["linear", "log", ""]
_T = TypeVar("_T", bound=str)

FORMS: Final[tuple[Form, ...]] = ("bars", "lines", "ratios")
MODEL: Final = "model"
SETTING: Final = "setting"  # x of ratios: one row for each setup against the base
YEAR: Final = "year"  # x of lines: the year in which each version of a framework was released
PLACES: Final = (*AXES, MODEL, MACHINE, ENVIRONMENT)
KEYS: Final = ("name", "title", "subtitle", "form", "x", "y", "series", "panels", "filters", "scale")
SCALES: Final[tuple[Scale, ...]] = ("linear", "log")
# The measures of a chart; `cases` computes each from records.
MEASURES: Final = (
    "images_per_s", "step_s", "forward_s", "backward_s", "update_s", "data_s", "flops_per_s", "share_of_peak",
    "peak_bytes",
)  # fmt: skip
_ALSO_X: Final = {"bars": (), "lines": (YEAR,), "ratios": (SETTING,)}
_AXES_THAT_COUNT: Final = ("batch", "threads", "inter_threads")


class FigureRequest(Struct, frozen=True, kw_only=True):
    """`filters`: axis to the values, as text, that are shown. Axes that are not named have the value of the base."""

    name: str
    title: str
    subtitle: str = ""
    form: Form
    x: str
    y: str = "images_per_s"
    series: tuple[str, ...] = ()
    panels: str = ""  # one panel for each value of this axis; empty for a single one
    filters: Mapping[str, tuple[str, ...]]
    scale: Scale = ""  # of x; empty lets the values decide

    @property
    def named(self) -> frozenset[str]:
        """Return the axes in which the shown cases may differ from the base."""
        axes = {self.x, *self.series, *self.filters, self.panels}
        axes |= {"framework"} if self.x == YEAR else set()
        return frozenset(axes | ({ENVIRONMENT} if "framework" in axes else set()))

    @property
    def counts(self) -> bool:
        return self.x in _AXES_THAT_COUNT


def read_figure(entry: Mapping[str, object]) -> FigureRequest:
    """Raises UsageError for anything that docs/studies.md does not allow."""
    for key in entry:
        if key not in KEYS:
            raise UsageError(f"figures: {shown(key)} is not a key of a figure; {nearest(key, KEYS)}")
    name, title = _text(entry, "name"), _text(entry, "title")
    title = title or name or "figure"
    form: Form = _one_of(entry, "form", FORMS, "bars")
    x = _text(entry, "x") or (SETTING if form == "ratios" else MODEL)
    series = _texts("series", entry.get("series", []))
    filters = _filters(entry.get("filters", {}))
    panels = _text(entry, "panels")
    for key, axis in (
        ("x", x),
        *(("series", axis) for axis in series),
        *(("filters", axis) for axis in filters),
        *([("panels", panels)] if panels else []),
    ):
        places = (*PLACES, *_ALSO_X[form]) if key == "x" else PLACES
        if axis not in places:
            raise UsageError(f"figures: {key} = {shown(axis)}: no such axis; {nearest(axis, places)}")
    if panels and form == "ratios":
        raise UsageError("figures: panels: ratios have one panel")
    return FigureRequest(
        name=name or re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "figure",
        title=title,
        subtitle=_text(entry, "subtitle"),
        form=form,
        x=x,
        y=_one_of(entry, "y", MEASURES, "images_per_s"),
        series=series,
        panels=panels,
        filters=filters,
        scale=_one_of(entry, "scale", SCALES, ""),
    )


def _text(entry: Mapping[str, object], key: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str):
        raise UsageError(f"figures: {key}: must be text, not {shown(repr(value))}")
    return value


def _one_of(entry: Mapping[str, object], key: str, known: Sequence[_T], default: _T) -> _T:
    value = _text(entry, key) or default
    found = next((each for each in (*known, default) if each == value), None)
    if found is None:
        raise UsageError(f"figures: {key} = {shown(value)}: {nearest(value, known)}")
    return found


def _filters(given: object) -> dict[str, tuple[str, ...]]:
    if not is_object(given):
        raise UsageError('figures: filters: must be a table, as in filters = {phase = "train"}')
    return {str(axis): _texts("filters", values) for axis, values in given.items()}


def _texts(key: str, given: object) -> tuple[str, ...]:
    """Return a value or a list as texts; numbers are compared as text."""
    listed = given if is_list(given) else [given]
    for value in listed:
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            raise UsageError(f"figures: {key}: must be names or whole numbers, not {shown(repr(value))}")
    return tuple(map(str, listed))
