"""What a figure can show of a case: each measure once, with its unit and the way it comes out of records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from deepstone.absent import Absent
from deepstone.analysis.cases import Case
from deepstone.measure.statistics import Quantity, median_of_rounds
from deepstone.records.schema import Record, is_absent


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    name: str
    label: str
    unit: str
    of: Callable[[Case], Quantity | Absent]


def _images_per_s(case: Case) -> Quantity | Absent:
    return case.images_per_s


def _step_s(case: Case) -> Quantity | Absent:
    rate = case.images_per_s
    return rate if isinstance(rate, Absent) else rate.inverse(case.record["workload"]["batch"])


def _flops_per_s(case: Case) -> Quantity | Absent:
    rate, flops = case.images_per_s, case.record["cost"]["flops"]
    if isinstance(rate, Absent):
        return rate
    if not isinstance(flops, int):
        return Absent(flops["absent"])
    return scaled(rate, flops / case.record["workload"]["batch"])


def _share_of_peak(case: Case) -> Quantity | Absent:
    """Of the matrix product that the runs themselves were held against; its own interval is not in the records."""
    rate = _flops_per_s(case)
    peaks = [_peak_of(record) for record in case.good]
    known = [peak for peak in peaks if peak > 0]
    if isinstance(rate, Absent) or not known:
        return rate if isinstance(rate, Absent) else Absent("no ceiling was known when it ran")
    return scaled(rate, 1 / max(known))


def _peak_of(record: Record) -> float:
    share: Any = record["share_of_peak"]
    value = cast(Mapping[str, Any], share).get("peak_flops_per_s") if isinstance(share, dict) else None
    return float(value) if isinstance(value, (int, float)) else 0.0


def _peak_bytes(case: Case) -> Quantity | Absent:
    values = [value for record in case.good if (value := _bytes_of(record)) is not None]
    if not values:
        return Absent(case.why_not or "memory was not read")
    middle = sorted(values)[len(values) // 2]
    return Quantity(median=middle, low=min(values), high=max(values), n=len(values))


def _bytes_of(record: Record) -> float | None:
    memory: Any = record["memory"]
    for name in ("device_allocated_bytes", "host_peak_bytes"):
        if isinstance(value := memory.get(name), (int, float)):
            return float(value)
    return None


def _phase_s(phase: str) -> Callable[[Case], Quantity | Absent]:
    def of(case: Case) -> Quantity | Absent:
        found: list[Any] = [cast(Mapping[str, Any], record["phases"]).get(f"{phase}_s") for record in case.good]
        known = [Quantity(**value) for value in found if value is not None and not is_absent(value)]
        if not known:
            return Absent(case.why_not or f"{phase} was not timed apart")
        if len(known) > 1 and all(value.median > 0 for value in known):
            return median_of_rounds([value.median for value in known])
        return known[0]

    return of


def scaled(value: Quantity, factor: float) -> Quantity:
    """In another unit: each end times a positive number."""
    return Quantity(median=value.median * factor, low=value.low * factor, high=value.high * factor, n=value.n)


_DECLARED = (
    Measure(name="images_per_s", label="images per second", unit="images/s", of=_images_per_s),
    Measure(name="step_s", label="time of a step", unit="s", of=_step_s),
    Measure(name="forward_s", label="forward", unit="s", of=_phase_s("forward")),
    Measure(name="backward_s", label="backward", unit="s", of=_phase_s("backward")),
    Measure(name="update_s", label="update", unit="s", of=_phase_s("update")),
    Measure(name="data_s", label="data", unit="s", of=_phase_s("data")),
    Measure(name="flops_per_s", label="floating-point operations per second", unit="flop/s", of=_flops_per_s),
    Measure(name="share_of_peak", label="share of the fastest matrix product", unit="share", of=_share_of_peak),
    Measure(name="peak_bytes", label="peak memory", unit="bytes", of=_peak_bytes),
)
_BY_NAME: Final[dict[str, Measure]] = {measure.name: measure for measure in _DECLARED}


def measure_named(name: str) -> Measure:
    """One of those that a figure may ask for."""
    return _BY_NAME[name]
