"""The numbers by which cuDNN's C interface knows number types, modes and algorithms (cudnn_graph.h, cudnn_ops.h)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from deepstone.algorithms.catalog import DIRECT, FFT, FFT_TILED, WINOGRAD_2, WINOGRAD_4
from deepstone.algorithms.problem import Pass

SUCCESS: Final = 0

FLOAT, DOUBLE, HALF, BFLOAT16 = 0, 1, 2, 9  # cudnnDataType_t
NCHW, NHWC = 0, 1  # cudnnTensorFormat_t
CROSS_CORRELATION: Final = 1  # cudnnConvolutionMode_t
DEFAULT_MATH, TENSOR_OP_MATH, FMA_MATH = 0, 1, 3  # cudnnMathType_t

# By pass, in the order of cudnnConvolutionFwdAlgo_t, …BwdDataAlgo_t and …BwdFilterAlgo_t: the position is the number.
ALGORITHMS: Final[Mapping[Pass, tuple[str, ...]]] = {
    "forward": (
        "IMPLICIT_GEMM",
        "IMPLICIT_PRECOMP_GEMM",
        "GEMM",
        "DIRECT",
        "FFT",
        "FFT_TILING",
        "WINOGRAD",
        "WINOGRAD_NONFUSED",
    ),
    "data": ("ALGO_0", "ALGO_1", "FFT", "FFT_TILING", "WINOGRAD", "WINOGRAD_NONFUSED"),
    "weight": ("ALGO_0", "ALGO_1", "FFT", "ALGO_3", "WINOGRAD", "WINOGRAD_NONFUSED", "FFT_TILING"),
}

# By which formula operations are counted. NVIDIA does not publish its tiles; these are what is known of them.
_FORMULAS: Final = {
    "FFT": FFT,
    "FFT_TILING": FFT_TILED,
    "WINOGRAD": WINOGRAD_2,
    "WINOGRAD_NONFUSED": WINOGRAD_4,
}


def formula_of(algorithm: str) -> str:
    return _FORMULAS.get(algorithm, DIRECT)


def math_type(precision: str) -> int:
    """fp32 keeps to full precision; TF32 is what cuDNN's default allows; narrow formats use matrix units."""
    return {"fp32": FMA_MATH, "fp64": DEFAULT_MATH, "tf32": DEFAULT_MATH}.get(precision, TENSOR_OP_MATH)
