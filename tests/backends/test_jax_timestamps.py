"""The timestamps of a host that stays one sample ahead, against a device and a clock that are played."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from deepstone.backends.jax.timestamps import OneAheadTimestamps


class Device:
    """Works off samples one after the other; the host hands one over, and its clock runs on only where it is told."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.free_s = 100.0
        self.last: Output | None = None

    def sample(self, host_s: float, device_s: float) -> None:
        self.now_s += host_s
        self.free_s = max(self.free_s, self.now_s) + device_s
        self.last = Output(self, self.free_s)


class Output:
    def __init__(self, device: Device, done_s: float) -> None:
        self._device = device
        self._done_s = done_s

    def is_ready(self) -> bool:
        return self._device.now_s >= self._done_s

    def block_until_ready(self) -> None:
        self._device.now_s = max(self._device.now_s, self._done_s)


def timed(samples: Sequence[tuple[float, float]]) -> tuple[list[float], float]:
    """The gaps for samples of (host, device) seconds, and how long setting timestamps has waited."""
    device = Device()

    def clock() -> float:
        device.now_s += 1e-7  # no two readings are the same
        return device.now_s

    timestamps = OneAheadTimestamps(len(samples) + 1, clock, lambda: device.last)
    timestamps.set(0)
    for position, (host_s, device_s) in enumerate(samples, start=1):
        device.sample(host_s, device_s)
        timestamps.set(position)
    waited_s = timestamps.waited_s
    timestamps.finish()
    assert timestamps.waited_s == waited_s  # the last wait is not part of handing over
    return timestamps.gaps_s(), waited_s


def test_a_slow_device_is_timed_by_its_own_work():
    gaps, waited_s = timed([(0.1, 1.0)] + [(0.1, 1.0), (0.1, 2.0)] * 4)
    assert gaps == pytest.approx([1.1] + [1.0, 2.0] * 4, abs=1e-5)
    assert waited_s == pytest.approx(13 - 2 - 0.9, abs=0.2)


def test_a_slow_host_is_timed_by_its_own_work():
    gaps, waited_s = timed([(1.0, 0.1)] * 8)
    assert gaps == pytest.approx([1.0] * 7 + [1.1], abs=1e-5)  # at the end, the device is waited for
    assert waited_s == 0.0


def test_what_runs_at_once_is_timed_as_it_is():
    gaps, _ = timed([(1.0, 0.0), (3.0, 0.0), (2.0, 0.0)])
    assert gaps == pytest.approx([1.0, 3.0, 2.0], abs=1e-5)


def test_a_host_that_was_held_up_gives_no_sample_the_time_of_none():
    """Device and host in turns the slower one: no gap is empty or negative, and they add up."""
    samples = [(0.1, 1.0), (0.1, 1.0), (3.0, 1.0), (0.1, 1.0), (2.5, 0.2), (2.5, 0.2), (0.1, 1.0), (0.1, 1.0)]
    gaps, _ = timed(samples)
    assert min(gaps) > 0.05
    assert max(gaps) < 4.0
    assert sum(gaps) == pytest.approx(12.3, abs=1e-4)  # when the device was done with all of them
