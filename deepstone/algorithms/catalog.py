"""The algorithms by name: whether each can compute a convolution, its cost, and its NumPy implementation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

from numpy.typing import NDArray

from deepstone.algorithms import direct, transform_domain
from deepstone.algorithms.fourier import of_tiles, of_whole_images
from deepstone.algorithms.problem import Operations, Pass, Problem
from deepstone.algorithms.transform_domain import Transform
from deepstone.algorithms.winograd import Winograd

Array: TypeAlias = NDArray[Any]


class Algorithm(ABC):
    """One way to compute all three passes. Arrays are (batch, channels, height, width), of any precision."""

    @abstractmethod
    def refusal(self, problem: Problem) -> str:
        """Return why it cannot compute this, or an empty text."""

    @abstractmethod
    def compute(self, problem: Problem, direction: Pass, images: Array, weight: Array, upstream: Array) -> Array:
        """Return the output, the gradient of the images or the gradient of the weight."""

    @abstractmethod
    def operations(self, problem: Problem, direction: Pass) -> Operations: ...

    @abstractmethod
    def workspace_values(self, problem: Problem, direction: Pass) -> int:
        """Return how many real numbers it needs in addition to its operands."""


class Direct(Algorithm):
    def refusal(self, problem: Problem) -> str:
        return ""

    def compute(self, problem: Problem, direction: Pass, images: Array, weight: Array, upstream: Array) -> Array:
        match direction:
            case "forward":
                return direct.forward(problem, images, weight)
            case "data":
                return direct.data_gradient(problem, weight, upstream)
            case "weight":
                return direct.weight_gradient(problem, images, upstream)

    def operations(self, problem: Problem, direction: Pass) -> Operations:
        return Operations(products=2 * problem.multiply_adds, transforms=0)

    def workspace_values(self, problem: Problem, direction: Pass) -> int:
        return 0


class ByTransform(Algorithm):
    """`choose` returns the transform for a problem; the data gradient is a convolution too."""

    def __init__(self, choose: Callable[[Problem], Transform], *, largest_kernel: int = 0, kernel: int = 0) -> None:
        self._choose = choose
        self._largest_kernel = largest_kernel  # 0: no limit
        self._kernel = kernel  # the only one it can do, if not 0

    def refusal(self, problem: Problem) -> str:
        kernel = f"{problem.kernel[0]}x{problem.kernel[1]}"
        if problem.stride != (1, 1):
            stride = f"{problem.stride[0]}x{problem.stride[1]}"
            return f"stride {stride}: a transform gives every position of the output, and most are not wanted"
        if problem.dilation != (1, 1):
            return f"dilation {problem.dilation[0]}x{problem.dilation[1]}: the kernel has holes"
        if self._kernel and problem.kernel != (self._kernel, self._kernel):
            return f"kernel {kernel}: this transform is for {self._kernel}x{self._kernel}"
        if self._largest_kernel and max(problem.kernel) > self._largest_kernel:
            return f"kernel {kernel}: a tile has room for {self._largest_kernel}x{self._largest_kernel} at most"
        return ""

    def compute(self, problem: Problem, direction: Pass, images: Array, weight: Array, upstream: Array) -> Array:
        transform = self._transform(problem, direction)
        match direction:
            case "forward":
                return transform_domain.forward(transform, problem, images, weight)
            case "data":
                return transform_domain.data_gradient(transform, problem, weight, upstream)
            case "weight":
                return transform_domain.weight_gradient(transform, problem, images, upstream)

    def operations(self, problem: Problem, direction: Pass) -> Operations:
        return transform_domain.operations(self._transform(problem, direction), problem, direction)

    def workspace_values(self, problem: Problem, direction: Pass) -> int:
        return transform_domain.workspace_values(self._transform(problem, direction), problem, direction)

    def _transform(self, problem: Problem, direction: Pass) -> Transform:
        return self._choose(problem.data_gradient() if direction == "data" else problem)


def _tiled_fft(tile: int) -> ByTransform:
    return ByTransform(partial(of_tiles, tile=tile), largest_kernel=tile)


def _winograd(output: int) -> ByTransform:
    return ByTransform(lambda _: Winograd(output, 3), kernel=3)


DIRECT, FFT, FFT_TILED, WINOGRAD_2, WINOGRAD_4 = "direct", "fft", "fft-tiled", "winograd-2x2", "winograd-4x4"
WINOGRAD_6, FFT_8, FFT_16 = "winograd-6x6", "fft-8x8", "fft-16x16"  # those of NNPACK

REFERENCES = (DIRECT, FFT, FFT_TILED, WINOGRAD_2, WINOGRAD_4)

ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType(
    {
        DIRECT: Direct(),
        FFT: ByTransform(of_whole_images),
        FFT_TILED: _tiled_fft(32),  # the size of tile that cuDNN's has
        FFT_8: _tiled_fft(8),
        FFT_16: _tiled_fft(16),
        WINOGRAD_2: _winograd(2),
        WINOGRAD_4: _winograd(4),
        WINOGRAD_6: _winograd(6),
    }
)
