"""The search for the largest batch, on memories that are functions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.absent import Absent
from deepstone.results.memory import LargestBatch, TriedBatch
from deepstone.runner.largest_batch import NOT_TRIED, Attempt, largest_batch

MOST = 2**20


def memory_of(peak_of: Callable[[int], float], limit_bytes: int, *, silent: bool = False) -> Attempt:
    """How a batch goes; `silent`: one that does not fit leaves no peak behind, as when a device runs out."""

    def attempt(batch: int, _expected_bytes: float) -> TriedBatch:
        peak_bytes = int(peak_of(batch))
        if peak_bytes <= limit_bytes:
            return TriedBatch(batch=batch, outcome="ok", peak_bytes=peak_bytes, reason="")
        return TriedBatch(batch=batch, outcome="oom", peak_bytes=Absent("gone") if silent else peak_bytes, reason="")

    return attempt


def searched(
    peak_of: Callable[[int], float],
    limit_bytes: int,
    *,
    sample_bytes: int,
    silent: bool = False,
    wavering: float = 0.0,
) -> LargestBatch:
    attempt = memory_of(peak_of, limit_bytes, silent=silent)
    first = [attempt(8, 0.0), attempt(16, 0.0)]
    return largest_batch(
        attempt, first=first, limit_bytes=limit_bytes, sample_bytes=sample_bytes, most=MOST, resolution=wavering
    )


def test_a_straight_line_needs_two_tries():
    found = searched(lambda batch: 1000 + 30 * batch, 10_000, sample_bytes=20)
    assert (found.predicted, found.confirmed, found.too_large) == (300, 300, 301)
    assert [each.batch for each in found.tried] == [8, 16, 300, 301]


def test_small_batches_that_show_no_difference_leave_the_analytic_need():
    """As on a host where building takes more than the step does."""
    found = searched(lambda batch: max(5000, 1000 + 30 * batch), 10_000, sample_bytes=30)
    assert (found.confirmed, found.too_large) == (300, 301)


def test_a_device_that_runs_out_silently_is_bracketed():
    found = searched(lambda batch: 30 * batch * (1.1 if batch > 200 else 1.0), 9_000, sample_bytes=30, silent=True)
    assert (found.confirmed, found.too_large) == (272, 273)
    assert found.predicted == 300


def test_where_peaks_waver_a_few_percent_are_near_enough():
    found = searched(
        lambda batch: (1000 + 30 * batch) * (1 + (batch * 7919 % 11 - 5) / 200), 10_000, sample_bytes=20, wavering=0.05
    )
    assert found.confirmed == pytest.approx(300, rel=0.1)
    assert isinstance(found.too_large, int)
    assert found.confirmed < found.too_large <= 1.05 * found.confirmed
    assert len(found.tried) <= 8


def test_nothing_fits():
    found = searched(lambda batch: 2000 + batch, 1_000, sample_bytes=1)
    assert (found.confirmed, found.too_large) == (0, 1)


def test_everything_fits():
    attempt = memory_of(lambda batch: 10, 10**12)
    first = [attempt(1, 0), attempt(2, 0)]
    found = largest_batch(attempt, first=first, limit_bytes=10**12, sample_bytes=1, most=64)
    assert (found.predicted, found.confirmed) == (64, 64)
    assert isinstance(found.too_large, Absent)


def test_what_was_not_tried_is_not_shown_not_to_fit():
    def careful(batch: int, expected_bytes: float) -> TriedBatch:
        if expected_bytes > 9_500:
            return TriedBatch(batch=batch, outcome=NOT_TRIED, peak_bytes=Absent("too much"), reason="")
        return TriedBatch(batch=batch, outcome="ok", peak_bytes=100 * batch, reason="")

    first = [careful(8, 0), careful(16, 0)]
    found = largest_batch(careful, first=first, limit_bytes=9_500, sample_bytes=100, most=MOST)
    assert found.confirmed == 95
    assert isinstance(found.too_large, Absent)
    assert found.tried[-1].outcome == NOT_TRIED


@given(
    base=st.integers(0, 10**9),
    slope=st.integers(1, 10**7),
    bend=st.floats(0.7, 1.5),
    at=st.integers(1, 4000),
    limit=st.integers(10**3, 10**10),
    silent=st.booleans(),
)
def test_what_is_confirmed_fits_and_what_is_exact_is_the_largest(base, slope, bend, at, limit, silent):
    def peak_of(batch: int) -> float:
        return base + slope * (batch if batch <= at else at + (batch - at) * bend)

    attempt = memory_of(peak_of, limit, silent=silent)
    own = TriedBatch(batch=4, outcome="ok" if peak_of(4) <= limit else "oom", peak_bytes=int(peak_of(4)), reason="")
    found = largest_batch(attempt, first=[own], limit_bytes=limit, sample_bytes=slope, most=MOST, most_tries=40)
    assert len(found.tried) == len({each.batch for each in found.tried})  # none twice
    if found.confirmed:
        assert peak_of(found.confirmed) <= limit + 1
    if not isinstance(found.too_large, Absent):
        assert int(peak_of(found.too_large)) > limit
    if not silent and found.confirmed < MOST:
        assert found.too_large == found.confirmed + 1
