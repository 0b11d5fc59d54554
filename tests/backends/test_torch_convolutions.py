"""The ways in which torch convolves on a CPU: each computes the same, and what is told of it is true."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from deepstone.algorithms.direct import im2col_values
from deepstone.algorithms.problem import PASSES, Pass, Problem
from deepstone.backends.base import Unsupported
from deepstone.backends.torch.convolutions.cpu import (
    NATIVE,
    NNPACK,
    ONEDNN,
    CpuTrial,
    nnpack_formula,
    nnpack_refusal,
    peak_bytes,
)
from deepstone.backends.torch.convolutions.operands import Operands, evened

PLAIN = Problem(batch=16, channels=16, image=(12, 12), filters=32, kernel=(3, 3), pad=(1, 1, 1, 1))
PROBLEMS = {
    "plain": PLAIN,
    "strided": Problem(batch=16, channels=8, image=(13, 11), filters=8, kernel=(5, 5), stride=(2, 2), pad=(2, 2, 2, 2)),
    "in groups": Problem(batch=16, channels=16, image=(9, 9), filters=32, kernel=(3, 3), groups=2),
    "with holes": Problem(batch=16, channels=8, image=(12, 12), filters=8, kernel=(3, 3), dilation=(2, 2)),
    "padded unevenly": Problem(batch=16, channels=8, image=(9, 9), filters=8, kernel=(3, 3), pad=(0, 1, 0, 1)),
    "one by one": Problem(batch=16, channels=16, image=(8, 8), filters=8, kernel=(1, 1)),
}


def trial(problem: Problem, direction: Pass, dtype: torch.dtype = torch.float32, *, channels_last: bool = False) -> Any:
    torch.manual_seed(0)
    weight = torch.randn(problem.filters, problem.fan_in, *problem.kernel)
    operands = Operands.drawn(problem, weight, device=torch.device("cpu"), dtype=dtype, channels_last=channels_last)
    return CpuTrial(operands, direction).trial({"device": "cpu"}, None)


@pytest.mark.parametrize("direction", PASSES)
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
def test_every_way_gives_the_same(direction: Pass, name: str, channels_last: bool) -> None:
    found = trial(PROBLEMS[name], direction, channels_last=channels_last)
    assert found.facts["picked"] == ONEDNN
    for algorithm in (ONEDNN, NATIVE):
        known = found.attempt(algorithm)
        assert 0 < known["relative_error"] < 1e-5
        found.programs[algorithm]()
    assert ":" in found.attempt(ONEDNN)["implementation"]


@pytest.mark.skipif(not torch.backends.nnpack.is_available(), reason="this torch has no NNPACK for this processor")
@pytest.mark.parametrize("name", ["plain", "strided", "padded unevenly"])
def test_nnpack_gives_the_same_in_forward(name: str) -> None:
    assert 0 < trial(PROBLEMS[name], "forward").attempt(NNPACK)["relative_error"] < 1e-5


@pytest.mark.parametrize("algorithm", [ONEDNN, NATIVE])
def test_switches_are_left_as_they_were(algorithm: str) -> None:
    found = trial(PLAIN, "forward")
    found.attempt(algorithm)
    found.programs[algorithm]()
    assert trial(PLAIN, "forward").facts["picked"] == ONEDNN


def test_the_columns_of_every_window_are_the_workspace_of_the_explicit_product() -> None:
    problem = PROBLEMS["strided"]
    for direction in ("forward", "weight"):
        assert trial(problem, direction).attempt(NATIVE)["workspace_bytes"] == 4 * im2col_values(problem)
    assert trial(PROBLEMS["one by one"], "forward").attempt(NATIVE)["workspace_bytes"] == 0
    assert "absent" in trial(problem, "data").attempt(NATIVE)["workspace_bytes"]


@pytest.mark.parametrize(
    ("dtype", "least", "most"), [(torch.float64, 0, 1e-13), (torch.bfloat16, 1e-4, 1e-2)], ids=["fp64", "bf16"]
)
def test_errors_are_those_of_the_precision(dtype: torch.dtype, least: float, most: float) -> None:
    """Numbers are rounded first, and the exact result is computed from the rounded ones."""
    known = trial(PLAIN, "forward", dtype).attempt(NATIVE)
    assert least <= known["relative_error"] < most


def test_what_torch_does_not_give_to_onednn_is_told() -> None:
    found = trial(PLAIN, "forward", torch.float64)
    assert found.facts["picked"] == NATIVE
    with pytest.raises(Unsupported, match="does not give this convolution to oneDNN: it picks im2col"):
        found.attempt(ONEDNN)


@pytest.mark.parametrize(
    ("changes", "direction", "dtype", "told"),
    [
        ({}, "data", torch.float32, "forward alone"),
        ({}, "forward", torch.bfloat16, "fp32"),
        ({"groups": 2}, "forward", torch.float32, "groups 2"),
        ({"dilation": (2, 2)}, "forward", torch.float32, "dilation 2x2"),
        ({"kernel": (17, 3), "image": (20, 20)}, "forward", torch.float32, "kernel 17x3"),
    ],
)
def test_what_nnpack_cannot_do(changes: dict[str, Any], direction: Pass, dtype: torch.dtype, told: str) -> None:
    plain: dict[str, Any] = {"batch": 2, "channels": 4, "image": (9, 9), "filters": 4, "kernel": (3, 3)}
    assert told in nnpack_refusal(Problem(**{**plain, **changes}), direction, dtype)


@pytest.mark.parametrize(
    ("batch", "image", "kernel", "stride", "formula"),
    [
        (8, 12, 3, 1, "winograd-6x6"),  # 10x10 outputs: 4 tiles of 8x8 against one of 16x16
        (8, 16, 3, 1, "fft-16x16"),  # 14x14: 9 tiles against one
        (8, 27, 5, 1, "fft-16x16"),
        (8, 9, 5, 1, "fft-8x8"),
        (8, 30, 11, 1, "fft-16x16"),
        (8, 30, 11, 4, "direct"),
        (1, 16, 3, 1, "winograd-6x6"),
        (1, 16, 1, 1, "direct"),
    ],
)
def test_which_algorithm_nnpack_takes(batch: int, image: int, kernel: int, stride: int, formula: str) -> None:
    problem = Problem(
        batch=batch, channels=1, image=(image, image), filters=1, kernel=(kernel, kernel), stride=(stride, stride)
    )
    assert nnpack_formula(problem) == formula


def test_a_padded_image_is_the_same_convolution() -> None:
    even = evened(PROBLEMS["padded unevenly"])
    assert (even.image, even.pad) == ((10, 10), (0, 0, 0, 0))
    assert even.output == PROBLEMS["padded unevenly"].output
    assert evened(PLAIN) == PLAIN


def test_the_peak_of_what_was_taken_and_given_back() -> None:
    assert peak_bytes([5, 3, -8, 4, -4]) == 8
    assert peak_bytes([]) == 0
    assert peak_bytes([-3, 2]) == 0
