"""Watches the first step: the number type and memory order of activations, and oneDNN's own log of what it ran."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from deepstone.backends.torch.primitives import executed
from deepstone.setups.axes import ISA_ORDER


@dataclass(kw_only=True, slots=True)
class Sighting:
    """What was seen of one convolution's (or, without any, one dense layer's) output, and of oneDNN."""

    dtype: torch.dtype | None = None
    channels_last: bool | None = None
    primitives: dict[str, list[str]] = field(default_factory=dict[str, list[str]])  # operation -> implementations
    onednn_log: str = ""


@contextmanager
def watching(modules: Iterable[nn.Module], *, hooks: bool, onednn: bool) -> Generator[Sighting, None, None]:
    """Fill a Sighting from the steps run inside. `hooks` off: compiled code would be compiled again because of them."""
    sighting = Sighting()
    handle = _hook(modules, sighting) if hooks else None
    try:
        if onednn:
            with _stdout_to_file() as log, torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
                yield sighting
            sighting.onednn_log = log[0]
            sighting.primitives = parse_onednn_log(log[0])
        else:
            yield sighting
    finally:
        if handle is not None:
            handle.remove()


def _hook(modules: Iterable[nn.Module], sighting: Sighting) -> Any:
    candidates = list(modules)
    convolutions = [m for m in candidates if isinstance(m, nn.Conv2d) and m.in_channels > 4]
    watched = next(
        iter(
            convolutions
            or [m for m in candidates if isinstance(m, nn.Conv2d)]
            or [m for m in candidates if isinstance(m, nn.Linear)]
        ),
        None,
    )
    if watched is None:
        return None

    def see(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
        sighting.dtype = output.dtype
        if output.dim() == 4 and output.shape[1] > 1 and output.shape[2] * output.shape[3] > 1:
            sighting.channels_last = (
                output.is_contiguous(memory_format=torch.channels_last) and not output.is_contiguous()
            )

    return watched.register_forward_hook(see)


@contextmanager
def _stdout_to_file() -> Generator[list[str], None, None]:
    """oneDNN logs to the C library's stdout, so the descriptor itself is turned to a file."""
    text: list[str] = []
    saved = os.dup(1)
    with tempfile.TemporaryFile() as log:
        try:
            os.dup2(log.fileno(), 1)
            yield text
        finally:
            _flush_c_stdout()
            os.dup2(saved, 1)
            os.close(saved)
        log.seek(0)
        text.append(log.read().decode(errors="replace"))


def _flush_c_stdout() -> None:
    import ctypes

    ctypes.CDLL(None).fflush(None)


def parse_onednn_log(log: str) -> dict[str, list[str]]:
    """Which implementations ran, per kind of operation; reorders left out."""
    found: dict[str, set[str]] = {}
    for line in executed(log):
        if line.operation != "reorder":
            found.setdefault(line.operation, set()).add(line.implementation)
    return {operation: sorted(names) for operation, names in sorted(found.items())}


def widest_isa(primitives: dict[str, list[str]]) -> str | None:
    """The widest instruction set among implementation names such as `brgconv:avx512_core` or `a:avx2+b:avx512_core`."""
    names = [part for names in primitives.values() for name in names for part in re.split("[:+]", name)]
    known = [name for name in names if name in ISA_ORDER]
    return max(known, key=ISA_ORDER.index, default=None)
