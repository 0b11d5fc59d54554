"""What `doctor` finds out: all that can be tried at once is, and each answer stays with what it is about."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_jobs import Script

from deepstone.environments.environment import Environment
from deepstone.environments.find import find_environment
from deepstone.errors import InternalError
from deepstone.results.environment import Gpu
from deepstone.runner import examine as examining
from deepstone.runner.examine import examine, try_requests
from deepstone.runner.job import Machine
from deepstone.setups.axes import Value

PATIENCE_S = 30.0


def environment(name: str) -> Environment:
    return Environment(framework=name, version="1.0", program=Path("python"), lock={"python": "3.12"})


@pytest.fixture(autouse=True)
def two_frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"torch": environment("torch"), "jax": environment("jax"), "tensorflow": None}
    monkeypatch.setattr(examining, "installed", lambda: found)


def test_frameworks_are_tried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the other: one after the other, none would come to an end."""
    together, met = threading.Barrier(2, timeout=PATIENCE_S), set[str]()

    def meet(environment: Environment, machine: Machine, requests: Sequence[dict[str, Value]]) -> list[str]:
        if environment.framework not in met:
            met.add(environment.framework)
            together.wait()
        return [""] * len(requests)

    monkeypatch.setattr(examining, "try_requests", meet)
    found = examine(at_once=9)
    assert found.frameworks["torch"].runs
    assert found.frameworks["jax"].runs
    assert not found.frameworks["tensorflow"].runs


def test_no_more_at_once_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most = [], []

    def count(environment: Environment, machine: Machine, requests: Sequence[dict[str, Value]]) -> list[str]:
        running.append(requests)
        most.append(len(running))
        running.pop()
        return [""] * len(requests)

    monkeypatch.setattr(examining, "try_requests", count)
    examine(at_once=1)
    assert max(most) == 1


def test_an_answer_stays_with_its_question(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(environment: Environment, machine: Machine, requests: Sequence[dict[str, Value]]) -> list[str]:
        if environment.framework == "jax":
            return ["crashed: no such library"] * len(requests)
        failing = [request.get("precision") == "bf16-mixed" for request in requests]
        return ["crashed: illegal instruction" if fails else "" for fails in failing]

    monkeypatch.setattr(examining, "try_requests", answer)
    told: list[float] = []
    found = examine(lambda stage, share: told.append(share), at_once=3)
    assert not found.frameworks["jax"].runs
    assert found.frameworks["jax"].why == "crashed: no such library"
    features = found.frameworks["torch"].features
    assert features is not None
    assert {name: feature.works for name, feature in features.items()}["bf16 on the CPU"] is False
    assert features["oneDNN"].works
    assert "torch: bf16 on the CPU" in [entry.what for entry in found.missing]
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_what_goes_wrong_in_a_try_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(environment: Environment, machine: Machine, requests: Sequence[dict[str, Value]]) -> list[str]:
        raise InternalError("ours")

    monkeypatch.setattr(examining, "try_requests", fail)
    with pytest.raises(InternalError, match="ours"):
        examine(at_once=2)


def test_a_gpu_is_tried_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def note(environment: Environment, machine: Machine, requests: Sequence[dict[str, Value]]) -> list[str]:
        asked.extend(request.get("device") for request in requests)
        return [""] * len(requests)

    monkeypatch.setattr(examining, "try_requests", note)
    monkeypatch.setattr(Machine, "gpus", property(lambda self: [Gpu(index=0, name="a GPU")]))
    examine(at_once=2)
    assert asked.count("gpu:0") == 2


@pytest.mark.parametrize(("kind", "told"), [("segfault", "crashed"), ("unsupported", "unsupported")])
def test_one_that_ends_the_process_spares_the_others(script: Script, kind: str, told: str) -> None:
    """Every process fails in its first network: each try gets an answer of its own."""
    script(fault={"at": "build", "kind": kind})
    answers = try_requests(find_environment("fake"), Machine.here(), [{"framework": "fake"}] * 3)
    assert len(answers) == 3
    assert all(answer.startswith(told) for answer in answers)
