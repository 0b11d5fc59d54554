"""What was done against what was asked: effective values may refine `auto`, and contradict nothing."""

from __future__ import annotations

from itertools import permutations

import pytest
from factory import CONTRADICTIONS, IN_EFFECT

from deepstone.results.record import Effect
from deepstone.setups.axes import AUTO, AXES, Value
from deepstone.setups.effective import contradiction
from deepstone.setups.request import complete

RESOLVED: dict[str, Value] = {
    **IN_EFFECT,
    "inter_threads": 1,
    "allocator": "glibc",
    "wait": "passive",
    "power_limit": 300,
    "processes": 2,
    "launcher": "local",
    "scheme": "pipeline",
    "servers": 2,
    "pipeline": 2,
    "microbatches": 4,
    "schedule": "1f1b",
    "library": "mpi4py",
    "transport": "gloo",
    "collective": "allreduce",
    "interface": "lo",
    "overlap": "on",
    "bucket": 25,
}


def effective(**done: Value) -> dict[str, Effect]:
    values = {**complete({}), **RESOLVED, **done}
    return {name: Effect(value=value, source="observed") for name, value in values.items()}


def test_auto_takes_whatever_was_done():
    assert contradiction(complete({}), effective()) is None


@pytest.mark.parametrize("name", [name for name, axis in AXES.items() if axis.default == "auto"])
def test_what_was_asked_for_and_done_is_right(name: str):
    assert contradiction(complete({name: RESOLVED[name]}), effective()) is None


@pytest.mark.parametrize(
    ("name", "asked", "done"),
    [
        *CONTRADICTIONS,
        *(
            ("framework", other, "torch@2.13.0")
            for other in ("fake", "torch@2.12.0", "torch@2.1-cluster", "torch@2.13.01")
        ),
        *(
            (axis.name, *two)
            for axis in AXES.values()
            if axis.type == "choice" and axis.name != "isa"  # which is a limit
            for two in permutations([value for value in axis.values if value != AUTO], 2)
        ),
        ("device", "gpu:1", "gpu:0"),
        ("batch", 16, 8),
        ("affinity", "0", "0-1"),
        ("isa", "avx2", "unheard-of"),
        ("seed", 1, 0),
    ],
)
def test_a_contradiction_says_both(name: str, asked: Value, done: Value):
    reason = contradiction(complete({name: asked}), effective(**{name: done}))
    assert reason == f"asked for {name}={asked}, but got {done}"


@pytest.mark.parametrize("done", ["sse41", "avx", "avx2"])
def test_an_instruction_set_is_a_limit(done: str):
    assert contradiction(complete({"isa": "avx2"}), effective(isa=done)) is None


@pytest.mark.parametrize("asked", ["torch", "torch@2.13.0", "torch@2.13.0+cpu", "torch@2.13.0-cluster"])
def test_a_framework_may_be_asked_for_with_or_without_version_build_and_variant(asked: str):
    """`environments` finds the version with its build tag or variant, so asking for it is not refused in the end."""
    assert contradiction(complete({"framework": asked}), effective()) is None


@pytest.mark.parametrize("name", AXES)
def test_silence_about_an_axis_is_a_contradiction(name: str):
    done = effective()
    del done[name]
    assert contradiction(complete({}), done) == f"the backend does not say what it did about {name}"
