"""The figures that any bag of records is shown in, without a study that asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from deepstone.analysis.differences import year_of
from deepstone.analysis.machines import machine_key
from deepstone.analysis.one_factor import Star
from deepstone.analysis.ratio_rows import settings_of


def default_figures(found: Sequence[Star]) -> Iterator[dict[str, Any]]:
    """Entries as a study has them: speeds, what settings change, frameworks, years, batch sizes."""
    several_machines = len({machine_key(star.base.record) for star in found}) > 1
    series = ["machine", "phase"] if several_machines else "phase"
    yield {"name": "speed", "title": "Images per second", "form": "bars", "x": "model", "series": series}
    if any(settings_of(star) for star in found):
        yield {"name": "settings", "title": "What each setting changes", "form": "ratios"}
    if any(not star.is_main for star in found):
        title = "Framework against framework"
        yield {"name": "frameworks", "title": title, "form": "bars", "x": "model", "series": "framework"}
    if len({year for star in found if isinstance(year := year_of(star.base.record), int)}) > 1:
        title = "Images per second by year of release"
        yield {"name": "years", "title": title, "form": "lines", "x": "year", "panels": "phase"}
    for model in dict.fromkeys(star.model for star in found if star.along("batch")):
        title, only = f"Batch sizes of {model}", {"model": model}
        yield {"name": f"batch-{model}", "title": title, "form": "lines", "x": "batch", "filters": only}
