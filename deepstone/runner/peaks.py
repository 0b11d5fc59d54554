"""Caches the machine's ceilings and finds those that apply to a job.

One file per machine, environment, device and thread count. A ceiling belongs to the machine, not to a framework, so the
best that any framework reached counts for all. An unreadable file counts as missing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from deepstone.absent import Absent
from deepstone.durable import write_whole
from deepstone.environments.environment import Environment
from deepstone.errors import RefusedInputError, StoreError
from deepstone.measure.roofline import REMEDY
from deepstone.results import codec
from deepstone.results.ceilings import Ceiling, frameworks_in
from deepstone.results.layers import LayerPeaks
from deepstone.results.quantity import Quantity
from deepstone.results.record import Effect
from deepstone.runner.conversation import cache_folder
from deepstone.runner.job import Job, Machine

_SCHEMA: Final = 1
_NAME_DIGITS: Final = 16


def known_peaks(job: Job, effective: Mapping[str, Effect]) -> LayerPeaks | Absent:
    """Return the ceilings of the job's device and thread count, which `effective` names."""
    device, threads = _place(effective)
    found = _found(job, effective)
    if not found:
        where = f"{device} with threads={threads}" if device == "cpu" else device
        return Absent(f"the peaks of {where} are not known; {REMEDY}")
    return _best_of(found)


def frameworks_measured(job: Job, effective: Mapping[str, Effect], precision: str) -> list[str]:
    """Return the frameworks whose product in this precision is known there."""
    known = (peaks.measured_with for peaks in _found(job, effective) if precision in peaks.flops_per_s)
    return frameworks_in(", ".join(known))


def _found(job: Job, effective: Mapping[str, Effect]) -> list[LayerPeaks]:
    files = _folder(job.machine).glob(f"{_slot(*_place(effective))}-*.json")
    return [peaks for path in sorted(files) if (peaks := _read(path)) is not None]


def _place(effective: Mapping[str, Effect]) -> tuple[str, object]:
    device = str(effective["device"].value)
    return device, effective["threads"].value if device == "cpu" else 0


def cache_peaks(entry: Ceiling, machine: Machine, environment: Environment) -> None:
    """Cache one entry of `doctor --peaks` for later commands. Raises StoreError if it cannot be written."""
    folder = _folder(machine)
    text = json.dumps({"schema": _SCHEMA, **entry.to_json()}, indent=1, allow_nan=False)
    name = f"{_slot(entry.device, entry.threads)}-{environment.sha[:_NAME_DIGITS]}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(text.encode(), folder / name)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(
            f"cannot keep peaks in {folder}: {reason}; set DEEPSTONE_CACHE to a folder with room to write"
        ) from error


class _Cached(Ceiling, frozen=True, kw_only=True):
    """An entry as its file stores it."""

    schema: Literal[1]


def _read(path: Path) -> LayerPeaks | None:
    try:
        return peaks_of(codec.convert(json.loads(path.read_text(encoding="utf-8")), _Cached))
    except (OSError, ValueError, RefusedInputError):
        return None


def peaks_of(entry: Ceiling) -> LayerPeaks | None:
    """Return the ceilings of an entry of `doctor --peaks`; None if the entry is incomplete or implausible."""
    products, copy = entry.flops_per_s, (entry.bytes_per_s or {}).get("copy")
    if products is None or copy is None or entry.measured_with is None or entry.measured_at is None:
        return None
    if entry.device == "cpu" and not isinstance(entry.threads, int):
        return None
    known = {precision: rate for precision, rate in products.items() if isinstance(rate, Quantity)}
    if not all(_is_ceiling(rate) for rate in (*known.values(), copy) if isinstance(rate, Quantity)):
        return None
    return LayerPeaks(
        device=entry.device,
        flops_per_s=known,
        bytes_per_s={"copy": copy},
        measured_with=entry.measured_with,
        measured_at=entry.measured_at,
    )


def _is_ceiling(rate: Quantity) -> bool:
    low, high = (rate.low, rate.high) if rate.has_interval else (rate.median, rate.median)
    return low > 0 and high < math.inf


def _best_of(found: Sequence[LayerPeaks]) -> LayerPeaks:
    """Return the highest ceiling of each kind."""
    precisions = sorted({precision for peaks in found for precision in peaks.flops_per_s})
    products = {
        precision: _highest(peaks.flops_per_s[precision] for peaks in found if precision in peaks.flops_per_s)
        for precision in precisions
    }
    copies = [copy for peaks in found if isinstance(copy := peaks.bytes_per_s["copy"], Quantity)]
    return LayerPeaks(
        device=found[0].device,
        flops_per_s=products,
        bytes_per_s={"copy": _highest(copies)} if copies else found[0].bytes_per_s,
        measured_with=", ".join(peaks.measured_with for peaks in found),
        measured_at=max(peaks.measured_at for peaks in found),
    )


def _highest(quantities: Iterable[Quantity]) -> Quantity:
    return max(quantities, key=lambda quantity: quantity.median)


def _folder(machine: Machine) -> Path:
    return cache_folder() / "peaks" / machine.sha[:_NAME_DIGITS]


def _slot(device: str, threads: object) -> str:
    return f"cpu-{threads}" if device == "cpu" else device.replace(":", "")
