"""The roofline: the shortest possible time of a layer on this machine, from its work and the measured ceilings.

A pass is at best as fast as its FLOPs at the fastest matrix product and its bytes at the fastest memory copy; the
slower of the two decides. Algorithms with fewer operations (Winograd, FFT) and data that stays in a cache can beat this
bound, so a share above 1 is not clipped.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from deepstone.absent import Absent
from deepstone.graph.cost import LayerWork, Work
from deepstone.results.layers import LayerBound, LayerPeaks

Limit: TypeAlias = Literal["compute", "memory"]

_NO_TIME = "the layer took no time that could be compared"
REMEDY = "run `deepstone doctor --peaks` first"

# The matrix product that a precision's layers run on.
_PRODUCT = {"bf16-mixed": "bf16", "fp16-mixed": "fp16"}


def bound(work: LayerWork, peaks: LayerPeaks, precision: str, *, taken_s: float) -> LayerBound | Absent:
    """Return the shortest possible time of a layer's passes in a step, what limits most of it, and the share of the
    bound that was reached. `taken_s` is the time of all passes; `precision` is the effective one (fp32, tf32-conv,
    bf16-mixed …)."""
    product = product_precision(precision, work.op)
    peak_flops_per_s = 0.0
    if work.forward.flops or work.backward.flops:
        if product not in peaks.flops_per_s:
            return Absent(f"the {product} matrix product of {peaks.device} has not been measured; {REMEDY}")
        peak_flops_per_s = peaks.flops_per_s[product].median
    copy = peaks.bytes_per_s["copy"]
    if isinstance(copy, Absent):
        return copy
    peak_bytes_per_s = copy.median
    forward_s, forward_by = _pass_bound(work.forward, peak_flops_per_s, peak_bytes_per_s)
    backward_s, backward_by = _pass_bound(work.backward, peak_flops_per_s, peak_bytes_per_s)
    if forward_s + backward_s == 0:
        return Absent("the layer has nothing to compute or to move")
    return LayerBound(
        forward_s=forward_s,
        backward_s=backward_s,
        by=forward_by if forward_s >= backward_s else backward_by,
        share=(forward_s + backward_s) / taken_s if taken_s > 0 else Absent(_NO_TIME),
    )


def _pass_bound(work: Work, peak_flops_per_s: float, peak_bytes_per_s: float) -> tuple[float, Limit]:
    compute_s = work.flops / peak_flops_per_s if work.flops else 0.0
    memory_s = work.bytes / peak_bytes_per_s
    return (compute_s, "compute") if compute_s >= memory_s else (memory_s, "memory")


def product_precision(precision: str, op: str = "conv") -> str:
    """Return the precision whose ceiling applies to an operation in an effective precision."""
    if precision == "tf32-conv":
        return "tf32" if op == "conv" else "fp32"
    return _PRODUCT.get(precision, precision)
