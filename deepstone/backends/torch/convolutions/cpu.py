"""The convolution algorithms of torch on a CPU: oneDNN, its own im2col with a matrix product, NNPACK.

NNPACK reports neither its limitations nor its choice of algorithm, so its rules are repeated here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from deepstone.absent import Absent, as_json
from deepstone.algorithms.catalog import DIRECT, FFT_8, FFT_16, WINOGRAD_6
from deepstone.algorithms.direct import tile_counts
from deepstone.algorithms.problem import Pass, Problem, relative_error
from deepstone.backends.base import ConvolutionTrial, Unsupported
from deepstone.backends.torch.arrays import to_numpy
from deepstone.backends.torch.convolutions.operands import ERROR_SAMPLES, Operands
from deepstone.backends.torch.effective import observing

ONEDNN, NATIVE, NNPACK = "oneDNN", "im2col+GEMM", "NNPACK"

# What torch's own choice is called here. Others are for devices and shapes that do not come up.
_PICKED = {"Mkldnn": ONEDNN, "Slow2d": NATIVE, "SlowDilated2d": NATIVE, "NnpackSpatial": NNPACK}
_UNSEEN = Absent("it is taken past torch's allocator, where it is not seen")


class CpuTrial:
    """One pass of one convolution. Programs leave torch's switches unchanged: all on."""

    def __init__(self, operands: Operands, direction: Pass) -> None:
        self._operands = operands
        self._direction: Pass = direction
        self._known_exact: Any = None

    def trial(self, setup: dict[str, Any], timing: Any) -> ConvolutionTrial:
        problem = self._operands.problem
        formulas = {ONEDNN: DIRECT, NATIVE: DIRECT, NNPACK: nnpack_formula(problem)}
        facts = {**setup, "algorithms": [list(pair) for pair in formulas.items()], "picked": as_json(self._picked())}
        return ConvolutionTrial(facts, self._attempt, timing)

    def _picked(self) -> str | Absent:
        operands, problem = self._operands, self._operands.problem
        name = torch._C._select_conv_backend(  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
            operands.images,
            operands.weight,
            None,
            list(problem.stride),
            [problem.pad[0], problem.pad[2]],
            list(problem.dilation),
            False,
            [0, 0],
            problem.groups,
            None,
        ).name
        return _PICKED.get(name) or Absent(f"torch picks {name}, which is not among these")

    def _told_pick(self) -> str:
        picked = self._picked()
        return picked.reason if isinstance(picked, Absent) else f"it picks {picked}"

    def _attempt(self, name: str) -> tuple[Callable[[], Any], dict[str, Any]]:
        call, operands = self._calls[name], self._operands
        if name == NNPACK:
            reason = nnpack_refusal(operands.problem, self._direction, operands.images.dtype)
            if reason:
                raise Unsupported(reason)
        with observing([], hooks=False, onednn=name == ONEDNN) as seen:
            workspace = _workspace_bytes(lambda: call(operands))
        facts: dict[str, Any] = {"workspace_bytes": as_json(self._seen(name, workspace))}
        if name == ONEDNN:
            facts["implementation"] = ", ".join(seen.primitives.get("convolution", []))
            if not facts["implementation"]:  # torch does not give it everything
                raise Unsupported(f"torch does not give this convolution to oneDNN: {self._told_pick()}")
        few = operands.first(ERROR_SAMPLES)
        facts["relative_error"] = as_json(relative_error(to_numpy(call(few)), self._exact(few)))
        return lambda: call(operands), facts

    @property
    def _calls(self) -> dict[str, Callable[[Operands], Tensor]]:
        return {ONEDNN: self._onednn, NATIVE: self._native, NNPACK: self._nnpack}

    def _exact(self, few: Operands) -> Any:
        if self._known_exact is None:
            self._known_exact = few.exact(self._direction)
        return self._known_exact

    def _seen(self, name: str, workspace: int | Absent) -> int | Absent:
        """Return the observed workspace. torch's own kernel has columns for the data gradient, too, but not from its
        allocator."""
        needs_columns = name == NATIVE and self._operands.problem.kernel != (1, 1)
        return _UNSEEN if name == NNPACK or (needs_columns and workspace == 0) else workspace

    def _onednn(self, operands: Operands) -> Tensor:
        return operands.call(self._direction)

    def _native(self, operands: Operands) -> Tensor:
        # The public switches do the same, and take 50 µs, which would show in small layers.
        torch._C._set_mkldnn_enabled(False)  # pyright: ignore[reportPrivateUsage]
        torch._C._set_nnpack_enabled(False)  # pyright: ignore[reportPrivateUsage]
        try:
            return operands.call(self._direction)
        finally:
            torch._C._set_mkldnn_enabled(True)  # pyright: ignore[reportPrivateUsage]
            torch._C._set_nnpack_enabled(True)  # pyright: ignore[reportPrivateUsage]

    def _nnpack(self, operands: Operands) -> Tensor:
        problem = operands.problem
        padding, stride = [problem.pad[0], problem.pad[2]], list(problem.stride)
        convolve = torch._nnpack_spatial_convolution  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        return convolve(operands.images, operands.weight, None, padding, stride)


def nnpack_refusal(problem: Problem, direction: Pass, dtype: torch.dtype) -> str:
    """Return the reason why torch cannot use NNPACK here, or nothing."""
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
    """Return the formula. Batches use one routine; single images, and all with a stride, use another with more
    algorithms."""
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


def _workspace_bytes(call: Callable[[], Tensor]) -> int | Absent:
    """Return the memory that torch's CPU allocator gave during a call, beyond the result.

    Memory that a library allocates itself is not observed.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        result = call()
    recorded = watched.profiler.kineto_results if watched.profiler is not None else None
    if recorded is None:
        return Absent("torch's profiler gave no account of memory")
    steps = [event.nbytes() for event in recorded.events() if event.name() == "[memory]"]  # pyright: ignore[reportAttributeAccessIssue]
    return max(0, peak_bytes(steps) - result.untyped_storage().nbytes())


def peak_bytes(steps: Iterable[int]) -> int:
    """Return the highest running sum; a step is an allocation or, below 0, a release."""
    level = highest = 0
    for step in steps:
        level += step
        highest = max(highest, level)
    return highest
