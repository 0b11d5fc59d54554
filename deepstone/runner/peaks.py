"""The machine's ceilings, kept in the cache folder and found again for the jobs they hold for.

One file per machine, environment, device and thread count. A ceiling belongs to the machine and not to a framework, so
the best that any of them reached counts for all. A file that cannot be read is as good as none.
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
from deepstone.results.ceilings import Ceiling
from deepstone.results.layers import LayerPeaks
from deepstone.results.quantity import Quantity
from deepstone.results.record import Effect
from deepstone.runner.conversation import cache_folder
from deepstone.runner.job import Job, Machine

_SCHEMA: Final = 1
_NAME_DIGITS: Final = 16


def known_peaks(job: Job, effective: Mapping[str, Effect]) -> LayerPeaks | Absent:
    """The ceilings of the device a job ran on, with the threads it had; `effective` is what its worker observed."""
    device = str(effective["device"].value)
    threads = effective["threads"].value if device == "cpu" else 0
    files = _folder(job.machine).glob(f"{_slot(device, threads)}-*.json")
    found = [peaks for path in sorted(files) if (peaks := _read(path)) is not None]
    if not found:
        where = f"{device} with threads={threads}" if device == "cpu" else device
        return Absent(f"the peaks of {where} are not known; {REMEDY}")
    return _best_of(found)


def keep_peaks(entry: Ceiling, machine: Machine, environment: Environment) -> None:
    """One entry of `doctor --peaks`, for later commands. StoreError where it cannot be written."""
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


class _Kept(Ceiling, frozen=True, kw_only=True):
    """An entry as it stands in its file."""

    schema: Literal[1]


def _read(path: Path) -> LayerPeaks | None:
    try:
        return peaks_of(codec.convert(json.loads(path.read_text(encoding="utf-8")), _Kept))
    except (OSError, ValueError, RefusedInputError):
        return None


def peaks_of(entry: Ceiling) -> LayerPeaks | None:
    """What an entry of `doctor --peaks` says, without what is absent in it; None where it could not be a ceiling."""
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
    """The highest ceiling of each kind that any of them has."""
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
