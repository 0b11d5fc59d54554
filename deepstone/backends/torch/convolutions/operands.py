"""The arrays of one convolution on the job's device, and its exact result in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepstone.algorithms.catalog import ALGORITHMS, DIRECT
from deepstone.algorithms.problem import Pass, Problem
from deepstone.backends.torch.arrays import to_numpy

ERROR_SAMPLES = 2  # of the batch, for the error


@dataclass(frozen=True, kw_only=True, slots=True)
class Operands:
    problem: Problem  # padded alike on opposite sides
    images: Tensor
    weight: Tensor
    upstream: Tensor

    @staticmethod
    def drawn(
        problem: Problem, weight: Tensor, *, device: torch.device, dtype: torch.dtype, channels_last: bool
    ) -> Operands:
        """Draw images and upstream gradient from N(0, 1). Unevenly padded images are padded beforehand."""
        even = evened(problem)
        memory_format = torch.channels_last if channels_last else torch.contiguous_format

        def placed(tensor: Tensor) -> Tensor:
            return tensor.to(device, dtype).contiguous(memory_format=memory_format)

        images = torch.randn((problem.batch, problem.channels, *problem.image), device=device)
        if even != problem:
            top, bottom, left, right = problem.pad
            images = torch.nn.functional.pad(images, (left, right, top, bottom))
        return Operands(
            problem=even,
            images=placed(images),
            weight=placed(weight),
            upstream=placed(torch.randn((problem.batch, problem.filters, *problem.output), device=device)),
        )

    def first(self, samples: int) -> Operands:
        count = min(samples, self.problem.batch)
        return replace(
            self,
            problem=self.problem.with_batch(count),
            images=self.images[:count],
            upstream=self.upstream[:count],
        )

    def result(self, direction: Pass) -> Tensor:
        """Return an array for the result of the pass, in the memory order of the other arrays."""
        like = {"forward": self.upstream, "data": self.images, "weight": self.weight}[direction]
        return torch.empty_like(like, memory_format=torch.preserve_format)

    def call(self, direction: Pass) -> Tensor:
        """Run the pass as torch's settings choose."""
        problem = self.problem
        padding = [problem.pad[0], problem.pad[2]]
        how = (problem.stride, padding, problem.dilation, False, [0, 0], problem.groups)
        if direction == "forward":
            return torch.ops.aten.convolution.default(self.images, self.weight, None, *how)
        wanted = [direction == "data", direction == "weight", False]
        gradients = torch.ops.aten.convolution_backward.default(
            self.upstream, self.images, self.weight, None, *how, wanted
        )
        return gradients[0 if direction == "data" else 1]

    def exact(self, direction: Pass) -> NDArray[np.float64]:
        """Compute the exact result in float64 from the rounded inputs: by NumPy, or for speed by torch on a GPU."""
        wide = replace(self, images=self.images.double(), weight=self.weight.double(), upstream=self.upstream.double())
        if self.images.device.type == "cuda":
            return to_numpy(_without_cudnn(lambda: wide.call(direction)))
        arrays: list[Any] = [to_numpy(tensor) for tensor in (wide.images, wide.weight, wide.upstream)]
        return ALGORITHMS[DIRECT].compute(self.problem, direction, *arrays)


def _without_cudnn(call: Callable[[], Tensor]) -> Tensor:
    """Compute with torch's own kernels, so that cuDNN is not its own reference."""
    before = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    try:
        return call()
    finally:
        torch.backends.cudnn.enabled = before


def evened(problem: Problem) -> Problem:
    """Return the problem with equal padding on opposite sides, as libraries require; other padding becomes part of the
    image."""
    top, bottom, left, right = problem.pad
    if top == bottom and left == right:
        return problem
    return replace(problem, image=problem.padded, pad=(0, 0, 0, 0))
