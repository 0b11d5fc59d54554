"""The ceilings of devices: the fastest matrix product, copy and link, as `deepstone doctor --peaks` measures them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from deepstone.results.doubt import Doubt
from deepstone.results.parts import OrAbsent, Part, Table
from deepstone.results.quantity import Quantity


class Ceiling(Part, frozen=True, kw_only=True):
    """One device through one framework. If the framework does not run there, the only field is `absent`."""

    device: str
    framework: str
    threads: OrAbsent[int] | None = None
    flops_per_s: Table[OrAbsent[Quantity]] | None = None
    bytes_per_s: Table[OrAbsent[Quantity]] | None = None
    link: OrAbsent[Table[OrAbsent[Quantity]]] | None = None
    measured_with: str | None = None
    measured_at: str | None = None
    doubts: list[Doubt] | None = None
    absent: str | None = None


class Ceilings(Part, frozen=True, kw_only=True):
    KIND: ClassVar = "peaks"

    peaks: list[Ceiling]
    machine: str | None = None  # a description, for published ceilings


def frameworks_in(measured_with: str) -> list[str]:
    """The frameworks of `torch@2.13.0+cpu, jax@0.10.2`, each once, without versions."""
    return list(dict.fromkeys(name.partition("@")[0] for name in measured_with.split(", ") if name))


def is_low_ceiling(share: float, device: str, frameworks: Sequence[str]) -> bool:
    """Whether a step that did more than the best known product shows only that the product is too low a ceiling: on a
    CPU that of one framework is none of the device, where another's may be twice as fast."""
    return share > 1 and device == "cpu" and len(frameworks) < 2
