"""What the controller makes of replies: typed objects, and an outcome with the place where a worker breaks the
protocol."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_jobs import fake_job

from deepstone.absent import Absent
from deepstone.errors import MissingError
from deepstone.results.layers import Kernel
from deepstone.results.record import Effect
from deepstone.runner.conversation import Conversation, JobFailed

BLOCK = {"start_s": 1, "steps_per_sample": 2, "step_s": [0.1, 0.2], "enqueue_s": 0.3, "total_s": 0.6, "cpu_s": 0.1}
HELLO = {"protocol": 1, "pid": 7, "python": "3.11.2", "framework": {"version": "1"}, "import_s": 0.5}
PREPARED = {
    "build_s": 1.0,
    "first_step_s": 0.5,
    "effective": {"threads": {"value": 2, "source": "observed"}},
    "details": {"gpu_uuid": "GPU-1", "onednn_by_layer": [["conv", ["forward: jit"]]], "own": {"more": [1]}},
    "phases": ["forward"],
}
FACTS = {"algorithms": [["a", "direct"]], "picked": "a", "device": "cpu", "precision": "fp32", "layout": "nchw"}
TRACE = {
    "kernels": [{"name": "k", "kind": "kernel", "count": 2, "total_s": 0.5, "layers": ["conv"]}],
    "calls": {"absent": "none"},
    "busy_s": 0.5,
    "span_s": 1.0,
    "idle": {"waiting for the host": 0.5},
}


class Worker:
    """Says what it is told to say."""

    def __init__(self, reply: object) -> None:
        self._reply = reply
        self._asked = ""
        self.stopped = False

    def send(self, message: dict[str, Any], *, deadline_s: float) -> None:
        self._asked = message["do"]

    def receive(self, *, deadline_s: float) -> Any:
        return {"event": self._asked, **self._reply} if isinstance(self._reply, dict) else self._reply

    def stop(self) -> None:
        self.stopped = True

    def trim_output(self) -> None: ...

    def output_tail(self) -> str:
        return "what it printed"


def talk_to(reply: object, tmp_path: Path) -> tuple[Any, Worker]:
    worker: Any = Worker(reply)
    return Conversation(worker, fake_job(), scratch=tmp_path, deadline_s=time.monotonic() + 10), worker


def test_replies_are_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DEEPSTONE_CACHE", str(tmp_path))
    hello = talk_to(HELLO, tmp_path)[0].hello()
    assert (hello.pid, hello.framework) == (7, {"version": "1"})
    prepared = talk_to(PREPARED, tmp_path)[0].prepare()
    assert prepared.effective == {"threads": Effect(value=2, source="observed")}
    assert (prepared.value("threads"), prepared.phases) == ("2", ("forward",))
    assert prepared.known.gpu_uuid == "GPU-1"
    assert dict(prepared.known.onednn_by_layer) == {"conv": ["forward: jit"]}
    assert prepared.details["own"] == {"more": [1]}
    assert talk_to({**PREPARED, "phases": False}, tmp_path)[0].prepare().phases is None
    assert talk_to(BLOCK, tmp_path)[0].block(samples=2, steps_per_sample=2).steps == 4
    losses = talk_to({"losses": ["1.5", "nan"]}, tmp_path)[0].losses(2)
    assert losses[0] == 1.5
    assert math.isnan(losses[1])
    assert talk_to({**FACTS, "picked": {"absent": "it does not say"}}, tmp_path)[0].convolution(
        "conv", "forward"
    ).picked == Absent("it does not say")
    trace = talk_to(TRACE, tmp_path)[0].trace(3)
    assert (trace.steps, trace.calls) == (3, Absent("none"))
    assert trace.kernels == [Kernel(name="k", kind="kernel", count=2, total_s=0.5, layers=["conv"])]


def test_memory_that_nobody_tells_is_absent(tmp_path: Path):
    memory = {"device_allocated_bytes": {"absent": "no device"}, "host_growth_bytes": 5, "host_peak_bytes": 9}
    told = {"memory": memory, "available_bytes": {"absent": "not told"}}
    peak = talk_to(told, tmp_path)[0].memory_peak(1)
    assert (peak.step_bytes, peak.whole_bytes, peak.available_bytes) == (5, 9, Absent("not told"))
    del memory["host_peak_bytes"]
    assert isinstance(talk_to(told, tmp_path)[0].memory_peak(1).whole_bytes, Absent)


@pytest.mark.parametrize(
    ("reply", "ask", "reason"),
    [
        ({**HELLO, "pid": "x"}, lambda talk: talk.hello(), "pid: must be a whole number, not 'x'"),
        ({"pid": 7}, lambda talk: talk.hello(), "framework: is missing"),
        ({**BLOCK, "step_s": [0.1, "x"]}, lambda talk: talk.block(samples=2), "step_s[1]: must be a finite number"),
        ({**BLOCK, "step_s": []}, lambda talk: talk.block(samples=2), "step_s"),
        ({"losses": ["much"]}, lambda talk: talk.losses(1), "much"),
        ({"losses": []}, lambda talk: talk.losses(1), "losses"),
        (
            {"effective": {"threads": {"value": 2, "source": "guessed"}}},
            lambda talk: talk.contradiction(),
            "effective.threads.source: must be one of observed, set",
        ),
        ({"memory": {"host_peak_bytes": "all"}}, lambda talk: talk.memory(), "memory.host_peak_bytes"),
        ({"layers": [["conv", {"kept_bytes": 1}]]}, lambda talk: talk.memory_by_layer(), "workspace_bytes"),
        ({**TRACE, "kernels": [{"name": "k"}]}, lambda talk: talk.trace(1), "kernels[0].kind: is missing"),
        ({"workspace_bytes": 1.5}, lambda talk: talk.attempt("a"), "workspace_bytes"),
        ({"event": "other"}, lambda talk: talk.losses(1), "replied 'other' to losses"),
        ({"event": "failed", "outcome": "bored"}, lambda talk: talk.losses(1), "outcome"),
    ],
)
def test_a_worker_that_breaks_the_protocol_crashed_and_is_stopped(
    tmp_path: Path, reply: dict[str, Any], ask: Callable[[Any], object], reason: str
):
    talk, worker = talk_to(reply, tmp_path)
    with pytest.raises(JobFailed) as failed:
        ask(talk)
    assert failed.value.outcome == "crashed"
    assert reason in failed.value.reason
    assert failed.value.details.stderr_tail == "what it printed"
    assert worker.stopped


def test_a_worker_that_failed_says_why(tmp_path: Path):
    talk, worker = talk_to({"event": "failed", "outcome": "unsupported", "reason": "no such layer"}, tmp_path)
    with pytest.raises(JobFailed, match="no such layer") as failed:
        talk.isolated("conv")
    assert (failed.value.outcome, failed.value.stage, worker.stopped) == ("unsupported", "isolated", False)
    with pytest.raises(MissingError, match="install it"):
        talk_to({"event": "failed", "outcome": "missing", "reason": "install it"}, tmp_path)[0].hello()
