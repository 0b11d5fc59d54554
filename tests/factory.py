"""Valid records for tests, made from the few things a test cares about."""

from __future__ import annotations

import hashlib
from typing import Any

from deepstone.records.identity import job_id, run_id
from deepstone.records.schema import Draft, Record, absent


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def make_draft(
    *,
    model: str = "cifarnet",
    source: str = "zoo",
    batch: int = 8,
    phase: str = "train",
    requested: dict[str, str | int] | None = None,
    repetition: int = 1,
    outcome: str = "ok",
    steps: int = 20,
    step_s: float = 0.0125,
    **top: Any,
) -> Draft:
    """A record without its id. `top` replaces whole top-level values, after identity and job are made."""
    asked = {"framework": "torch", "device": "cpu", "layout": "auto", "threads": 2} if requested is None else requested
    workload = {"model": model, "batch": batch, "phase": phase, "input": "synthetic"}
    identity: Any = {
        "graph_sha": sha(model),
        "workload": workload,
        "requested": asked,
        "environment_sha": sha("environment"),
        "machine_sha": sha("machine"),
        "repetition": repetition,
    }
    measured = outcome == "ok"
    draft: Any = {
        "schema": 1,
        "job": job_id(identity),
        "started_at": "2026-11-15T03:40:12.123456Z",
        "graph_sha": sha(model),
        "command": ["deepstone", "run", model, f"batch={batch}", f"phase={phase}"],
        "identity": identity,
        "workload": {**workload, "source": source, "file_sha256": "" if source == "zoo" else sha(source)},
        "setup": {"requested": dict(asked), "effective": _effective(asked)},
        "outcome": outcome,
        "failure": absent("the run is ok") if measured else _failure(outcome),
        "samples": _samples(steps, step_s) if measured else {"launches": [], "warmup_steps": 0},
        "summary": _summary(batch, steps, step_s) if measured else absent(outcome),
        "phases": _phases(steps, step_s) if measured else absent(outcome),
        "startup": {"import_s": 1.25, "build_s": 0.5, "compile_s": absent("nothing is compiled")},
        "memory": {"host_peak_bytes": 123_456_789, "device_peak_bytes": absent("the device is the host")},
        "energy": absent("no counter on this machine"),
        "cost": {"flops": 1_234_567_890, "bytes": 9_876_543},
        "share_of_peak": absent("the peak is not known"),
        "environment": {
            "machine": {"hostname": "node01", "user": "alice", "cpu": "Example CPU", "cores": 2},
            "framework": {"name": "torch", "version": "2.9.0", "file": "/home/alice/env/lib/torch/__init__.py"},
        },
        "comparison": absent("measured alone"),
        "doubts": [{"code": "few_samples", "detail": "20 samples"}],
    }
    return {**draft, **top}


def make_record(*, attempt: int = 1, **settings: Any) -> Record:
    draft: Any = make_draft(**settings)
    return {**draft, "id": run_id(draft["job"], attempt)}


def _effective(asked: dict[str, str | int]) -> dict[str, Any]:
    resolved = {axis: "nchw" if value == "auto" else value for axis, value in asked.items()}
    return {axis: {"value": value, "source": "observed"} for axis, value in resolved.items()}


def _failure(outcome: str) -> dict[str, Any]:
    return {
        "reason": f"the worker ended: {outcome}",
        "stage": "block",
        "stderr_tail": 'Traceback …\n  File "/home/alice/net.py", line 3\n',
        "signal": "SIGSEGV",
        "exit_code": -11,
    }


def _samples(steps: int, step_s: float) -> dict[str, Any]:
    times = [step_s * (1 + 0.001 * (i % 7)) for i in range(steps)]
    block = {"start_s": 0.25, "steps_per_sample": 1, "step_s": times}
    return {"launches": [{"ranks": [{"blocks": [block]}], "warmup_steps": 5}], "warmup_steps": 5}


def _quantity(value: float, n: int) -> dict[str, Any]:
    return {"median": value, "low": value * 0.99, "high": value * 1.01, "n": n}


def _summary(batch: int, steps: int, step_s: float) -> dict[str, Any]:
    return {
        "step_s": _quantity(step_s, steps),
        "samples_per_s": _quantity(batch / step_s, steps),
        "sustained_samples_per_s": 0.98 * batch / step_s,
        "interval": "within process",
        "stopped": "the interval is narrow enough",
    }


def _phases(steps: int, step_s: float) -> dict[str, Any]:
    return {
        "data_s": absent("the data is on the device already"),
        "forward_s": _quantity(step_s / 3, steps),
        "backward_s": _quantity(step_s / 2, steps),
        "communication_s": absent("one process"),
        "update_s": {"median": -1e-6, "low": -2e-6, "high": 1e-6, "n": steps},
        "method": "by difference",
    }
