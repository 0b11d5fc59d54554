"""Distances between arrays, over whatever arrays there may be."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from deepstone.checks.agreement import layer_tolerance, relative_error
from deepstone.graph.ops import Conv, Dense, Relu
from deepstone.results.sameness import Distance

numbers = st.floats(-1e6, 1e6, allow_subnormal=False)
vectors = arrays(np.float64, st.integers(1, 20), elements=numbers)


@given(vectors)
def test_an_array_is_at_no_distance_from_itself(array: np.ndarray):
    assert relative_error(array, array) == 0


@given(vectors, st.floats(1e-6, 10))
def test_a_scaled_array_is_off_by_the_factor(array: np.ndarray, factor: float):
    error = relative_error(array * (1 + factor), array)
    assert error == 0 if not array.any() else error == pytest.approx(factor, rel=1e-6)


@given(vectors)
def test_what_is_not_there_counts_as_zeros(array: np.ndarray):
    assert relative_error(None, array) == relative_error(np.zeros_like(array), array) == (1.0 if array.any() else 0.0)


@given(vectors, st.sampled_from([math.nan, math.inf, -math.inf]), st.data())
def test_what_is_not_finite_is_infinitely_far(array: np.ndarray, value: float, data: st.DataObject):
    spoiled = array.copy()
    spoiled[data.draw(st.integers(0, len(array) - 1))] = value
    assert relative_error(spoiled, array) == math.inf


def test_another_shape_is_infinitely_far_even_where_it_would_broadcast():
    assert relative_error(np.ones((3, 1)), np.ones((1, 3))) == math.inf
    assert relative_error(np.ones(1), np.ones(())) == math.inf


def test_something_where_nothing_should_be_is_infinitely_far_unless_it_is_measured_by_more():
    assert relative_error(np.ones(2), np.zeros(2)) == math.inf
    assert relative_error(np.ones(4), np.zeros(4), floor=200.0) == pytest.approx(0.01)


def test_narrow_numbers_are_compared_in_double_precision():
    wide = np.full(10, 1.0 + 1e-9)
    assert 0 < relative_error(np.ones(10, dtype=np.float32), wide) < 1.1e-9


@given(st.floats(0, 1e300) | st.just(math.inf), st.floats(1e-15, 1))
def test_a_distance_can_always_be_written(error: float, tolerance: float):
    distance = Distance.of(layer="a", what="output", relative_error=error, tolerance=tolerance)
    written = json.loads(json.dumps(distance.to_json(), allow_nan=False))
    assert set(written) == {"layer", "what", "relative_error", "tolerance"}
    assert distance.ok == (error <= tolerance) == (distance.badness <= 1)


def test_only_what_a_precision_narrows_has_more_room():
    conv, dense, relu = Conv(channels=1, kernel=(1, 1)), Dense(features=1), Relu()
    strict = layer_tolerance("fp32", op=conv)
    assert strict == layer_tolerance("fp32", op=relu) == layer_tolerance("fp32", on_gpu=True, op=dense)
    assert layer_tolerance("fp32", on_gpu=True, op=conv) > strict
    assert layer_tolerance("tf32", on_gpu=True, op=conv) == layer_tolerance("tf32", on_gpu=True, op=dense) > strict
    assert layer_tolerance("tf32-conv", on_gpu=True, op=dense) == strict
    assert layer_tolerance("tf32", on_gpu=True, op=relu) == strict
    assert layer_tolerance("fp64", on_gpu=True, op=conv) < strict < layer_tolerance("bf16", op=relu)
