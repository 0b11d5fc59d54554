"""Algorithms that no library here offers, in NumPy: their counts, memory and error, never their speed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepstone.absent import Absent
from deepstone.algorithms.catalog import ALGORITHMS, DIRECT, REFERENCES
from deepstone.algorithms.fourier import in_single_precision
from deepstone.algorithms.problem import Pass, Problem, relative_error
from deepstone.results.convolutions import Tried

SAMPLES = 2  # of the batch, to compute the error
CHANNELS = 64  # of the output of the pass; each is an independent sum, so more add no information
_FP32_BYTES = 4
_MOST_FLOPS = 40e9  # of one run in NumPy: a few seconds
_NO_TIME = Absent("a reference implementation; its time says nothing")


def try_references(problem: Problem, direction: Pass, weight: NDArray[Any]) -> Iterator[Tried]:
    """Yield counts and workspace of the whole batch in fp32, and the error of fp32 against float64 on few samples."""
    few, weight = _part(problem, direction, weight)
    random = np.random.default_rng(0)
    images = random.standard_normal((few.batch, few.channels, *few.image), dtype=np.float32)
    upstream = random.standard_normal((few.batch, few.filters, *few.output), dtype=np.float32)
    arrays = (images, weight.astype(np.float32), upstream)
    exact: NDArray[Any] | None = None
    for name in REFERENCES:
        algorithm = ALGORITHMS[name]
        tried = partial(
            Tried, algorithm=f"numpy {name}", direction=direction, kind="reference", picked=False, formula=name
        )
        reason = algorithm.refusal(problem)
        if reason:
            refused = Absent(reason)
            yield tried(
                time_s=refused, workspace_bytes=refused, flops=refused, transform_flops=refused, relative_error=refused
            )
            continue
        error = _unaffordable(name, few, direction)
        if error is None:
            if exact is None:
                exact = ALGORITHMS[DIRECT].compute(few, direction, *(array.astype(np.float64) for array in arrays))
            error = relative_error(algorithm.compute(few, direction, *arrays), exact)
        operations = algorithm.operations(problem, direction)
        yield tried(
            time_s=_NO_TIME,
            workspace_bytes=_FP32_BYTES * algorithm.workspace_values(problem, direction),
            flops=operations.flops,
            transform_flops=operations.transforms,
            relative_error=error,
        )


def _part(problem: Problem, direction: Pass, weight: NDArray[Any]) -> tuple[Problem, NDArray[Any]]:
    """Return the problem cut to a few samples and a few output channels of the pass."""
    few = problem.with_batch(min(SAMPLES, problem.batch))
    if problem.groups > 1:
        return few, weight
    if direction == "data":
        return replace(few, channels=min(CHANNELS, few.channels)), weight[:, :CHANNELS]
    return replace(few, filters=min(CHANNELS, few.filters)), weight[:CHANNELS]


def _unaffordable(name: str, few: Problem, direction: Pass) -> Absent | None:
    """Return why the error is not computed, or None."""
    if name.startswith("fft") and not in_single_precision():
        return Absent("this NumPy transforms in float64 only, so fp32 has no error here; use NumPy 2")
    flops = ALGORITHMS[name].operations(few, direction).flops
    direct = ALGORITHMS[DIRECT].operations(few, direction).flops
    if max(flops, direct) > _MOST_FLOPS:
        return Absent(f"not computed: {max(flops, direct) / 1e9:.0f} GFLOP take NumPy too long")
    return None
