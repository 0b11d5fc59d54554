"""Every algorithm of cuDNN on one pass of one convolution."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from deepstone.absent import Absent, as_json
from deepstone.algorithms.accuracy import relative_error
from deepstone.algorithms.problem import Pass
from deepstone.backends.base import ConvolutionTrial, Missing, Unsupported
from deepstone.backends.torch.convolutions import cudnn_numbers as numbers
from deepstone.backends.torch.convolutions.cudnn_convolution import CudnnConvolution
from deepstone.backends.torch.convolutions.cudnn_library import Cudnn, CudnnError, load_cudnn, major_version
from deepstone.backends.torch.convolutions.operands import ERROR_SAMPLES, Operands
from deepstone.backends.torch.values import to_numpy
from deepstone.units import bytes_


class Handle:
    """cuDNN and a handle of it on a stream; one for the life of a worker."""

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
    """All parts of it: torch loads them when it first convolves, and knows where its own lie."""
    one = torch.ones(1, 1, 3, 3, device="cuda")
    torch.nn.functional.conv2d(one, one)
    torch.cuda.synchronize()


class GpuTrial:
    """`free_bytes` tells how much memory a workspace may take; `wait` waits for the device."""

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
        """Learnt from a run on a few samples, so that the exact result is cheap."""
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
    """What torch could still allocate: what the device has free, once torch's own cache is handed back."""
    torch.cuda.empty_cache()
    free_bytes, _ = torch.cuda.mem_get_info()
    return int(0.95 * free_bytes)
