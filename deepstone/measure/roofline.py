"""The roofline: how fast a layer could be on this machine at best, from its work and the machine's measured ceilings.

A pass can be no faster than its FLOPs at the fastest matrix product, nor than its bytes at the fastest memory copy;
the slower of the two decides. Algorithms that need fewer operations (Winograd, FFT) and data that stays in a cache can
beat it, so a share above 1 is shown as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from deepstone.absent import Absent
from deepstone.graph.cost import LayerWork, Work
from deepstone.measure.statistics import Quantity

Limit: TypeAlias = Literal["compute", "memory"]

REMEDY = "run `deepstone doctor --peaks` first"

# The matrix product that a precision's layers run on.
_PRODUCT = {"bf16-mixed": "bf16", "fp16-mixed": "fp16"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Peaks:
    """The ceilings of one device: what its matrix products and copies reach at best."""

    device: str
    threads: int  # 0 where the device is no CPU
    flops_per_s: Mapping[str, Quantity]  # by precision of the product: fp32, tf32, bf16, fp16, fp64
    bytes_per_s: Quantity | Absent  # of a copy: bytes read and bytes written
    measured_with: str
    measured_at: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """The least time the two passes of a layer can take, and what decides most of it."""

    forward_s: float
    backward_s: float
    by: Limit

    def share(self, *, forward_s: float, backward_s: float = 0.0) -> float | Absent:
        """How much of what is possible was reached, given what the passes took: bound over measured."""
        least_s = self.forward_s + self.backward_s
        taken_s = forward_s + backward_s
        if not least_s or taken_s <= 0:
            return Absent("the layer took no time that could be compared")
        return least_s / taken_s

    def to_json(self, share: float | Absent) -> dict[str, Any]:
        shown = share.to_json() if isinstance(share, Absent) else share
        return {"forward_s": self.forward_s, "backward_s": self.backward_s, "by": self.by, "share": shown}


def bound(work: LayerWork, peaks: Peaks, precision: str) -> Bound | Absent:
    """The bound of one layer's work in one step; `precision` is the effective one (fp32, tf32-conv, bf16-mixed …)."""
    product = product_precision(precision, work.op)
    peak_flops_per_s = 0.0
    if work.forward.flops or work.backward.flops:
        if product not in peaks.flops_per_s:
            return Absent(f"the {product} matrix product of {peaks.device} has not been measured; {REMEDY}")
        peak_flops_per_s = peaks.flops_per_s[product].median
    if isinstance(peaks.bytes_per_s, Absent):
        return peaks.bytes_per_s
    peak_bytes_per_s = peaks.bytes_per_s.median
    forward_s, forward_by = _pass_bound(work.forward, peak_flops_per_s, peak_bytes_per_s)
    backward_s, backward_by = _pass_bound(work.backward, peak_flops_per_s, peak_bytes_per_s)
    if forward_s + backward_s == 0:
        return Absent("the layer has nothing to compute or to move")
    return Bound(forward_s=forward_s, backward_s=backward_s, by=forward_by if forward_s >= backward_s else backward_by)


def _pass_bound(work: Work, peak_flops_per_s: float, peak_bytes_per_s: float) -> tuple[float, Limit]:
    compute_s = work.flops / peak_flops_per_s if work.flops else 0.0
    memory_s = work.bytes / peak_bytes_per_s
    return (compute_s, "compute") if compute_s >= memory_s else (memory_s, "memory")


def product_precision(precision: str, op: str = "conv") -> str:
    """Whose ceiling holds for an operation's products in an effective precision."""
    if precision == "tf32-conv":
        return "tf32" if op == "conv" else "fp32"
    return _PRODUCT.get(precision, precision)
