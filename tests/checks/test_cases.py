"""The way of the reference through a network: what each layer is given and must give."""

from __future__ import annotations

import numpy as np
import pytest
from check_jobs import delicate
from hypothesis import given
from hypothesis import strategies as st

from deepstone.checks.cases import ROUNDING, Case, Trajectory
from deepstone.graph import reference
from deepstone.graph.builder import Builder
from deepstone.graph.ops import MaxPool
from deepstone.graph.weights import initial_parameters, synthetic_batch


def cases(precision: str = "fp64", *, forward: bool = False) -> dict[str, Case]:
    trajectory = Trajectory(delicate(), batch=3, seed=5, precision=precision)
    found = list(trajectory.forward_cases() if forward else trajectory.training_cases())
    assert len({case.layer.name for case in found}) == len(found)
    return {case.layer.name: case for case in found}


def test_every_layer_that_computes_has_a_case():
    graph = delicate()
    expected = {layer.name for layer in graph.layers} - {"data", "drop"}
    assert set(cases()) == set(cases(forward=True)) == expected
    assert all(graph.layers[case.position] is case.layer for case in cases().values())


def test_in_double_precision_it_is_the_reference_step_itself():
    graph = delicate()
    samples, labels = synthetic_batch(graph, 3, 5)
    step = reference.step(graph, initial_parameters(graph, 5, generic=True), samples, labels)
    for name, case in cases().items():
        np.testing.assert_allclose(case.expected["output", ""].value, step.outputs[name], rtol=1e-12)
        for parameter, gradient in step.parameter_gradients.get(name, {}).items():
            np.testing.assert_allclose(case.expected["parameter", parameter].value, gradient, rtol=1e-9, atol=1e-12)
        for source in case.layer.inputs:
            np.testing.assert_array_equal(case.inputs[source], step.outputs[source])


@pytest.mark.parametrize(("precision", "bits"), [("fp32", 24), ("bf16", 8), ("bf16-mixed", 8), ("fp16-mixed", 11)])
def test_what_a_layer_is_given_has_the_precision_under_test(precision: str, bits: int):
    for case in cases(precision).values():
        for array in (*case.inputs.values(), case.upstream):
            mantissa, _ = np.frexp(np.asarray(array, dtype=np.float64))
            scaled = mantissa * 2.0**bits
            if precision != "fp16-mixed":  # whose smallest numbers have fewer bits
                np.testing.assert_array_equal(scaled, np.round(scaled))
            assert np.asarray(array).dtype == np.float32


def test_without_a_backward_pass_there_is_no_upstream():
    for case in cases(forward=True).values():
        assert case.upstream is None
        assert set(case.expected) == {("output", "")}


def test_in_evaluation_batch_norm_uses_its_running_statistics():
    case = cases(forward=True)["norm2"]
    parameters = initial_parameters(delicate(), 5, generic=True)["norm2"]
    scale, shift = (parameters[name].astype(np.float64)[:, None, None] for name in ("weight", "bias"))
    expected = case.inputs["conv2"] / np.sqrt(1 + 1e-5) * scale + shift
    np.testing.assert_allclose(case.expected["output", ""].value, expected, rtol=1e-12)


def test_no_parameter_is_at_0_or_1_where_forgetting_it_would_not_show():
    for arrays in initial_parameters(delicate(), 0, generic=True).values():
        for array in arrays.values():
            assert not np.any((array == 0) | (array == 1))


def test_where_a_maximum_is_tied_its_gradient_is_not_asked_for():
    b = Builder("ties")
    b.max_pool("pool", b.relu("relu", b.input("data", (1, 8, 8))), kernel=2, stride=2)
    b.softmax_cross_entropy("loss", b.dense("dense", b.flatten("flatten", "pool"), features=4))
    found = Trajectory(b.build(), batch=8, seed=0, precision="fp32").training_cases()
    case = next(case for case in found if case.layer.name == "pool")
    assert isinstance(case.layer.op, MaxPool)
    nothing = reference.forward(case.layer.op, [case.inputs["relu"]]).value == 0  # all four are 0 behind a relu
    assert nothing.any()
    assert case.upstream is not None
    np.testing.assert_array_equal(case.upstream[nothing], 0)
    assert np.all(case.upstream[~nothing] != 0)


@given(st.floats(-(2.0**99), 2.0**99, width=32))
def test_bfloat16_is_the_nearest_of_its_kind(value: float):
    rounded = float(ROUNDING["bf16"](np.array(value, dtype=np.float32)))
    assert abs(rounded - value) <= abs(value) * 2**-8 + 1e-38
    assert float(ROUNDING["bf16"](np.array(rounded))) == rounded


def test_bfloat16_rounds_to_even():
    assert ROUNDING["bf16"](np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-16])).tolist() == [
        1.0,
        1 + 2**-6,
        1 + 2**-7,
    ]
