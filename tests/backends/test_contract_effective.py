"""The contract of effective values: whatever a backend is asked for, it did that, cannot do that, or does not know.

One worker of each backend is asked for every value of every axis, job after job. tests/backends/test_dropped_options.py
has the same backends on frameworks that drop what they are asked for.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping

import pytest
from frameworks import FORWARD_ONLY, FURTHER, LEGACY, environment_of
from tiny_jobs import tiny_job

from deepstone.runner.conversation import JobFailed, talking_to_worker
from deepstone.setups.axes import AUTO, AXES, Value
from deepstone.setups.effective import EffectiveValue, contradiction
from deepstone.worker.serve import ALONE

TIMEOUT_S = 1800.0
CHOSEN = ("device", "precision", "layout", "engine", "algorithm", "compile")
NOT_COMPILED_HERE = ("torch",)  # it takes a minute; tests/backends/test_torch_setup.py does

# What holds for a whole process, and so for every job of a worker.
WHOLE_PROCESS: dict[str, Value] = {"threads": 1, "affinity": str(max(os.sched_getaffinity(0)))}
FURTHER_LIMITS: dict[str, dict[str, Value]] = {
    "torch": {"inter_threads": 1, "isa": "avx2"},
    "tensorflow": {"inter_threads": 1, "isa": "avx2"},
    "onnxruntime": {"inter_threads": 1},
}

# The axes of which each backend reads back what was done, on a CPU. Of the rest it says so: they are `set`.
READ_BACK = {
    "fake": set[str](),
    "torch": {
        *("device", "precision", "layout", "engine", "algorithm", "compile"),
        *("threads", "inter_threads", "affinity", "isa", "space_to_depth"),
    },
    "tensorflow": {
        *("device", "precision", "layout", "engine", "compile"),
        *("threads", "inter_threads", "affinity"),
    },
    "jax": {"device", "precision", "layout", "engine", "compile", "threads", "affinity"},
    "mxnet": {"device", "precision", "threads", "affinity"},
    "chainer": {"device", "precision", "engine", "threads", "affinity"},
}
LEAST = {"precision", "affinity"}  # of every other

Effects = Mapping[str, EffectiveValue]
SUBJECTS = ("fake", "torch", "tensorflow", "jax", *FURTHER, *LEGACY, *FORWARD_ONLY)
# Their own files ask for every value, too, of a worker that they share with other suites.
LEFT_TO_TEST_ALL = ("tensorflow", "jax")
every_backend = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.deep] * (name in LEFT_TO_TEST_ALL)) for name in SUBJECTS]
)


@functools.cache
def asked_and_done(name: str) -> list[tuple[str, Value, Effects | JobFailed, str | None]]:
    """Each axis, the value asked for, what was done or why not, and how that contradicts what was asked."""
    found: list[tuple[str, Value, Effects | JobFailed, str | None]] = []
    base: dict[str, Value] = {**WHOLE_PROCESS, **FURTHER_LIMITS.get(name, {})}
    if name in FORWARD_ONLY:
        base["phase"] = "forward"
    plain = tiny_job(name, environment=environment_of(name), **base)
    left = [("", ""), *((axis, value) for axis in CHOSEN for value in values_of(axis))]
    while left:
        with talking_to_worker(plain, timeout_s=TIMEOUT_S) as talk:
            talk.hello()
            while left:
                tried, value = left.pop(0)
                job = tiny_job(name, environment=plain.environment, **{**base, **({tried: value} if tried else {})})
                if job.broken_rule or (tried == "compile" and value != "off" and name in NOT_COMPILED_HERE):
                    continue
                try:
                    effective = talk.prepare(job).effective
                except JobFailed as failure:
                    found.append((tried, value, failure, None))
                    if "Error: " in failure.reason:  # it failed while it ran, so no job comes after it, as in a run
                        break
                else:
                    found.append((tried, value, effective, contradiction(job.request, effective)))
    return found


def values_of(axis: str) -> list[str]:
    return ["cpu"] if axis == "device" else [value for value in AXES[axis].values if value != AUTO]


@every_backend
def test_what_was_done_is_what_was_asked_or_was_refused(name: str):
    for axis, value, done, reason in asked_and_done(name):
        if isinstance(done, JobFailed):
            assert done.outcome == "unsupported", (axis, value, done.reason)
        elif axis == "engine":  # whether a library has kernels for a network shows when it runs
            assert reason in (None, f"asked for engine={value}, but got {done['engine'].value}")
        else:
            assert reason is None, (axis, value)


@every_backend
def test_something_was_done(name: str):
    """So that no backend passes by refusing everything."""
    _, _, plain, _ = asked_and_done(name)[0]
    assert not isinstance(plain, JobFailed)


@every_backend
def test_what_can_be_read_back_is(name: str):
    expected = READ_BACK.get(name, LEAST)
    for axis, value, done, _ in asked_and_done(name):
        if isinstance(done, JobFailed):
            continue
        read_back = {axis for axis, effect in done.items() if effect.source == "observed"}
        assert expected <= read_back, (axis, value)


@every_backend
def test_what_was_not_read_back_does_not_claim_to_be(name: str):
    if name not in READ_BACK:
        pytest.skip("its list of what it reads back is not kept here")
    may_be = READ_BACK[name] | {"framework", "algorithm"} | set(ALONE)  # the worker itself sees that it is alone
    for axis, value, done, _ in asked_and_done(name):
        if not isinstance(done, JobFailed):
            read_back = {axis for axis, effect in done.items() if effect.source == "observed"}
            assert read_back <= may_be, (axis, value)
