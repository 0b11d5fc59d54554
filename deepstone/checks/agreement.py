"""How far two arrays are apart, and how far they may be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepstone.graph.ops import Conv, Dense, Op

# Relative errors of one layer on given inputs, by the precision it ran in: a few times what rounding alone gives.
_TOLERANCE = {"fp64": 1e-11, "fp32": 1e-5, "fp16-mixed": 2e-3, "bf16-mixed": 1e-2, "bf16": 1e-2}

# TF32 is a format of products alone. And in full fp32 a GPU's library may convolve by transforms (Winograd, FFT),
# which round more: torch and JAX on an H200 are off by the same 2e-4 in a 5x5 convolution's weight gradient.
_PRODUCT_IN_TF32 = 2e-3
_IN_TF32: dict[str, tuple[type[Op], ...]] = {"tf32": (Conv, Dense), "tf32-conv": (Conv,)}
_CONVOLUTION_ON_GPU = 1e-3


def layer_tolerance(precision: str, *, on_gpu: bool = False, op: Op | None = None) -> float:
    """How far an array of one layer may be off; without an operation, of one that multiplies."""
    if precision in _IN_TF32 and (op is None or isinstance(op, _IN_TF32[precision])):
        return _PRODUCT_IN_TF32
    if precision in ("fp32", *_IN_TF32) and on_gpu and (op is None or isinstance(op, Conv)):
        return _CONVOLUTION_ON_GPU
    return _TOLERANCE.get(precision, _TOLERANCE["fp32"])


def relative_error(given: NDArray[Any] | None, expected: NDArray[Any], *, floor: float = 0.0) -> float:
    """‖given - expected‖ / ‖expected‖, the denominator at least `floor`. What is not there counts as zeros."""
    wanted = np.asarray(expected, dtype=np.float64)
    if given is None:
        difference = wanted
    elif given.shape != wanted.shape:
        return math.inf
    else:
        difference = given - wanted
    distance, scale = norm(difference), max(norm(wanted), floor)
    if not math.isfinite(distance):
        return math.inf
    return distance / scale if scale > 0 else (0.0 if distance == 0 else math.inf)


def norm(array: NDArray[Any]) -> float:
    """The Euclidean norm, also of numbers whose squares are too small or too large to be held."""
    values = np.asarray(array, dtype=np.float64).ravel()
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0 or not math.isfinite(largest):
        return largest
    return largest * float(np.linalg.norm(values / largest))
