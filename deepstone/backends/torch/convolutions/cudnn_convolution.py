"""One pass of one convolution as cuDNN is told of it: descriptors, workspace sizes, the heuristic's pick, the call."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from ctypes import c_int, c_size_t, c_void_p

import torch
from torch import Tensor

from deepstone.algorithms.problem import Pass
from deepstone.backends.torch.convolutions import cudnn_numbers as numbers
from deepstone.backends.torch.convolutions.cudnn_library import AlgorithmGuess, Cudnn
from deepstone.backends.torch.convolutions.operands import Operands

_FUNCTION: dict[Pass, str] = {"forward": "Forward", "data": "BackwardData", "weight": "BackwardFilter"}
_TYPES = {
    torch.float32: numbers.FLOAT,
    torch.float64: numbers.DOUBLE,
    torch.float16: numbers.HALF,
    torch.bfloat16: numbers.BFLOAT16,
}


class CudnnConvolution:
    """Operands, their descriptors, and an array for the result. What was created is destroyed with it."""

    def __init__(self, cudnn: Cudnn, handle: c_void_p, operands: Operands, direction: Pass, precision: str) -> None:
        self._cudnn = cudnn
        self._handle = handle
        self._direction: Pass = direction
        self._operands = operands  # kept alive: cuDNN knows addresses only
        self.result = operands.result(direction)
        self._convolution = self._described_convolution(operands, precision)
        images = self._described_images(operands.images)
        weight = self._described_weight(operands.weight)
        output = self._described_images(operands.upstream)
        # In the order in which cuDNN's functions take them: two operands, then the result.
        self._descriptors, self._data = {
            "forward": ((images, weight, output), (operands.images, operands.weight)),
            "data": ((weight, output, images), (operands.weight, operands.upstream)),
            "weight": ((images, output, weight), (operands.images, operands.upstream)),
        }[direction]
        scalar = ctypes.c_double if operands.images.dtype == torch.float64 else ctypes.c_float
        self._one, self._zero = scalar(1.0), scalar(0.0)

    def _create(self, kind: str) -> c_void_p:
        made = self._cudnn.create(kind)
        # Not at exit, when CUDA itself may be gone already.
        weakref.finalize(self, self._cudnn.call, f"cudnnDestroy{kind}", made).atexit = False
        return made

    def _described_images(self, tensor: Tensor) -> c_void_p:
        made = self._create("TensorDescriptor")
        sizes_and_strides = (*tensor.shape, *tensor.stride())
        self._cudnn.call("cudnnSetTensor4dDescriptorEx", made, _TYPES[tensor.dtype], *sizes_and_strides)
        return made

    def _described_weight(self, tensor: Tensor) -> c_void_p:
        made = self._create("FilterDescriptor")
        format_ = numbers.NCHW if tensor.is_contiguous() else numbers.NHWC
        self._cudnn.call("cudnnSetFilter4dDescriptor", made, _TYPES[tensor.dtype], format_, *tensor.shape)
        return made

    def _described_convolution(self, operands: Operands, precision: str) -> c_void_p:
        problem = operands.problem
        made = self._create("ConvolutionDescriptor")
        wide = numbers.DOUBLE if operands.images.dtype == torch.float64 else numbers.FLOAT
        geometry = (problem.pad[0], problem.pad[2], *problem.stride, *problem.dilation)
        self._cudnn.call("cudnnSetConvolution2dDescriptor", made, *geometry, numbers.CROSS_CORRELATION, wide)
        self._cudnn.call("cudnnSetConvolutionGroupCount", made, problem.groups)
        self._cudnn.call("cudnnSetConvolutionMathType", made, numbers.math_type(precision))
        return made

    @property
    def _described(self) -> tuple[c_void_p, ...]:
        first, second, result = self._descriptors
        return self._handle, first, second, self._convolution, result

    def picked(self) -> str:
        """What cuDNN's heuristic puts first among what it can do; raises CudnnError."""
        names = numbers.ALGORITHMS[self._direction]
        guesses = (AlgorithmGuess * (2 * len(names)))()  # an algorithm may be listed once for each way to multiply
        given = c_int()
        name = f"cudnnGetConvolution{_FUNCTION[self._direction]}Algorithm_v7"
        self._cudnn.call(name, *self._described, len(guesses), ctypes.byref(given), guesses)
        able = [guess for guess in guesses[: given.value] if guess.status == numbers.SUCCESS]
        return names[able[0].algorithm] if able else ""

    def workspace_bytes(self, algorithm: str) -> int:
        """Raises CudnnError where cuDNN has no such algorithm for this convolution."""
        size = c_size_t()
        name = f"cudnnGetConvolution{_FUNCTION[self._direction]}WorkspaceSize"
        self._cudnn.call(name, *self._described, self._number(algorithm), ctypes.byref(size))
        return size.value

    def program(self, algorithm: str, workspace: Callable[[], Tensor], workspace_bytes: int) -> Callable[[], None]:
        """Enqueues one run. `workspace` gives the array, which may be moved between runs to make room for a larger."""
        call, name = self._cudnn.call, f"cudnnConvolution{_FUNCTION[self._direction]}"
        first, second, result = self._descriptors
        (one, two), out = self._data, self.result.data_ptr()
        before = (self._handle, ctypes.addressof(self._one), first, one.data_ptr(), second, two.data_ptr())
        number, size = self._number(algorithm), c_size_t(workspace_bytes)
        after = (ctypes.addressof(self._zero), result, out)
        kept_alive = self

        def run() -> None:
            call(name, *before, kept_alive._convolution, number, workspace().data_ptr(), size, *after)

        return run

    def _number(self, algorithm: str) -> int:
        return numbers.ALGORITHMS[self._direction].index(algorithm)
