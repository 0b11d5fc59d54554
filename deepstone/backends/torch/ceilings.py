"""Programs that use one resource of a device up to its ceiling: a matrix product, a copy, a transfer to a peer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from deepstone.backends.base import Unsupported

_TYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
}


def ceiling_program(wanted: Mapping[str, Any], device: torch.device) -> Callable[[], None]:
    match wanted["kind"]:
        case "product":
            return _product(str(wanted["precision"]), int(wanted["size"]), device)
        case "copy":
            return _copy(int(wanted["bytes"]), device, device)
        case "link":
            peer = int(wanted["peer"])
            if peer >= torch.cuda.device_count():
                raise Unsupported(f"torch sees {torch.cuda.device_count()} GPU(s), so there is no gpu:{peer}")
            return _copy(int(wanted["bytes"]), device, torch.device("cuda", peer))
        case kind:
            raise Unsupported(f"torch backend: no ceiling of the kind {kind!r}")


def _product(precision: str, size: int, device: torch.device) -> Callable[[], None]:
    if device.type == "cuda":
        torch.backends.cuda.matmul.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    a = torch.randn((size, size), device=device).to(_TYPES[precision])
    b = torch.randn((size, size), device=device).to(_TYPES[precision])
    into = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=into)  # pyright: ignore[reportReturnType]


def _copy(size_bytes: int, source: torch.device, target: torch.device) -> Callable[[], None]:
    """Return the copy. It writes to all pages first, because the kernel allocates memory only on a write."""
    values = torch.ones(size_bytes // 4, device=source)
    into = torch.zeros(size_bytes // 4, device=target)
    return lambda: into.copy_(values, non_blocking=True)  # pyright: ignore[reportReturnType]
