"""The relative error between two arrays, and its tolerance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepstone.graph.ops import Conv, Dense, Op

# Tolerated relative errors of one layer on given inputs, by precision: a few times the rounding error.
_TOLERANCE = {"fp64": 1e-11, "fp32": 1e-5, "fp16-mixed": 2e-3, "bf16-mixed": 1e-2, "bf16": 1e-2}

# TF32 applies only to products. And in full fp32 a GPU's library may convolve by transforms (Winograd, FFT), which
# round more: torch and JAX on an H200 have the same error of 2e-4 in the weight gradient of a 5x5 convolution.
_PRODUCT_IN_TF32 = 2e-3
_IN_TF32: dict[str, tuple[type[Op], ...]] = {"tf32": (Conv, Dense), "tf32-conv": (Conv,)}
_CONVOLUTION_ON_GPU = 1e-3


def layer_tolerance(precision: str, *, on_gpu: bool = False, op: Op | None = None) -> float:
    """Return the tolerance for an array of one layer; without `op`, for a layer that multiplies."""
    if precision in _IN_TF32 and (op is None or isinstance(op, _IN_TF32[precision])):
        return _PRODUCT_IN_TF32
    if precision in ("fp32", *_IN_TF32) and on_gpu and (op is None or isinstance(op, Conv)):
        return _CONVOLUTION_ON_GPU
    return _TOLERANCE.get(precision, _TOLERANCE["fp32"])


def relative_error(given: NDArray[Any] | None, expected: NDArray[Any], *, floor: float = 0.0) -> float:
    """Return ‖given - expected‖ / ‖expected‖, the denominator at least `floor`. None counts as zeros."""
    reference = np.asarray(expected, dtype=np.float64)
    if given is None:
        difference = reference
    elif given.shape != reference.shape:
        return math.inf
    else:
        difference = given - reference
    distance, scale = norm(difference), max(norm(reference), floor)
    if not math.isfinite(distance):
        return math.inf
    return distance / scale if scale > 0 else (0.0 if distance == 0 else math.inf)


def norm(array: NDArray[Any]) -> float:
    """Return the Euclidean norm, also if squares of the numbers overflow or underflow."""
    values = np.asarray(array, dtype=np.float64).ravel()
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0 or not math.isfinite(largest):
        return largest
    return largest * float(np.linalg.norm(values / largest))
