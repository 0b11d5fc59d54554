"""How long a GPU was busy and what it waited for, from recorded launches and kernels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiler_events import call, kernel, launched, recording, window

from deepstone.backends.torch.device import (
    DeviceTime,
    device_time,
    kind_of_call,
    last_end_s,
    launched_kernels,
    summarize_calls,
)


def test_a_kernel_that_was_launched_in_time_waits_for_the_one_before_it():
    found = device_time([launched(1, 3, launch_end_s=0.5), launched(4, 6, launch_end_s=0.9)])
    assert found == DeviceTime(span_s=5, busy_s=4, waiting_for_host_s=0, between_kernels_s=1, unknown_s=0)


def test_a_late_launch_lets_the_device_wait_for_the_host_until_it_has_returned():
    found = device_time([launched(1, 3, launch_end_s=0.5), launched(7, 8, launch_end_s=6)])
    assert found == DeviceTime(span_s=7, busy_s=3, waiting_for_host_s=3, between_kernels_s=1, unknown_s=0)


def test_kernels_in_two_streams_count_once():
    found = device_time(
        [launched(0, 4, launch_end_s=0), launched(1, 3, launch_end_s=0), launched(2, 6, launch_end_s=0)]
    )
    assert (found.busy_s, found.span_s) == (6, 6)


def test_a_launch_that_was_not_seen_is_neither():
    found = device_time([launched(0, 1, launch_end_s=0), launched(3, 4, launch_end_s=None)])
    assert found == DeviceTime(span_s=4, busy_s=2, waiting_for_host_s=0, between_kernels_s=0, unknown_s=2)


def test_no_kernels():
    assert device_time([]).span_s == 0


moments = st.floats(0, 100, allow_nan=False)
drawn = st.builds(
    lambda start_s, length_s, launch_end_s: launched(start_s, start_s + length_s, launch_end_s),
    moments,
    st.floats(0, 10),
    st.none() | moments,
)


@given(st.lists(drawn, max_size=40))
def test_busy_and_idle_are_the_span(kernels):
    found = device_time(kernels)
    parts = (found.busy_s, found.waiting_for_host_s, found.between_kernels_s, found.unknown_s)
    assert all(part >= 0 for part in parts)
    assert found.busy_s <= found.span_s * (1 + 1e-9)
    assert sum(parts) == pytest.approx(found.span_s, abs=1e-9)


class TestLaunched:
    def test_a_kernel_belongs_to_the_step_and_phase_of_its_launch_however_late_it_runs(self):
        events = [
            call(1, 0.1, 0.2),
            call(2, 1.2, 1.3),
            call(3, 2.5, 2.6),
            kernel(1, 0.3, 1.4),
            kernel(2, 1.4, 2.9),
            kernel(3, 2.9, 3.5),
        ]
        seen = launched_kernels(recording(events, window(0, forward=1), window(1, forward=1, backward=1)))
        assert [(each.step, each.phase) for each in seen] == [(0, "forward"), (1, "forward"), (1, "backward")]
        assert last_end_s(seen, 0) == 1.4
        assert last_end_s(seen, 1) == 3.5

    def test_without_a_launch_it_goes_with_the_one_before(self):
        events = [kernel(8, 0.0, 0.1), call(1, 1.1, 1.2), kernel(1, 1.3, 1.4), kernel(9, 1.5, 1.6)]
        seen = launched_kernels(recording(events, window(0, forward=1), window(1, forward=1)))
        assert [(each.event.correlation, each.step) for each in seen] == [(1, 1), (9, 1)]

    def test_what_was_launched_outside_of_steps_is_left_out(self):
        events = [call(1, 5.1, 5.2), kernel(1, 5.3, 5.4)]
        assert launched_kernels(recording(events, window(0, forward=1), window(1, forward=1))) == []


KINDS_OF_CALLS = {
    "launch": ["cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch"],
    "malloc": ["cudaMalloc", "cudaMallocAsync", "cudaHostAlloc", "cuMemAlloc_v2"],
    "free": ["cudaFree", "cudaFreeHost"],
    "synchronize": ["cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"],
    "copy": ["cudaMemcpyAsync"],
    "other": ["cudaMemsetAsync", "cudaEventRecord", "cudaStreamWaitEvent"],
}


@pytest.mark.parametrize(("kind", "names"), KINDS_OF_CALLS.items())
def test_kinds_of_calls(kind: str, names: list[str]):
    assert {kind_of_call(name) for name in names} == {kind}


def test_calls_are_summed_up_longest_first():
    calls = [call(1, 0, 1), call(2, 4, 4.5), call(3, 5, 9, name="cudaFree")]
    assert summarize_calls(calls) == [
        {"name": "cudaFree", "kind": "free", "count": 1, "total_s": 4.0},
        {"name": "cudaLaunchKernel", "kind": "launch", "count": 2, "total_s": 1.5},
    ]
