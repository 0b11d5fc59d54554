"""Valid records for tests, made from the few things a test cares about."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from deepstone.measure.statistics import Quantity, median_of
from deepstone.results import codec
from deepstone.results import record as results
from deepstone.results.identity import canonical_json, canonical_sha256, run_id
from deepstone.results.plain import parse_json
from deepstone.results.redact import PrivateNames, redact_record

WARMUP = 5
SPREAD = (0.99, 1.01, 1.0, 0.99, 1.01)  # so that the interval of some dozens of samples is ± 1 %


# In effect where a request leaves it open, on some CPU.
IN_EFFECT = {
    "framework": "torch@2.13.0",
    "device": "cpu",
    "precision": "fp32",
    "layout": "nchw",
    "engine": "onednn",
    "algorithm": "heuristic",
    "compile": "off",
    "threads": 2,
    "inter_threads": 2,
    "affinity": "0-1",
    "isa": "avx512_core",
}

# An axis, what was asked for, and what was done instead.
CONTRADICTIONS: tuple[tuple[str, str | int, str | int], ...] = (
    ("device", "gpu:0", "cpu"),
    ("precision", "bf16-mixed", "fp32"),
    ("engine", "cudnn", "native"),
    ("algorithm", "deterministic", "heuristic"),
    ("compile", "default", "off"),
    ("threads", 4, 2),
    ("inter_threads", 2, 1),
    ("isa", "avx2", "avx512_core"),
)

JsonRecord: TypeAlias = dict[str, Any]


def absent(reason: str) -> dict[str, str]:
    return {"absent": reason}


def is_absent(value: object) -> bool:
    return isinstance(value, dict) and "absent" in value


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def put(content: Any, place: Sequence[str | int], value: object) -> Any:
    """The content with the value at that place in it."""
    *holders, last = place
    holder = content
    for step in holders:
        holder = holder[step]
    holder[last] = value
    return content


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
) -> JsonRecord:
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
    samples = _samples(steps, step_s)
    steady = samples["launches"][0]["ranks"][0]["blocks"][0]["step_s"][WARMUP:]
    step = median_of([[steady]])
    draft: Any = {
        "schema": 1,
        "job": canonical_sha256(identity),
        "started_at": "2026-11-15T03:40:12.123456Z",
        "graph_sha": sha(model),
        "command": ["deepstone", "run", model, f"batch={batch}", f"phase={phase}"],
        "identity": identity,
        "workload": {**workload, "source": source, "file_sha256": "" if source == "zoo" else sha(source)},
        "setup": {"requested": dict(asked), "effective": _effective(asked)},
        "outcome": outcome,
        "failure": absent("the run is ok") if measured else _failure(outcome),
        "samples": samples if measured else {"launches": [], "warmup_steps": 0},
        "summary": _summary(batch, step, steady) if measured else absent(outcome),
        "phases": _phases(steps, step_s) if measured else absent(outcome),
        "startup": {"import_s": 1.25, "build_s": 0.5, "compile_s": absent("nothing is compiled")},
        "memory": {"host_peak_bytes": 123_456_789, "device_peak_bytes": absent("the device is the host")},
        "energy": absent("no counter on this machine"),
        "cost": {"flops": 1_234_567_890, "bytes": 9_876_543},
        "share_of_peak": absent("the peak is not known"),
        "environment": {
            "machine": {"hostname": "node01", "cpu": {"model": "Example CPU", "usable_cores": 2}},
            "framework": {
                "name": "torch",
                "version": "2.9.0",
                "user": "alice",
                "file": "/home/alice/env/lib/torch/__init__.py",
            },
        },
        "comparison": absent("measured alone"),
        "doubts": [{"code": "too_short_to_time", "detail": "a sample takes 20 µs"}],
    }
    return {**draft, **top}


def make_record(*, attempt: int = 1, **settings: Any) -> JsonRecord:
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
    times = [step_s * SPREAD[i % len(SPREAD)] for i in range(steps)]
    block = {"start_s": 0.25, "steps_per_sample": 1, "step_s": [2 * step_s] * WARMUP + times}
    return {"launches": [{"ranks": [{"blocks": [block]}], "warmup_steps": WARMUP}], "warmup_steps": WARMUP}


def _quantity(value: float, n: int) -> dict[str, Any]:
    return {"median": value, "low": value * 0.99, "high": value * 1.01, "n": n}


def _summary(batch: int, step: Quantity, steady: list[float]) -> dict[str, Any]:
    """As a run would find it: what is imported is computed again."""
    return {
        "step_s": step.to_json(),
        "samples_per_s": step.inverse(batch).to_json(),
        "sustained_samples_per_s": batch * len(steady) / sum(steady),
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


def typed_draft(**settings: Any) -> results.Draft:
    """The same as an object. What a test makes wrong may stay wrong: only the store refuses it."""
    return codec.convert(make_draft(**settings), results.Draft)


def typed_record(**settings: Any) -> results.Record:
    return codec.convert(make_record(**settings), results.Record)


def typed_records(records: Iterable[Any]) -> list[results.Record]:
    """Without the checks of a record from elsewhere: tests change single values of theirs."""
    return [codec.convert(record, results.Record) for record in records]


def decode_record(data: bytes) -> results.Record:
    return codec.as_record(parse_json(data))


def typed(content: Any) -> results.Record:
    """JSON that a test has changed, as the checked object that it must still be."""
    return codec.as_record(content)


def sealed(content: Any, what: str = "record") -> bytes:
    """The file of what may be no record at all, with a checksum that fits."""
    body = canonical_json(content)
    return f'{{"{what}":{body},"sha256":"{sha(body)}"}}\n'.encode()


def check_record(content: Any) -> Any:
    """The same JSON, known to be a record."""
    codec.as_record(content)
    return content


def redact(content: Any, names: PrivateNames) -> Any:
    return redact_record(codec.as_record(content), names).to_json()
