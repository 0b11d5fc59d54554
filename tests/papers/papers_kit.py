"""Findings of the convolution lab and of layers with times that a test chooses, on a made-up machine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from deepstone.models.zoo import ZOO
from deepstone.papers import evidence
from deepstone.papers.answer import Answer
from deepstone.papers.evidence import Evidence
from deepstone.papers.place import Place
from deepstone.papers.rules import RULES
from deepstone.papers.verdict import Bound, Published
from deepstone.results.codec import as_bare_finding, convert
from deepstone.results.findings import Finding
from deepstone.results.record import Record

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


NOT_TOLD = {"absent": "a test does not tell"}


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
            "equal": [],
            "shape": {
                "input": [1, 1, 1],
                "output": [1, 1, 1],
                "kernel": [1, 1],
                "stride": [1, 1],
                "pad": [0, 0],
                "dilation": [1, 1],
                "groups": 1,
            },
            "best": {},
            "in_step": {},
            "results": [
                {
                    "algorithm": algorithm,
                    "pass": direction,
                    "kind": "timed",
                    "picked": algorithm == picked,
                    "time_s": _time(times, layer, direction),
                    "flops": 1,
                    "transform_flops": 0,
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
        "schema": 1,
        "kind": "conv",
        "model": "alexnet-kim",
        "batch": batch,
        "phase": "train",
        "precision": "fp32",
        "layout": "nchw",
        "device": "gpu:0" if gpu else "cpu",
        "started_at": "2026-11-15T03:40:12.123456Z",
        "environment": {"machine": machine(gpu=gpu), "framework": {}},
        "layers": layers,
        "mix": {"absent": "not added up"},
        "failures": [],
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
    precision: str = "fp32",
    asked: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """`seconds`: layer to its forward and backward time, in place and alone; layers not named are not there."""
    graph = ZOO[model].make()
    rows = [
        {
            "name": name,
            "op": graph.layer(name).op.kind,
            "forward_s": quantity(forward),
            "backward_s": quantity(backward),
            "isolated": {
                "forward_s": quantity(forward),
                "backward_s": quantity(backward),
                "data_s": NOT_TOLD,
                "weight_s": NOT_TOLD,
                "by_difference": False,
            },
            "shape": NOT_TOLD,
            "parameters": NOT_TOLD,
            "flops": NOT_TOLD,
            "bytes": NOT_TOLD,
            "flops_per_s": NOT_TOLD,
            "bound": NOT_TOLD,
            "primitives": [],
            "share": 0.5,
        }
        for name, (forward, backward) in seconds.items()
    ]
    return {
        "schema": 1,
        "kind": "layers",
        "outcome": "ok",
        "model": model,
        "workload": {
            "model": model,
            "batch": batch,
            "phase": "train",
            "input": "resident",
            "source": "zoo",
            "file_sha256": "",
        },
        "setup": {
            "requested": dict(asked or {}),
            "effective": {
                "framework": {"value": framework, "source": "observed"},
                "device": {"value": "gpu:0" if gpu else "cpu", "source": "observed"},
                "precision": {"value": precision, "source": "observed"},
            },
        },
        "environment": {"machine": machine(gpu=gpu, cores=cores), "framework": {}},
        "started_at": "2026-11-15T03:40:12.123456Z",
        "method": "in place",
        "rule": "hooks",
        "step_s": quantity(1.0),
        **dict.fromkeys(
            ("traced_step_s", "sum_s", "data_s", "update_s", "gaps_s", "explained", "isolated_sum_s", "fusion_saved_s"),
            NOT_TOLD,
        ),
        "other": [],
        "layers": rows,
        "groups": [],
        "peaks": {"absent": "not measured"},
        "kernels": NOT_TOLD,
        "doubts": [],
    }


def found(*findings: Mapping[str, Any]) -> Evidence:
    return evidence_of([], [(f"finding-{number}", finding) for number, finding in enumerate(findings)])


def evidence_of(records: Iterable[Any], findings: Iterable[tuple[str, Any]], own: Collection[Place] = ()) -> Evidence:
    """Of records and findings, as objects or as JSON."""
    typed = [each if isinstance(each, Record) else convert(each, Record) for each in records]
    named = [(id, each if isinstance(each, Finding) else as_bare_finding(each)) for id, each in findings]
    return evidence.evidence_of(typed, named, own)


def apply(
    rule: str, given: Evidence, published: float | None = None, *, bound: Bound = "up to", **parameters: Any
) -> Answer:
    stated: dict[str, Any] = {"text": "", "bound": bound} | ({} if published is None else {"value": published})
    return msgspec.convert(parameters, RULES[rule]).answer(msgspec.convert(stated, Published), given)
