"""cuDNN's C interface through ctypes: where the library is, its functions with their arguments, numbers and errors.

Number types, modes and algorithms are known by numbers (cudnn_graph.h, cudnn_ops.h).
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any, Final

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


class AlgorithmGuess(ctypes.Structure):
    """cudnnConvolutionFwdAlgoPerf_t; those of the other passes have the same layout."""

    _fields_ = (
        ("algorithm", c_int),
        ("status", c_int),
        ("time_ms", c_float),
        ("memory_bytes", c_size_t),
        ("determinism", c_int),
        ("math_type", c_int),
        ("reserved", c_int * 3),
    )


_FOUR_INTS = (c_int,) * 4
_ARGUMENTS: Final[dict[str, tuple[type, ...]]] = {
    "cudnnCreate": (POINTER(c_void_p),),
    "cudnnDestroy": (c_void_p,),
    "cudnnSetStream": (c_void_p, c_void_p),
    "cudnnCreateTensorDescriptor": (POINTER(c_void_p),),
    "cudnnDestroyTensorDescriptor": (c_void_p,),
    # descriptor, type, sizes n c h w, strides n c h w
    "cudnnSetTensor4dDescriptorEx": (c_void_p, c_int, *_FOUR_INTS, *_FOUR_INTS),
    "cudnnCreateFilterDescriptor": (POINTER(c_void_p),),
    "cudnnDestroyFilterDescriptor": (c_void_p,),
    # descriptor, type, format, sizes k c h w
    "cudnnSetFilter4dDescriptor": (c_void_p, c_int, c_int, *_FOUR_INTS),
    "cudnnCreateConvolutionDescriptor": (POINTER(c_void_p),),
    "cudnnDestroyConvolutionDescriptor": (c_void_p,),
    # descriptor, pad h w, stride h w, dilation h w, mode, type to compute in
    "cudnnSetConvolution2dDescriptor": (c_void_p, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int),
    "cudnnSetConvolutionGroupCount": (c_void_p, c_int),
    "cudnnSetConvolutionMathType": (c_void_p, c_int),
}
_PASS_FUNCTIONS: Final = ("Forward", "BackwardData", "BackwardFilter")
for _name in _PASS_FUNCTIONS:
    # handle, descriptors of both operands, of the convolution, of the result, then what is asked
    _ARGUMENTS[f"cudnnGetConvolution{_name}Algorithm_v7"] = (
        *(c_void_p,) * 5,
        c_int,
        POINTER(c_int),
        POINTER(AlgorithmGuess),
    )
    _ARGUMENTS[f"cudnnGetConvolution{_name}WorkspaceSize"] = (*(c_void_p,) * 5, c_int, POINTER(c_size_t))
    # handle, alpha, operand, data, operand, data, convolution, algorithm, workspace, its size, beta, result, data
    _ARGUMENTS[f"cudnnConvolution{_name}"] = (*(c_void_p,) * 7, c_int, c_void_p, c_size_t, *(c_void_p,) * 3)


class CudnnError(Exception):
    """A call that cuDNN refused; the message is cuDNN's name of the reason."""


class Cudnn:
    """The library with declared types of its functions, so that no pointer is truncated."""

    def __init__(self, *libraries: ctypes.CDLL) -> None:
        """Take functions from the first library that has them. Raises AttributeError if none has one."""
        self._functions = {name: _function(libraries, name) for name in _ARGUMENTS}
        for name, function in self._functions.items():
            function.argtypes = _ARGUMENTS[name]
            function.restype = c_int
        self._describe = _function(libraries, "cudnnGetErrorString")
        self._describe.argtypes, self._describe.restype = (c_int,), c_char_p

    def call(self, name: str, *arguments: object) -> None:
        status = self._functions[name](*arguments)
        if status != SUCCESS:
            raise CudnnError(self.status_name(status))

    def status_name(self, status: int) -> str:
        return (self._describe(status) or b"").decode() or f"status {status}"

    def create(self, kind: str) -> c_void_p:
        """A new handle (kind "") or descriptor (kind "TensorDescriptor", …)."""
        made = c_void_p()
        self.call(f"cudnnCreate{kind}", ctypes.byref(made))
        return made


def load_cudnn(major: int, torch_folder: Path) -> Cudnn | None:
    """Load the cuDNN that torch has loaded, if its name leads to it; else one from the folder of torch's."""
    for name in _names(major, torch_folder):
        try:
            return Cudnn(ctypes.CDLL(name), *_parts(name))
        except (OSError, AttributeError):  # not there, or another library of that name
            continue
    return None


def _function(libraries: Sequence[ctypes.CDLL], name: str) -> Any:
    for library in libraries:
        with suppress(AttributeError):
            return library[name]
    raise AttributeError(name)


def _parts(name: str) -> Iterator[ctypes.CDLL]:
    """Return the libraries that cuDNN is split into, for a main one that does not export all of their functions."""
    for part in ("graph", "ops", "cnn"):
        with suppress(OSError):
            yield ctypes.CDLL(name.replace("libcudnn.", f"libcudnn_{part}."))


def _names(major: int, torch_folder: Path) -> Iterator[str]:
    file = f"libcudnn.so.{major}"
    # By its whole path, because its parts must come from the same folder: cuDNN refuses those of another version.
    yield from loaded_paths(file)
    yield file
    for folder in (torch_folder.parent / "nvidia" / "cudnn" / "lib", torch_folder / "lib"):
        yield str(folder / file)
    found = ctypes.util.find_library("cudnn")
    if found:
        yield found


def loaded_paths(file: str) -> list[str]:
    """Return the paths of the libraries of that name that this process has loaded."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return []
    paths = dict.fromkeys(line.split(maxsplit=5)[5] for line in maps.splitlines() if line.endswith(f"/{file}"))
    return list(paths)


def major_version(version: int) -> int:
    """Return the major version: 9 from 91900, 8 from 8902; the format changed with 9."""
    return version // 10000 if version >= 90000 else version // 1000


def formula_of(algorithm: str) -> str:
    return _FORMULAS.get(algorithm, DIRECT)


def math_type(precision: str) -> int:
    """Return the math type: fp32 means full precision; TF32 is cuDNN's default; narrow formats use matrix units."""
    return {"fp32": FMA_MATH, "fp64": DEFAULT_MATH, "tf32": DEFAULT_MATH}.get(precision, TENSOR_OP_MATH)
