"""What is planted is found: alpha, beta, and as many segments as there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.absent import Absent
from deepstone.measure.statistics import Quantity
from deepstone.results.comm import CommFit, CommPoint
from deepstone.scaling.fit import fit_points, predict_s

SIZES = [1024 * 4**power for power in range(9)]


def point(size: int, time_s: float, spread: float = 0.01) -> CommPoint:
    time = Quantity.of(median=time_s, low=time_s * (1 - spread), high=time_s * (1 + spread), n=10)
    rate = time.inverse(size)
    return CommPoint(bytes=size, time_s=time, algbw=rate, busbw=rate, checked=True)


def fitted(times: dict[int, float]) -> CommFit:
    found = fit_points([point(size, time_s) for size, time_s in times.items()])
    assert not isinstance(found, Absent)
    return found


def test_one_line_is_one_segment() -> None:
    fit = fitted({size: 50e-6 + 2e-9 * size for size in SIZES})
    (segment,) = fit.segments
    assert (segment.from_bytes, segment.to_bytes) == (SIZES[0], SIZES[-1])
    assert (segment.alpha_s, segment.beta_s_per_byte) == (pytest.approx(50e-6), pytest.approx(2e-9))
    assert fit.worst < 1e-6


@pytest.mark.parametrize("border", [3, 4, 5])
def test_a_library_that_changes_its_method_has_two(border: int) -> None:
    times = {size: 10e-6 + 1e-9 * size for size in SIZES[:border]}
    times |= {size: 400e-6 + 3e-9 * size for size in SIZES[border:]}
    first, second = fitted(times).segments
    assert SIZES[border - 1] < first.to_bytes == second.from_bytes < SIZES[border]
    assert (first.alpha_s, second.alpha_s) == (pytest.approx(10e-6, rel=1e-3), pytest.approx(400e-6, rel=1e-3))
    assert (first.beta_s_per_byte, second.beta_s_per_byte) == (pytest.approx(1e-9), pytest.approx(3e-9))


@given(st.lists(st.floats(-0.02, 0.02), min_size=9, max_size=9))
def test_noise_makes_no_segments(noise: list[float]) -> None:
    times = {size: (100e-6 + 1e-9 * size) * (1 + part) for size, part in zip(SIZES, noise, strict=True)}
    fit = fitted(times)
    assert len(fit.segments) == 1
    for size, time_s in times.items():
        assert predict_s(fit, size) == pytest.approx(time_s, rel=0.08)


@given(st.lists(st.floats(1e-6, 1.0), min_size=3, max_size=12))
def test_no_number_is_negative_whatever_the_points(times: list[float]) -> None:
    fit = fitted({1024 * 2**at: time_s for at, time_s in enumerate(times)})
    assert all(each.alpha_s >= 0 and each.beta_s_per_byte >= 0 for each in fit.segments)
    assert fit.residual <= fit.worst


def test_two_sizes_are_too_few_and_wrong_results_do_not_count() -> None:
    why = Absent("the result was wrong")
    wrong = CommPoint(bytes=4096, time_s=why, algbw=why, busbw=why, checked=False)
    assert isinstance(fit_points([point(1024, 1e-4), wrong, point(16384, 2e-4)]), Absent)
