"""Sentences about energy per image, where a meter measured it, and why not where none did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from deepstone.absent import Absent
from deepstone.analysis.cases import Case
from deepstone.analysis.one_factor import Star
from deepstone.analysis.statement import Statement
from deepstone.analysis.wording import base_words, span
from deepstone.measure.statistics import Quantity, median_of_rounds
from deepstone.records.schema import Record, is_absent
from deepstone.units import digits

_ENERGY, _NONE = 38.0, 10.0


def say_energy(found: Sequence[Star]) -> Iterator[Statement]:
    mains = [star for star in found if star.is_main and star.base.good]
    measured = [(star, energy) for star in mains if not isinstance(energy := joules_per_image(star.base), Absent)]
    for star, energy in measured:
        yield Statement(
            text=f"Training {star.model} with {base_words(star)} takes {digits(energy.median)} J an image "
            f"({span(energy)}){_covered(star.base.record)}.",
            rank=_ENERGY,
            runs=star.base.runs,
            how="across rounds" if len(star.base.good) > 1 else "one window; bounds from the resolution of the meter",
        )
    if mains and not measured:
        reasons = dict.fromkeys(_why_not(record) for star in mains for record in star.base.good)
        yield Statement(
            text=f"Energy was not measured: {'; '.join(reasons)}.",
            rank=_NONE,
            runs=[run for star in mains for run in star.base.runs],
        )


def joules_per_image(case: Case) -> Quantity | Absent:
    found = [energy for record in case.good if (energy := _of(record)) is not None]
    if not found:
        return Absent("no run has it")
    if len(found) > 1:
        return median_of_rounds([energy.median for energy in found])
    return found[0]


def _of(record: Record) -> Quantity | None:
    energy = cast(Mapping[str, Any], record["energy"])
    joules, resolution = energy.get("joules_per_step"), energy.get("resolution_share")
    if not isinstance(joules, float) or joules <= 0 or not isinstance(resolution, float):
        return None
    an_image = joules / record["workload"]["batch"]
    return Quantity(median=an_image, low=an_image * max(0.0, 1 - resolution), high=an_image * (1 + resolution), n=1)


def _covered(record: Record) -> str:
    meters = cast(Mapping[str, Any], record["energy"]).get("meters", [])
    covers = [str(meter["covers"]).split(",")[-1].strip() for meter in meters if "covers" in meter]
    return f", {' and '.join(dict.fromkeys(covers))}" if covers else ""


def _why_not(record: Record) -> str:
    energy = record["energy"]
    return str(energy["absent"]) if is_absent(energy) else "in a form that this version does not read"
