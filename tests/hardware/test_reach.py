from __future__ import annotations

from typing import Any

import pytest

from deepstone.absent import Absent
from deepstone.hardware.machine import describe_machine
from deepstone.hardware.reach import Reach, reach
from deepstone.results.codec import convert
from deepstone.results.environment import Machine

NOT_TOLD = {"absent": "not told"}
XEON: dict[str, Any] = {
    "flags": ["avx2", "avx512f", "avx512_bf16", "amx_bf16"],
    "usable_cores": 112,
    "physical_cores": 56,
    "quota_cores": NOT_TOLD,
    "max_mhz": 3800.0,
}
H200: dict[str, Any] = {
    "name": "NVIDIA H200",
    "uuid": "GPU-1",
    "cuda_cores": 16896,
    "compute_capability": "9.0",
    "max_sm_clock_mhz": 1980,
}


def machine(*gpus: dict[str, Any], virtualized: object = NOT_TOLD, **cpu: Any) -> Machine:
    boards = [{"index": index, **gpu} for index, gpu in enumerate(gpus)]
    return convert({"cpu": {**XEON, **cpu}, "virtualized": virtualized, "gpus": boards}, Machine)


def rate(found: Reach | Absent) -> float:
    assert isinstance(found, Reach)
    return found.flops_per_s


@pytest.mark.parametrize(
    ("cpu", "precision", "per_s"),
    [
        ({}, "fp32", 56 * 3.8e9 * 64),
        ({}, "fp64", 56 * 3.8e9 * 32),
        ({}, "bf16", 56 * 3.8e9 * 2048),
        ({"flags": ["avx", "avx2"]}, "fp32", 56 * 3.8e9 * 32),
        ({"flags": ["avx2"]}, "bf16", 56 * 3.8e9 * 32),
        ({"flags": ["asimd", "sve"]}, "fp32", 56 * 3.8e9 * 128),
        ({"usable_cores": 4}, "fp32", 4 * 3.8e9 * 64),
        ({"usable_cores": 1, "quota_cores": 1.5}, "fp32", 2 * 3.8e9 * 64),
        ({"physical_cores": NOT_TOLD}, "fp32", 112 * 3.8e9 * 64),
        ({"max_mhz": NOT_TOLD}, "fp32", 56 * 6.5e9 * 64),
    ],
)
def test_a_processor(cpu: dict[str, Any], precision: str, per_s: float) -> None:
    assert rate(reach(machine(**cpu), "cpu", precision)) == pytest.approx(per_s)


def test_a_virtual_machine_may_not_know_which_of_its_cores_are_threads() -> None:
    assert rate(reach(machine(virtualized="kvm"), "cpu", "fp32")) == pytest.approx(112 * 3.8e9 * 64)


@pytest.mark.parametrize(
    ("precision", "published_per_s"), [("fp32", 67e12), ("tf32", 495e12), ("bf16", 989e12), ("fp16", 989e12)]
)
def test_a_gpu_is_bounded_a_little_above_what_its_maker_says(precision: str, published_per_s: float) -> None:
    """The maker's rates are at the boost clock, which is a little below the highest one."""
    found = rate(reach(machine(H200), "gpu:0", precision, gpu_uuid="GPU-1"))
    assert published_per_s <= 1.01 * found <= 1.25 * published_per_s


def test_of_several_boards_the_one_that_was_used() -> None:
    slow = {**H200, "uuid": "GPU-0", "max_sm_clock_mhz": 990}
    assert rate(reach(machine(slow, H200), "gpu:1", "fp32", gpu_uuid="GPU-1")) == pytest.approx(16896 * 2 * 1.98e9)
    assert isinstance(reach(machine(slow, H200), "gpu:1", "fp32"), Absent)


@pytest.mark.parametrize(
    "board", [{**H200, "compute_capability": "99.9"}, {**H200, "cuda_cores": NOT_TOLD}, {"name": "x", "uuid": "GPU-1"}]
)
def test_an_unknown_gpu_has_no_bound(board: dict[str, Any]) -> None:
    assert isinstance(reach(machine(board), "gpu:0", "fp32", gpu_uuid="GPU-1"), Absent)


def test_a_processor_without_known_vectors_has_no_bound() -> None:
    assert isinstance(reach(machine(flags=[]), "cpu", "fp32"), Absent)


def test_this_machine_has_a_bound() -> None:
    assert rate(reach(describe_machine(), "cpu", "fp32")) > 1e9
