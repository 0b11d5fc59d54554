"""Records of made-up measurements: setups in rounds, with the speeds that a test chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from factory import IN_EFFECT, JsonRecord, make_record, sha

from deepstone.results.identity import canonical_sha256
from deepstone.setups.axes import AXES

START_MINUTE = 10


def run(
    images_per_s: float = 100.0,
    *,
    model: str = "alexnet-owt",
    round: int = 1,
    attempt: int = 1,
    minute: int | None = None,
    share: float = 0.005,
    samples: int = 20,
    machine: str = "here",
    environment: str = "lock",
    version: str = "2.13.0",
    effective: dict[str, Any] | None = None,
    outcome: str = "ok",
    interval: str = "within process",
    doubts: Sequence[str] = (),
    gpu: bool = False,
    of_search: bool = False,
    **asked: Any,
) -> JsonRecord:
    """One run. `share` is the half width of its own interval, `minute` when it started; by default by round.
    `of_search`: a search made it; `round` is then only its number among the launches of this setup."""
    requested = {name: asked.get(name, axis.default) for name, axis in AXES.items()}
    batch, phase = int(requested["batch"]), str(requested["phase"])
    framework = str(requested["framework"])
    in_effect = {**IN_EFFECT, **({"device": "gpu:0", "engine": "cudnn"} if gpu else {})}
    if framework not in ("auto", "torch"):
        in_effect["framework"] = f"{framework}@{version}"
    in_effect |= effective or {}
    came_out = {name: in_effect.get(name, value) if value == "auto" else value for name, value in requested.items()}
    came_out["framework"] = in_effect["framework"]
    measured = outcome == "ok"
    images_per_s = float(images_per_s)  # NumPy has numbers of its own
    record: Any = make_record(
        model=model,
        batch=batch,
        phase=phase,
        requested=requested,
        repetition=round,
        outcome=outcome,
        step_s=batch / images_per_s,
        setup={
            "requested": requested,
            "effective": {name: {"value": value, "source": "observed"} for name, value in came_out.items()}
            if measured
            else {},
        },
        started_at=f"2026-11-15T03:{START_MINUTE + round if minute is None else minute:02d}:00.000000Z",
        doubts=[{"code": code, "detail": "made up"} for code in doubts],
    )
    record["identity"]["machine_sha"] = sha(machine)
    record["identity"]["environment_sha"] = sha(f"{environment} {framework}")
    record["identity"]["workload"]["input"] = record["workload"]["input"] = "resident"
    record["environment"] = {
        "machine": {
            "cpu": {"model": f"{machine} CPU", "usable_cores": 2},
            "gpus": [{"index": 0, "name": f"GPU of {machine}"}] if gpu else {"absent": "none"},
        },
        # As the environment's lock tells; the rest comes from the worker.
        "framework": {"python": "3.11.7", in_effect["framework"].partition("@")[0]: version, "numpy": "2.4.6"},
    }
    record["command"] = ["deepstone", "run", model, *(f"{name}={value}" for name, value in asked.items())]
    if measured:
        record["summary"]["samples_per_s"] = {
            "median": images_per_s,
            "low": images_per_s * (1 - share),
            "high": images_per_s * (1 + share),
            "n": samples,
        }
        record["summary"]["interval"] = interval
        if of_search:
            record["summary"]["stopped"] = "a look of 1.5 s"
    record["job"] = canonical_sha256(record["identity"])
    record["id"] = f"{record['job'][:20]}-{attempt}"
    return record


def looks(*images_per_s: float, **settings: Any) -> list[JsonRecord]:
    """One setup, launched by a search, which numbers the launches of each setup."""
    return rounds(*images_per_s, of_search=True, **settings)


def rounds(*images_per_s: float, **settings: Any) -> list[JsonRecord]:
    """One setup, measured once in each round."""
    return [run(speed, round=number, **settings) for number, speed in enumerate(images_per_s, start=1)]
