"""Findings of the convolution lab and of layers with times that a test chooses, on a made-up machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepstone.models.zoo import ZOO
from deepstone.papers.answer import Answer
from deepstone.papers.evidence import Evidence, evidence_of
from deepstone.papers.rules.rule import Asked
from deepstone.papers.rules.table import RULES

ALEXNET = ("conv1", "conv2", "conv3", "conv4", "conv5")
PASSES = ("forward", "data", "weight")
MACHINE: dict[str, Any] = {
    "cpu": {
        "model": "Test CPU",
        "physical_cores": 2,
        "logical_cores": 2,
        "usable_cores": 2,
        "flags": [],
        "numa_nodes": 1,
    },
    "memory_bytes": 2**34,
    "gpus": {"absent": "none"},
}


def quantity(value: float, spread: float = 0.001) -> dict[str, Any]:
    return {"median": value, "low": value * (1 - spread), "high": value * (1 + spread), "n": 50}


def machine(*, gpu: str = "", cores: int = 2) -> dict[str, Any]:
    boards: Any = [{"index": 0, "name": gpu, "memory_bytes": 2**35}] if gpu else {"absent": "none"}
    return {**MACHINE, "cpu": {**MACHINE["cpu"], "usable_cores": cores}, "gpus": boards}


def lab(
    seconds: Mapping[str, float | Mapping[tuple[str, str], float]],
    *,
    batch: int = 32,
    picked: str = "oneDNN",
    formulas: Mapping[str, str] | None = None,
    errors: Mapping[str, float] | None = None,
    workspaces: Mapping[str, int] | None = None,
    gpu: str = "",
    **top: Any,
) -> dict[str, Any]:
    """`seconds`: algorithm to its time in every pass, or in those passes that it can do."""
    layers = [
        {
            "name": layer,
            "results": [
                {
                    "algorithm": algorithm,
                    "pass": direction,
                    "kind": "timed",
                    "picked": algorithm == picked,
                    "time_s": _time(times, layer, direction),
                    "workspace_bytes": (workspaces or {}).get(algorithm, 0),
                    "formula": (formulas or {}).get(algorithm, "direct"),
                    "relative_error": (errors or {}).get(algorithm, 3e-7),
                }
                for direction in PASSES
                for algorithm, times in seconds.items()
            ],
        }
        for layer in ALEXNET
    ]
    return {
        "kind": "conv",
        "model": "alexnet-kim",
        "batch": batch,
        "precision": "fp32",
        "device": "gpu:0" if gpu else "cpu",
        "started_at": "2026-11-15T03:40:12.123456Z",
        "environment": {"machine": machine(gpu=gpu)},
        "layers": layers,
        "doubts": [],
        **top,
    }


def _time(times: float | Mapping[tuple[str, str], float], layer: str, direction: str) -> dict[str, Any]:
    value = times if isinstance(times, int | float) else times.get((layer, direction))
    return {"absent": "not supported"} if value is None else quantity(value)


def layers(
    seconds: Mapping[str, tuple[float, float]],
    *,
    model: str = "alexnet-owt",
    batch: int = 32,
    framework: str = "torch@2.13.0",
    gpu: str = "",
    cores: int = 2,
) -> dict[str, Any]:
    """`seconds`: layer to its forward and backward time, in place and alone; layers not named are not there."""
    graph = ZOO[model].make()
    rows = [
        {
            "name": name,
            "op": graph.layer(name).op.kind,
            "forward_s": quantity(forward),
            "backward_s": quantity(backward),
            "isolated": {"forward_s": quantity(forward), "backward_s": quantity(backward)},
        }
        for name, (forward, backward) in seconds.items()
    ]
    return {
        "kind": "layers",
        "outcome": "ok",
        "workload": {"model": model, "batch": batch, "phase": "train"},
        "setup": {
            "requested": {},
            "effective": {
                "framework": {"value": framework, "source": "observed"},
                "device": {"value": "gpu:0" if gpu else "cpu", "source": "observed"},
            },
        },
        "environment": {"machine": machine(gpu=gpu, cores=cores)},
        "started_at": "2026-11-15T03:40:12.123456Z",
        "layers": rows,
        "peaks": {"absent": "not measured"},
    }


def found(*findings: Mapping[str, Any]) -> Evidence:
    return evidence_of([], [(f"finding-{number}", finding) for number, finding in enumerate(findings)])


def apply(rule: str, evidence: Evidence, published: float | None = None, **parameters: Any) -> Answer:
    return RULES[rule].apply(Asked(parameters=parameters, published=published), evidence)
