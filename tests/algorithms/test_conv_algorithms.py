"""All algorithms compute the same convolution, in every pass, as the graph's own reference does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from depth import examples
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from problems import arrays, problems

from deepstone.algorithms.catalog import ALGORITHMS, REFERENCES
from deepstone.algorithms.fourier import in_single_precision
from deepstone.algorithms.problem import PASSES, Pass, Problem
from deepstone.graph.ops import Conv
from deepstone.graph.reference import forward

TRANSFORMS = [name for name in ALGORITHMS if name != "direct"]


def expected(problem: Problem, images: Any, weight: Any, upstream: Any) -> dict[Pass, NDArray[Any]]:
    window = {name: getattr(problem, name) for name in ("kernel", "stride", "pad", "dilation", "groups")}
    op = Conv(channels=problem.filters, bias=False, **window)
    done = forward(op, [images], {"weight": weight})
    gradients = done.backward(upstream.astype(np.float64))
    return {"forward": done.value, "data": gradients.inputs[0], "weight": gradients.parameters["weight"]}


def assert_same(name: str, problem: Problem) -> None:
    given_arrays = arrays(problem)
    wanted = expected(problem, *given_arrays)
    for direction in PASSES:
        found = ALGORITHMS[name].compute(problem, direction, *given_arrays)
        assert found.shape == wanted[direction].shape
        scale = np.abs(wanted[direction]).max()
        assert np.abs(found - wanted[direction]).max() <= 1e-10 * max(scale, 1.0)


@given(problem=problems())
@examples(60)
def test_the_definition_agrees_with_the_reference(problem: Problem) -> None:
    assert_same("direct", problem)


@pytest.mark.parametrize("name", TRANSFORMS)
@given(data=st.data())
@examples(25)
def test_every_transform_agrees_in_float64(name: str, data: st.DataObject) -> None:
    assert_same(name, data.draw(problems(strided=False, kernel=3 if "winograd" in name else 0)))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_many_filters_are_taken_in_turns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepstone.algorithms.transform_domain._MOST_VALUES_AT_ONCE", 1)
    assert_same(name, Problem(batch=2, channels=4, image=(9, 7), filters=6, kernel=(3, 3), pad=(1, 1, 1, 1), groups=2))


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize(
    ("change", "reason"), [({"stride": (2, 2)}, "stride 2x2"), ({"dilation": (1, 2)}, "dilation 1x2")]
)
def test_what_a_transform_cannot_do_is_told(name: str, change: dict[str, Any], reason: str) -> None:
    problem = Problem(**{"batch": 1, "channels": 1, "image": (9, 9), "filters": 1, "kernel": (3, 3), **change})
    assert ALGORITHMS[name].refusal(problem).startswith(reason)
    assert ALGORITHMS["direct"].refusal(problem) == ""


def test_kernels_that_do_not_fit_a_transform() -> None:
    problem = Problem(batch=1, channels=1, image=(40, 40), filters=1, kernel=(33, 5))
    assert "kernel 33x5" in ALGORITHMS["fft-tiled"].refusal(problem)
    assert "kernel 33x5" in ALGORITHMS["winograd-2x2"].refusal(problem)
    assert ALGORITHMS["fft"].refusal(problem) == ""


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("direction", PASSES)
def test_in_single_precision_errors_are_of_its_size(name: str, direction: Pass) -> None:
    problem = Problem(batch=2, channels=16, image=(20, 20), filters=8, kernel=(3, 3), pad=(1, 1, 1, 1))
    given_arrays = arrays(problem, np.float32)
    found = ALGORITHMS[name].compute(problem, direction, *given_arrays)
    assert found.dtype == np.float32 or not in_single_precision()
    wanted = expected(problem, *given_arrays)[direction]
    error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    assert 1e-9 < error < 1e-5


def test_larger_tiles_of_winograd_round_more() -> None:
    problem = Problem(batch=2, channels=32, image=(24, 24), filters=16, kernel=(3, 3), pad=(1, 1, 1, 1))
    images, weight, upstream = arrays(problem, np.float32)
    wanted = expected(problem, images, weight, upstream)["forward"]
    errors = [
        np.linalg.norm(ALGORITHMS[name].compute(problem, "forward", images, weight, upstream) - wanted)
        for name in ("winograd-2x2", "winograd-4x4", "winograd-6x6")
    ]
    assert errors == sorted(errors)
