"""What NNPACK can do, and which algorithm it takes: it does not tell, so its rule is written here once more."""

from __future__ import annotations

import torch

from deepstone.algorithms.catalog import DIRECT, FFT_8, FFT_16, WINOGRAD_6
from deepstone.algorithms.images import tile_counts
from deepstone.algorithms.problem import Pass, Problem


def nnpack_refusal(problem: Problem, direction: Pass, dtype: torch.dtype) -> str:
    """Why torch cannot use it for this, or nothing."""
    if direction != "forward":
        return "torch uses NNPACK in forward alone"
    if not torch.backends.nnpack.is_available():
        return "this torch is built without NNPACK, or NNPACK does not know this processor"
    if dtype != torch.float32:
        return "NNPACK computes in fp32"
    if problem.groups > 1:
        return f"groups {problem.groups}: torch gives NNPACK convolutions without groups"
    if problem.dilation != (1, 1):
        return f"dilation {problem.dilation[0]}x{problem.dilation[1]}: NNPACK has none"
    if max(problem.kernel) > 16:
        return f"kernel {problem.kernel[0]}x{problem.kernel[1]}: NNPACK's tiles have room for 16x16"
    return ""


def nnpack_formula(problem: Problem) -> str:
    """Batches go through one routine; single images, and all with a stride, through another that knows more."""
    if problem.stride != (1, 1):
        return DIRECT
    if problem.batch == 1 and problem.kernel == (1, 1):
        return DIRECT
    if problem.batch == 1 and problem.kernel == (3, 3):
        return WINOGRAD_6
    if max(problem.kernel) > 8 or _tiles(problem, 8) > 4 * _tiles(problem, 16):
        return FFT_16
    return WINOGRAD_6 if problem.kernel == (3, 3) else FFT_8


def _tiles(problem: Problem, tile: int) -> int:
    height, width = tile_counts(problem.output, (tile - problem.kernel[0] + 1, tile - problem.kernel[1] + 1))
    return height * width
