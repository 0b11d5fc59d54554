"""The ways in which torch can convolve on a CPU: oneDNN, its own windows-as-columns with a matrix product, NNPACK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from deepstone.absent import Absent, as_json
from deepstone.algorithms.accuracy import relative_error
from deepstone.algorithms.catalog import DIRECT
from deepstone.algorithms.problem import Pass
from deepstone.backends.base import ConvolutionTrial, Unsupported
from deepstone.backends.torch.convolutions.allocations import workspace_bytes
from deepstone.backends.torch.convolutions.nnpack import nnpack_formula, nnpack_refusal
from deepstone.backends.torch.convolutions.operands import ERROR_SAMPLES, Operands
from deepstone.backends.torch.observe import watching
from deepstone.backends.torch.values import to_numpy

ONEDNN, NATIVE, NNPACK = "oneDNN", "im2col+GEMM", "NNPACK"

# What torch's own choice is called here. Others are for devices and shapes that do not come up.
_PICKED = {"Mkldnn": ONEDNN, "Slow2d": NATIVE, "SlowDilated2d": NATIVE, "NnpackSpatial": NNPACK}
_UNSEEN = Absent("it is taken past torch's allocator, where it is not seen")


class CpuTrial:
    """One pass of one convolution. Programs leave torch's switches as they found them: all on."""

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
        with watching([], hooks=False, onednn=name == ONEDNN) as sighting:
            workspace = workspace_bytes(lambda: call(operands))
        facts: dict[str, Any] = {"workspace_bytes": as_json(self._seen(name, workspace))}
        if name == ONEDNN:
            facts["implementation"] = ", ".join(sighting.primitives.get("convolution", []))
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
        """torch's own kernel has columns for the gradient of the images, too, but not from its allocator."""
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
