"""Convolution algorithms by the four kinds that kim2017 compares, and what a network takes that keeps to one kind.

Two algorithms are comparable only if they compute alike: a product in TF32, and Winograd on large filters, have an
error a thousand times that of fp32. So only those whose measured error is small enough are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from deepstone.algorithms.problem import Pass
from deepstone.measure.statistics import Quantity
from deepstone.papers.arithmetic import total
from deepstone.papers.lab import Lab, Timing

GEMM: Final = "GEMM"
DIRECT: Final = "direct"
FFT: Final = "FFT"
WINOGRAD: Final = "Winograd"
FAMILIES: Final = (GEMM, DIRECT, FFT, WINOGRAD)

_DIRECT_NAMES: Final = ("oneDNN", "DIRECT")  # torch asks oneDNN for direct convolution
LARGEST_ERROR: Final = 1e-4  # plain fp32 stays below it, TF32 and Winograd on 5x5 do not


@dataclass(frozen=True, kw_only=True, slots=True)
class Uniform:
    """All given passes done by one family; where it cannot, by the fastest GEMM, as the frameworks of the paper did."""

    family: str
    time_s: Quantity
    own: int  # passes that the family did itself


def family_of(timing: Timing) -> str:
    if timing.algorithm in _DIRECT_NAMES:
        return DIRECT
    if timing.formula.startswith("fft"):
        return FFT
    return WINOGRAD if timing.formula.startswith("winograd") else GEMM


def alike(timings: Iterable[Timing], largest_error: float = LARGEST_ERROR) -> list[Timing]:
    return [timing for timing in timings if timing.error is None or timing.error <= largest_error]


def fastest(timings: Sequence[Timing], family: str | None = None) -> Timing | None:
    own = [timing for timing in timings if family in (None, family_of(timing))]
    return min(own, key=lambda timing: timing.time_s.median, default=None)


def timed_cases(lab: Lab) -> list[tuple[str, Pass]]:
    """The passes of a training step in which something was timed that computes alike."""
    return [case for case in lab.cases() if alike(lab.of(*case))]


def missing_cases(lab: Lab) -> list[tuple[str, Pass]]:
    timed = timed_cases(lab)
    return [case for case in lab.cases() if case not in timed]


def uniform(
    lab: Lab, family: str, cases: Iterable[tuple[str, Pass]], largest_error: float = LARGEST_ERROR
) -> Uniform | None:
    """None where a pass has neither the family nor a GEMM, or the family does none of them."""
    times: list[Quantity] = []
    own = 0
    for case in cases:
        timings = alike(lab.of(*case), largest_error)
        chosen = fastest(timings, family)
        own += chosen is not None
        chosen = chosen or fastest(timings, GEMM)
        if chosen is None:
            return None
        times.append(chosen.time_s)
    return Uniform(family=family, time_s=total(times), own=own) if own else None


def best_mix(lab: Lab, cases: Iterable[tuple[str, Pass]]) -> Quantity:
    """Each pass by the fastest of all that compute alike."""
    chosen = [fastest(alike(lab.of(*case))) for case in cases]
    return total([timing.time_s for timing in chosen if timing is not None])


def passes_in_words(cases: Sequence[tuple[str, Pass]]) -> str:
    """As in conv2 (forward, data, weight), conv3 (forward)."""
    layers: dict[str, list[str]] = {}
    for layer, direction in cases:
        layers.setdefault(layer, []).append(direction)
    return ", ".join(f"{layer} ({', '.join(directions)})" for layer, directions in layers.items())
