"""Small convolutions of every kind, and arrays to give to them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from deepstone.algorithms.problem import Problem


@st.composite
def problems(draw: st.DrawFn, *, strided: bool = True, kernel: int = 0) -> Problem:
    """`strided`: strides and holes too; `kernel`: this size alone."""
    few = st.integers(1, 3)
    groups = draw(st.integers(1, 2))
    sides = (kernel, kernel) if kernel else (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    dilation = (draw(st.integers(1, 2)), draw(st.integers(1, 2))) if strided else (1, 1)
    pad = tuple(draw(st.integers(0, 3)) for _ in range(4))
    reach = [hole * (side - 1) + 1 for hole, side in zip(dilation, sides, strict=True)]
    image = [draw(st.integers(max(1, reach[side] - pad[2 * side] - pad[2 * side + 1]), 11)) for side in (0, 1)]
    return Problem(
        batch=draw(few),
        channels=groups * draw(few),
        image=(image[0], image[1]),
        filters=groups * draw(few),
        kernel=sides,
        stride=(draw(few), draw(few)) if strided else (1, 1),
        pad=(pad[0], pad[1], pad[2], pad[3]),
        dilation=dilation,
        groups=groups,
    )


def arrays(
    problem: Problem, dtype: type = np.float64, seed: int = 0
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Images, weight and upstream gradient."""
    random = np.random.default_rng(seed)
    shapes = (
        (problem.batch, problem.channels, *problem.image),
        (problem.filters, problem.fan_in, *problem.kernel),
        (problem.batch, problem.filters, *problem.output),
    )
    images, weight, upstream = (random.standard_normal(shape).astype(dtype) for shape in shapes)
    return images, weight, upstream
