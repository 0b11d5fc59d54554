"""Every algorithm of cuDNN on one pass of one convolution: descriptors, workspace sizes, the heuristic's pick, runs."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from ctypes import c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from deepstone.absent import Absent, as_json
from deepstone.algorithms.problem import Pass, relative_error
from deepstone.backends.base import ConvolutionTrial, Missing, Unsupported
from deepstone.backends.torch.arrays import to_numpy
from deepstone.backends.torch.convolutions import cudnn as numbers
from deepstone.backends.torch.convolutions.cudnn import AlgorithmGuess, Cudnn, CudnnError, load_cudnn, major_version
from deepstone.backends.torch.convolutions.operands import ERROR_SAMPLES, Operands
from deepstone.units import bytes_

_FUNCTION: dict[Pass, str] = {"forward": "Forward", "data": "BackwardData", "weight": "BackwardFilter"}
_TYPES = {
    torch.float32: numbers.FLOAT,
    torch.float64: numbers.DOUBLE,
    torch.float16: numbers.HALF,
    torch.bfloat16: numbers.BFLOAT16,
}


class Handle:
    """cuDNN and one of its handles on a stream; one for the life of a worker."""

    def __init__(self, cudnn: Cudnn, stream: int) -> None:
        self.cudnn = cudnn
        self.pointer = cudnn.create("")
        cudnn.call("cudnnSetStream", self.pointer, stream)


def open_cudnn() -> Handle:
    version = torch.backends.cudnn.version()
    if version is None:
        raise Missing("this torch is built without cuDNN; install a CUDA build of torch")
    _have_torch_load_cudnn()
    cudnn = load_cudnn(major_version(version), Path(torch.__file__).parent)
    if cudnn is None:
        raise Missing(f"torch uses cuDNN {version}, but libcudnn.so.{major_version(version)} is not found beside it")
    return Handle(cudnn, torch.cuda.current_stream().cuda_stream)


def _have_torch_load_cudnn() -> None:
    """Have torch load all parts of cuDNN: it loads them at its first convolution, from its own folder."""
    one = torch.ones(1, 1, 3, 3, device="cuda")
    torch.nn.functional.conv2d(one, one)
    torch.cuda.synchronize()


class CudnnConvolution:
    """Operands, their descriptors, and an array for the result. It destroys what it created."""

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
        """Return the first supported algorithm of cuDNN's heuristic. Raises CudnnError."""
        names = numbers.ALGORITHMS[self._direction]
        guesses = (AlgorithmGuess * (2 * len(names)))()  # an algorithm may be listed once for each way to multiply
        given = c_int()
        name = f"cudnnGetConvolution{_FUNCTION[self._direction]}Algorithm_v7"
        self._cudnn.call(name, *self._described, len(guesses), ctypes.byref(given), guesses)
        able = [guess for guess in guesses[: given.value] if guess.status == numbers.SUCCESS]
        return names[able[0].algorithm] if able else ""

    def workspace_bytes(self, algorithm: str) -> int:
        """Return the size of the workspace. Raises CudnnError if cuDNN lacks this algorithm for this convolution."""
        size = c_size_t()
        name = f"cudnnGetConvolution{_FUNCTION[self._direction]}WorkspaceSize"
        self._cudnn.call(name, *self._described, self._number(algorithm), ctypes.byref(size))
        return size.value

    def program(self, algorithm: str, workspace: Callable[[], Tensor], workspace_bytes: int) -> Callable[[], None]:
        """Return a program that enqueues one run. `workspace` returns the array, which may move between runs."""
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


class GpuTrial:
    """One pass of one convolution. `free_bytes` returns the memory for a workspace; `wait` waits for the device."""

    def __init__(
        self,
        handle: Handle,
        operands: Operands,
        direction: Pass,
        precision: str,
        *,
        free_bytes: Callable[[], int],
        wait: Callable[[], None],
    ) -> None:
        self._direction: Pass = direction
        self._few = operands.first(ERROR_SAMPLES)
        self._free_bytes = free_bytes
        self._wait = wait
        self._whole = CudnnConvolution(handle.cudnn, handle.pointer, operands, direction, precision)
        self._part = CudnnConvolution(handle.cudnn, handle.pointer, self._few, direction, precision)
        self._exact: Any = None
        # All algorithms share one: they run one after the other, and together theirs may not fit.
        self._workspace = torch.empty(0, dtype=torch.uint8, device=operands.images.device)

    def trial(self, setup: dict[str, Any], timing: Any) -> ConvolutionTrial:
        names = numbers.ALGORITHMS[self._direction]
        formulas = [[name, numbers.formula_of(name)] for name in names]
        return ConvolutionTrial(
            {**setup, "algorithms": formulas, "picked": as_json(self._picked())}, self._attempt, timing
        )

    def _picked(self) -> str | Absent:
        try:
            return self._whole.picked() or Absent("cuDNN's heuristic finds no algorithm for this convolution")
        except CudnnError as error:
            return Absent(f"cuDNN's heuristic does not answer: {error}")

    def _attempt(self, name: str) -> tuple[Callable[[], None], dict[str, Any]]:
        try:
            workspace_bytes = self._whole.workspace_bytes(name)
            self._make_room(workspace_bytes)
            program = self._whole.program(name, self._its_workspace, workspace_bytes)
            program()
            self._wait()
        except CudnnError as error:
            raise Unsupported(str(error)) from error
        return program, {"workspace_bytes": workspace_bytes, "relative_error": as_json(self._error(name))}

    def _its_workspace(self) -> Tensor:
        return self._workspace

    def _make_room(self, workspace_bytes: int) -> None:
        if workspace_bytes <= self._workspace.numel():
            return
        device = self._workspace.device
        self._workspace = torch.empty(0, dtype=torch.uint8, device=device)
        free_bytes = self._free_bytes()
        if workspace_bytes > free_bytes:
            raise Unsupported(f"needs a workspace of {bytes_(workspace_bytes)}, and {bytes_(free_bytes)} are free")
        self._workspace = torch.empty(workspace_bytes, dtype=torch.uint8, device=device)

    def _error(self, name: str) -> float | Absent:
        """Return the error, from a run on a few samples, so that the exact result is cheap."""
        try:
            workspace_bytes = self._part.workspace_bytes(name)
            self._make_room(workspace_bytes)
            self._part.result.zero_()
            self._part.program(name, self._its_workspace, workspace_bytes)()
            self._wait()
        except CudnnError as error:
            return Absent(f"not with {self._few.problem.batch} samples: {error}")
        except Unsupported as error:
            return Absent(str(error))
        if self._exact is None:
            self._exact = self._few.exact(self._direction)
        return relative_error(to_numpy(self._part.result), self._exact)


def free_device_bytes() -> int:
    """Return the memory that torch could still allocate: the device's free memory and torch's own cache."""
    torch.cuda.empty_cache()
    free_bytes, _ = torch.cuda.mem_get_info()
    return int(0.95 * free_bytes)
