"""Bounds by hand, and what must hold of every bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.absent import Absent
from deepstone.graph.cost import LayerWork, Work
from deepstone.measure.roofline import bound, product_precision
from deepstone.results.layers import LayerBound, LayerPeaks
from deepstone.results.quantity import Quantity


def exactly(value: float) -> Quantity:
    return Quantity.of(median=value, low=value, high=value, n=5)


def peaks(*, copy: float | None = 10e9, **products: float) -> LayerPeaks:
    return LayerPeaks(
        device="cpu",
        flops_per_s={precision: exactly(value) for precision, value in products.items()},
        bytes_per_s={"copy": Absent("not measured") if copy is None else exactly(copy)},
        measured_with="torch@1",
        measured_at="2026-01-01T00:00:00.000000Z",
    )


def work(forward: tuple[int, int], backward: tuple[int, int] = (0, 0), op: str = "conv") -> LayerWork:
    return LayerWork(
        op=op, forward=Work(flops=forward[0], bytes=forward[1]), backward=Work(flops=backward[0], bytes=backward[1])
    )


def test_the_slower_of_compute_and_memory_decides_each_pass():
    found = bound(work((200_000_000, 10_000_000), (100_000_000, 50_000_000)), peaks(fp32=100e9), "fp32", taken_s=14e-3)
    assert isinstance(found, LayerBound)
    assert found.forward_s == pytest.approx(2e-3)  # 200 M at 100 G/s, against 1 ms for the bytes
    assert found.backward_s == pytest.approx(5e-3)  # 50 MB at 10 GB/s, against 1 ms for the FLOPs
    assert found.by == "memory"  # which decides the longer pass
    assert found.share == pytest.approx(0.5)


def test_a_layer_without_flops_is_bound_by_memory_and_needs_no_product():
    found = bound(work((0, 10_000_000), op="relu"), peaks(), "fp32", taken_s=1.0)
    assert isinstance(found, LayerBound)
    assert (found.by, found.forward_s, found.backward_s) == ("memory", pytest.approx(1e-3), 0.0)


def test_what_is_not_known_is_absent_with_the_remedy():
    missing = bound(work((10, 10)), peaks(fp32=1e9), "bf16-mixed", taken_s=1.0)
    assert isinstance(missing, Absent)
    assert "bf16" in missing.reason
    assert "deepstone doctor --peaks" in missing.reason
    assert isinstance(bound(work((10, 10)), peaks(copy=None, fp32=1e9), "fp32", taken_s=1.0), Absent)
    assert isinstance(bound(work((0, 0), op="flatten"), peaks(), "fp32", taken_s=1.0), Absent)


def test_no_time_has_no_share():
    found = bound(work((0, 10)), peaks(), "fp32", taken_s=0.0)
    assert isinstance(found, LayerBound)
    assert found.share == Absent("the layer took no time that could be compared")


@pytest.mark.parametrize("op", ["conv", "dense"])
@pytest.mark.parametrize(
    ("precision", "product"), [("fp32", "fp32"), ("bf16-mixed", "bf16"), ("fp16-mixed", "fp16"), ("fp64", "fp64")]
)
def test_whose_ceiling_holds(precision: str, op: str, product: str):
    assert product_precision(precision, op) == product


def test_tf32_conv_holds_for_convolutions_alone():
    assert product_precision("tf32-conv", "conv") == "tf32"
    assert product_precision("tf32-conv", "dense") == "fp32"


amounts = st.integers(min_value=0, max_value=10**15)
rates = st.floats(min_value=1e3, max_value=1e15)


@given(forward=st.tuples(amounts, amounts), backward=st.tuples(amounts, amounts), product=rates, copy=rates)
def test_a_bound_is_never_below_either_ceiling(forward, backward, product, copy):
    found = bound(work(forward, backward), peaks(copy=copy, fp32=product), "fp32", taken_s=1.0)
    if not any((*forward, *backward)):
        assert isinstance(found, Absent)
        return
    assert isinstance(found, LayerBound)
    for seconds, (flops, size) in ((found.forward_s, forward), (found.backward_s, backward)):
        assert seconds >= flops / product
        assert seconds >= size / copy
        assert seconds in (flops / product, size / copy)
    assert found.share == pytest.approx(found.forward_s + found.backward_s)
