"""What `doctor` finds out: all that can be tried at once is, and each answer stays with what it is about."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from deepstone.environments.environment import Environment
from deepstone.errors import InternalError
from deepstone.results.environment import Gpu
from deepstone.runner import examine as examining
from deepstone.runner.examine import examine
from deepstone.runner.job import Machine
from deepstone.setups.axes import Value

PATIENCE_S = 30.0


def environment(name: str) -> Environment:
    return Environment(framework=name, version="1.0", python=Path("python"), lock={"python": "3.12"})


@pytest.fixture(autouse=True)
def two_frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"torch": environment("torch"), "jax": environment("jax"), "tensorflow": None}
    monkeypatch.setattr(examining, "installed", lambda: found)


def test_tries_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for all others: one after the other, none would come to an end."""
    tries = 2 * (1 + len(list(examining._features(Machine.here()))))
    together = threading.Barrier(tries, timeout=PATIENCE_S)

    def meet(environment: Environment, machine: Machine, request: dict[str, Value]) -> str:
        together.wait()
        return ""

    monkeypatch.setattr(examining, "try_request", meet)
    found = examine(at_once=tries)
    assert found.frameworks["torch"].runs
    assert found.frameworks["jax"].runs
    assert not found.frameworks["tensorflow"].runs


def test_no_more_at_once_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most = [], []

    def count(environment: Environment, machine: Machine, request: dict[str, Value]) -> str:
        running.append(request)
        most.append(len(running))
        running.pop()
        return ""

    monkeypatch.setattr(examining, "try_request", count)
    examine(at_once=1)
    assert max(most) == 1


def test_an_answer_stays_with_its_question(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(environment: Environment, machine: Machine, request: dict[str, Value]) -> str:
        if environment.framework == "jax":
            return "crashed: no such library"
        return "crashed: illegal instruction" if request.get("precision") == "bf16-mixed" else ""

    monkeypatch.setattr(examining, "try_request", answer)
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
    def fail(environment: Environment, machine: Machine, request: dict[str, Value]) -> str:
        raise InternalError("ours")

    monkeypatch.setattr(examining, "try_request", fail)
    with pytest.raises(InternalError, match="ours"):
        examine(at_once=2)


def test_a_gpu_is_tried_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def note(environment: Environment, machine: Machine, request: dict[str, Value]) -> str:
        asked.append(request.get("device"))
        return ""

    monkeypatch.setattr(examining, "try_request", note)
    monkeypatch.setattr(Machine, "gpus", property(lambda self: [Gpu(index=0, name="a GPU")]))
    examine(at_once=2)
    assert asked.count("gpu:0") == 2
