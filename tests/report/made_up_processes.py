"""Made-up results of several processes: a run with a timeline, and an answer of `scale`."""

from __future__ import annotations

from typing import Any

from factory import make_record
from made_up import absent, quantity

STEP_S = 0.013


def several_record(*, ranks: int = 2, **top: Any) -> dict[str, Any]:
    """Rank 0 computes 2 ms less than the others, and waits; two buckets overlap."""
    spans = [
        ["data", 0, 0],
        ["forward", 0, 3],
        ["backward", 3, 9],
        ["reduce", 5, 8],
        ["reduce", 7, 11],
        ["unpack", 11, 12],
        ["update", 12, 13],
    ]
    early = [*spans[:2], ["backward", 3, 7], *spans[3:], ["waiting", 7, 9]]
    lanes = [{"rank": rank, "spans": [_span(*each) for each in (spans if rank else early)]} for rank in range(ranks)]
    account: Any = {
        "total_s": quantity(6e-3),
        "waiting_s": quantity(1e-3),
        "tail_s": quantity(2e-3),
        "slowdown_s": quantity(2.5e-3),
        "packing_s": quantity(1e-3),
        "buffers_s": quantity(0.0, 0.0),
        "residual_s": {"median": -0.5e-3, "low": -1e-3, "high": 1e-3, "n": 40},
        "in_flight_s": quantity(6e-3),
        "traced_step_s": quantity(STEP_S),
        "ranks": [{name: quantity(1e-3) for name in ("waiting_s", "tail_s", "slowdown_s")} for _ in range(ranks)],
        "method": "made up",
    }
    communication = {
        "exposed_s": quantity(5e-3),
        "waiting_s": [quantity(1e-3)] * ranks,
        "meeting_s": 1e-4,
        "alone_s": quantity(7e-3),
        "hidden_share": 0.3,
        "local_step_s": quantity(7e-3),
        "method": "made up",
        "account": account,
    }
    facts = {"node": 0, "device": "cpu", "threads": 1, "cpus": "0", "host_peak_bytes": 1000}
    parallel = {
        "world": ranks,
        "nodes": 1,
        "local_batch": 4,
        "launcher": {"name": "local", "version": "1", "argv": []},
        "ranks": [{"rank": rank, **facts} for rank in range(ranks)],
        "buckets": [{"bytes": 1000}, {"bytes": 2000}],
        "communication": communication,
        "rates": absent("made up"),
        "timeline": {"step_s": STEP_S, "lanes": lanes},
    }
    return {**make_record(batch=4 * ranks), "parallel": parallel, **top}


def _span(kind: str, begin_ms: float, end_ms: float) -> dict[str, Any]:
    size = {"bytes": 2**20} if kind == "reduce" else {}
    return {"kind": kind, "begin_s": begin_ms / 1e3, "end_s": end_ms / 1e3, **size}


def scale_result() -> dict[str, Any]:
    """Two processes are 1.8 times as fast as one, and four 3 times; waiting is below 0 there."""
    return {
        "schema": 1,
        "kind": "scale",
        "model": "cifarnet",
        "mode": "strong",
        "command": ["deepstone", "scale", "cifarnet", "processes=1,2,4", "batch=96"],
        "base": {"setup": "threads=1", "samples_per_s": [100.0, 101.0], "step": step(0.1), "runs": ["x-1", "x-2"]},
        "points": [
            point(1, 0.9, step(0.11)),
            point(2, 1.8, step(0.05, exposed=5e-3, waiting=2e-3)),
            point(4, 3.0, step(0.025, exposed=8e-3, waiting=-1e-3)),
        ],
        "failed": [],
    }


def point(processes: int, speedup: float, parts: dict[str, Any]) -> dict[str, Any]:
    return {
        "processes": processes,
        "nodes": 1,
        "batch": 96,
        "samples_per_s": quantity(100 * speedup),
        "speedup": quantity(speedup),
        "efficiency": quantity(speedup / processes),
        "exposed_s": parts["communication_s"],
        "step": parts,
        "doubts": ["few_samples"] if processes == 4 else [],
        "runs": [f"{processes}-1", f"{processes}-2"],
    }


def step(computing_s: float, *, exposed: float | None = None, waiting: float | None = None) -> dict[str, Any]:
    return {
        "step_s": quantity(computing_s + (exposed or 0.0) + (waiting or 0.0)),
        "data_s": quantity(1e-9),
        "forward_s": quantity(0.3 * computing_s),
        "backward_s": quantity(0.6 * computing_s),
        "update_s": quantity(0.1 * computing_s),
        "waiting_s": absent("one process") if waiting is None else _signed(waiting),
        "communication_s": absent("one process") if exposed is None else _signed(exposed),
    }


def _signed(value: float) -> dict[str, Any]:
    return {"median": value, "low": value - 1e-3, "high": value + 1e-3, "n": 40}
