"""The ceilings of devices: the fastest matrix product, copy and link, as `deepstone doctor --peaks` measures them."""

from __future__ import annotations

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
