"""Reads back what was done: programs as JAX gave them to XLA and as XLA gave them back, and the process's threads."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The names that XLA gives the threads of its CPU client's pool.
_POOL_THREADS = ("tf_XLAEigen",)

_CONVOLUTION = re.compile(
    r"stablehlo\.convolution\(.*?dim_numbers = \[(?P<order>[^\]]*)\].*?-> tensor<(?:\d+x)*(?P<type>\w+)>"
)
_PRODUCT = re.compile(r"stablehlo\.dot_general .*?-> tensor<(?:\d+x)*(?P<type>\w+)>")
_PRECISION_OF = {"f32": "fp32", "bf16": "bf16", "f16": "fp16", "f64": "fp64"}
_ORDER_OF = {"b, 0, 1, f": "nhwc", "b, f, 0, 1": "nchw"}

_COMPILED_CONVOLUTION = re.compile(r"dim_labels=(\S+?)(?:,|\s|$)")
_LIBRARY_FUSION = re.compile(r'"fusion_config":\{"kind":"(__\w+)"')
_CUSTOM_CALL = re.compile(r'custom_call_target="([^"]+)"')


@dataclass(frozen=True, kw_only=True, slots=True)
class Sighting:
    """What the program says of its first convolution or, without any, its first matrix product. None: it has none."""

    layout: str | None
    number_type: str | None


def seen_in(lowered: Iterable[str]) -> Sighting:
    """From the texts of lowered programs, in StableHLO; the first that has something to say counts."""
    product = None
    for text in lowered:
        convolution = _CONVOLUTION.search(text)
        if convolution is not None:
            order, kind = _ORDER_OF.get(convolution["order"]), _PRECISION_OF.get(convolution["type"])
            return Sighting(layout=order, number_type=kind)
        product = product or _PRODUCT.search(text)
    return Sighting(layout=None, number_type=None if product is None else _PRECISION_OF.get(product["type"]))


def made_by_xla(compiled: Iterable[str]) -> dict[str, dict[str, int]]:
    """From the texts of compiled programs: how often they use which library, and how convolutions lie in memory.

    On the CPU, a fusion of the kind `__ynn_fusion` runs in YNNPACK and `__onednn_fusion` in oneDNN, and what is left
    of convolutions and matrix products in Eigen. On a GPU, calls of `__cudnn$…` and `__cublas$…` run in these.
    """
    fusions, calls, convolutions = Counter[str](), Counter[str](), Counter[str]()
    for text in compiled:
        fusions.update(_LIBRARY_FUSION.findall(text))
        calls.update(_CUSTOM_CALL.findall(text))
        convolutions.update(_COMPILED_CONVOLUTION.findall(text))
    return {"library_fusions": dict(fusions), "custom_calls": dict(calls), "convolutions": dict(convolutions)}


def temporary_bytes(program: Any) -> int:
    """What a compiled program needs beside its inputs and outputs; 0 where XLA does not say."""
    memory = program.memory_analysis()
    return 0 if memory is None else int(memory.temp_size_in_bytes)


def pool_threads() -> int:
    """How many threads XLA's CPU client has for the work of operations."""
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return sum(name.startswith(_POOL_THREADS) for name in names)
