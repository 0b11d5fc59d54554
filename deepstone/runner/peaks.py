"""The machine's ceilings, kept in the cache folder and found again for the jobs they hold for.

One file per machine, environment, device and thread count. A ceiling belongs to the machine and not to a framework, so
the best that any of them reached counts for all. A file that cannot be read is as good as none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from deepstone.absent import Absent
from deepstone.durable import write_whole
from deepstone.environments.environment import Environment
from deepstone.errors import StoreError
from deepstone.measure.roofline import REMEDY, Peaks
from deepstone.measure.statistics import Quantity
from deepstone.runner.conversation import cache_folder
from deepstone.runner.job import Job, Machine
from deepstone.setups.effective import EffectiveValue

_SCHEMA = 1
_NAME_DIGITS = 16


def known_peaks(job: Job, effective: Mapping[str, EffectiveValue]) -> Peaks | Absent:
    """The ceilings of the device a job ran on, with the threads it had; `effective` is what its worker observed."""
    device = str(effective["device"]["value"])
    threads = effective["threads"]["value"] if device == "cpu" else 0
    files = _folder(job.machine).glob(f"{_slot(device, threads)}-*.json")
    found = [peaks for path in sorted(files) if (peaks := _read(path)) is not None]
    if not found:
        where = f"{device} with threads={threads}" if device == "cpu" else device
        return Absent(f"the peaks of {where} are not known; {REMEDY}")
    return _best_of(found)


def keep_peaks(entry: Mapping[str, Any], machine: Machine, environment: Environment) -> None:
    """One entry of `doctor --peaks`, for later commands. StoreError where it cannot be written."""
    device = str(entry["device"])
    threads = entry["threads"] if device == "cpu" else 0
    folder = _folder(machine)
    text = json.dumps({"schema": _SCHEMA, **entry}, indent=1, allow_nan=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(text.encode(), folder / f"{_slot(device, threads)}-{environment.sha[:_NAME_DIGITS]}.json")
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(
            f"cannot keep peaks in {folder}: {reason}; set DEEPSTONE_CACHE to a folder with room to write"
        ) from error


def peaks_of(entry: Mapping[str, Any]) -> Peaks | None:
    """What an entry of `doctor --peaks` says, without what is absent in it; None where it is no such entry."""
    try:
        device = str(entry["device"])
        products = {
            str(precision): quantity
            for precision, value in entry["flops_per_s"].items()
            if (quantity := _quantity(value)) is not None
        }
        copy = entry["bytes_per_s"]["copy"]
        return Peaks(
            device=device,
            threads=int(entry["threads"]) if device == "cpu" else 0,
            flops_per_s=products,
            bytes_per_s=_quantity(copy) or Absent(str(copy["absent"])),
            measured_with=str(entry["measured_with"]),
            measured_at=str(entry["measured_at"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _quantity(value: Mapping[str, Any]) -> Quantity | None:
    """None where it is absent; ValueError where it is no quantity that could be a ceiling."""
    if "absent" in value:
        return None
    found = Quantity.from_json(value)
    low, high = (found.low, found.high) if found.has_interval else (found.median, found.median)
    if not 0 < low <= found.median <= high < math.inf:
        raise ValueError("no ceiling")
    return found


def _best_of(found: Sequence[Peaks]) -> Peaks:
    """The highest ceiling of each kind that any of them has."""
    precisions = sorted({precision for peaks in found for precision in peaks.flops_per_s})
    products = {
        precision: _highest(peaks.flops_per_s[precision] for peaks in found if precision in peaks.flops_per_s)
        for precision in precisions
    }
    copies = [peaks.bytes_per_s for peaks in found if not isinstance(peaks.bytes_per_s, Absent)]
    return Peaks(
        device=found[0].device,
        threads=found[0].threads,
        flops_per_s=products,
        bytes_per_s=_highest(copies) if copies else found[0].bytes_per_s,
        measured_with=", ".join(peaks.measured_with for peaks in found),
        measured_at=max(peaks.measured_at for peaks in found),
    )


def _highest(quantities: Iterable[Quantity]) -> Quantity:
    return max(quantities, key=lambda quantity: quantity.median)


def _read(path: Path) -> Peaks | None:
    try:
        content: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict):
        return None
    entry = cast(dict[str, Any], content)
    return peaks_of(entry) if entry.get("schema") == _SCHEMA else None


def _folder(machine: Machine) -> Path:
    return cache_folder() / "peaks" / machine.sha[:_NAME_DIGITS]


def _slot(device: str, threads: object) -> str:
    return f"cpu-{threads}" if device == "cpu" else device.replace(":", "")
