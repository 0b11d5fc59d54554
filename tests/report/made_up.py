"""Results as the commands give them, with made-up times for real networks: no measuring, the same every time."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from deepstone.graph.cost import layer_cost
from deepstone.graph.graph import Graph, Layer
from deepstone.models.zoo import ZOO
from deepstone.report.figure import Figure
from deepstone.report.figures import Drawable, make_figure, make_figures
from deepstone.report.files import as_result

FLOPS_PER_S = 9e10
BYTES_PER_S = 1.2e10
_GROUPS = {"conv": "convolutions", "dense": "dense", "batch_norm": "normalization", "lrn": "normalization"}
_KINDS = ("parameters", "gradients", "optimizer", "activations", "workspace")


def quantity(value: float, spread: float = 0.04) -> dict[str, float]:
    return {"median": value, "low": value * (1 - spread), "high": value * (1 + spread * 1.5), "n": 40}


def absent(reason: str = "not measured here") -> dict[str, str]:
    return {"absent": reason}


def peaks() -> dict[str, Any]:
    rates = {"fp32": quantity(FLOPS_PER_S, 0.01), "bf16": quantity(3.1 * FLOPS_PER_S, 0.01)}
    return {
        "device": "cpu",
        "flops_per_s": rates,
        "bytes_per_s": {"copy": quantity(BYTES_PER_S, 0.02)},
        "measured_with": "torch 2.13.0",
        "measured_at": "2026-01-01T00:00:00.000000Z",
    }


def layers_result(
    model: str = "alexnet-owt",
    *,
    batch: int = 32,
    framework: str = "torch@2.13.0",
    slowness: float = 1.0,
    in_step: bool = True,
    alone: bool = True,
    seed: int = 0,
) -> dict[str, Any]:
    """Of one framework. Times follow a roofline, with luck."""
    luck = random.Random(seed)
    graph = ZOO[model].make()
    layers = [
        _layer(graph, layer, batch, (slowness * luck.uniform(1.2, 2.5), slowness * luck.uniform(1.1, 3)), alone)
        for layer in graph.layers[1:]
    ]
    total_s = sum(_time(layer, "forward") + _time(layer, "backward") for layer in layers)
    for layer in layers:
        layer["share"] = (_time(layer, "forward") + _time(layer, "backward")) / total_s
    return {
        "schema": 1,
        "kind": "layers",
        "model": model,
        "started_at": "2026-01-01T00:00:00.000000Z",
        "command": ["deepstone", "layers", model, f"batch={batch}", f"framework={framework}"],
        "workload": {
            "model": model,
            "batch": batch,
            "phase": "train",
            "input": "synthetic",
            "source": "zoo",
            "file_sha256": "",
        },
        "setup": {
            "requested": {},
            "effective": {
                "framework": {"value": framework, "source": "observed"},
                "device": {"value": "cpu", "source": "observed"},
                "precision": {"value": "fp32", "source": "observed"},
                "layout": {"value": "nchw", "source": "observed"},
                "threads": {"value": "2", "source": "observed"},
            },
        },
        "method": "hooks around every layer" if in_step else "each layer alone",
        "rule": "time of a fused kernel is shared by the FLOPs of its layers",
        "step_s": quantity(total_s * 1.06),
        "traced_step_s": quantity(total_s * 1.08),
        "sum_s": quantity(total_s) if in_step else absent("layers were not timed inside the step"),
        "update_s": quantity(total_s * 0.05),
        "data_s": absent("the batch lies on the device"),
        "gaps_s": quantity(total_s * 0.01),
        "other": [{"name": "loss", "s": quantity(total_s * 0.002)}, {"name": "copies", "s": quantity(total_s * 0.004)}],
        "explained": quantity(0.99, 0.01),
        "isolated_sum_s": quantity(total_s * 1.1) if alone else absent(),
        "fusion_saved_s": absent("not compared"),
        "kernels": absent("not asked for"),
        "layers": layers,
        "groups": _groups(layers, total_s),
        "peaks": peaks(),
        "doubts": [{"code": "other_load", "detail": "other processes took 12 % of the CPU while it measured"}],
    }


def several(model: str = "alexnet-owt", names: tuple[str, ...] = ("torch", "tensorflow", "jax")) -> dict[str, Any]:
    results = {
        name: layers_result(model, framework=name, slowness=1 + 0.4 * at, seed=at, in_step=at != 2)
        for at, name in enumerate(names)
    }
    return {"schema": 1, "kind": "layers", "model": model, "frameworks": results}


def memory_result(model: str = "alexnet-owt", *, batch: int = 32) -> dict[str, Any]:
    graph = ZOO[model].make()
    layers = [_memory_of(graph, layer, batch) for layer in graph.layers[1:]]
    known = {f"{kind}_bytes": sum(layer[f"{kind}_bytes"] for layer in layers) for kind in _KINDS[:-1]}
    total = sum(known.values())
    return {
        "schema": 1,
        "kind": "memory",
        "model": model,
        "batch": batch,
        "phase": "train",
        "command": ["deepstone", "layers", model, f"batch={batch}"],
        "predicted": {**known, "workspace_bytes": absent("oneDNN does not tell"), "total_bytes": total},
        "measured_peak_bytes": int(total * 1.07),
        "measured": {
            "peak_bytes": int(total * 1.07),
            "kept_bytes": absent("oneDNN does not tell"),
            "workspace_bytes": absent("oneDNN does not tell"),
            "beyond_prediction_bytes": absent("not looked for"),
            "process": {"host_peak_bytes": int(total * 1.2)},
        },
        "layers": layers,
    }


ALGORITHMS = (
    *("IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM", "GEMM", "DIRECT", "FFT", "FFT_TILING"),
    *("WINOGRAD", "WINOGRAD_NONFUSED", "winograd F(4,3)"),
)


def conv_result(model: str = "alexnet-kim", *, batch: int = 128, seed: int = 0) -> dict[str, Any]:
    luck = random.Random(seed)
    graph = ZOO[model].make()
    layers = [layer for layer in graph.layers if layer.op.kind == "conv"]
    return {
        "schema": 1,
        "kind": "conv",
        "model": model,
        "command": ["deepstone", "conv", model, f"batch={batch}", "device=gpu"],
        "device": "NVIDIA H200",
        "batch": batch,
        "phase": "train",
        "precision": "fp32",
        "layout": "nchw",
        "failures": [],
        "doubts": [],
        "layers": [_tries(graph, layer, batch, luck) for layer in layers],
        "mix": {"picked_s": 0.271, "best_s": 0.25, "saved_s": 0.021, "saved_share": 0.0775},
    }


def conv_batches(*batches: int) -> dict[str, Any]:
    reports = {str(batch): conv_result(batch=batch, seed=batch) for batch in batches}
    first = next(iter(reports.values()))
    return {**{key: first[key] for key in ("schema", "kind", "model", "device")}, "batches": reports}


def _layer(graph: Graph, layer: Layer, batch: int, slowness: tuple[float, float], alone: bool) -> dict[str, Any]:
    cost = layer_cost(graph, layer)
    flops = {"forward": batch * cost.forward_flops, "backward": batch * cost.backward_flops}
    volume = 2 * batch * cost.activation_bytes + cost.weight_bytes
    moved = {"forward": volume, "backward": 2 * volume}
    least = {part: max(flops[part] / FLOPS_PER_S, moved[part] / BYTES_PER_S) for part in flops}
    times = {part: slow * least[part] for part, slow in zip(least, slowness, strict=True)}
    apart = cost.weight_bytes > 0 and flops["forward"] > 0
    return {
        "name": layer.name,
        "op": layer.op.kind,
        "shape": list(graph.shapes[layer.name]),
        "parameters": cost.parameters,
        "flops": flops,
        "bytes": moved,
        **{f"{part}_s": quantity(time) for part, time in times.items()},
        "share": 0.0,
        "isolated": {
            "forward_s": quantity(times["forward"] * 1.1),
            "backward_s": quantity(times["backward"] * 1.15),
            "data_s": quantity(times["backward"] * 0.5) if apart else absent("has no parameters"),
            "weight_s": quantity(times["backward"] * 0.65) if apart else absent("has no parameters"),
            "by_difference": False,
        }
        if alone
        else absent(),
        "flops_per_s": absent(),
        "bound": absent(),
        "primitives": [],
    }


def _time(layer: Mapping[str, Any], part: str) -> float:
    found = layer[f"{part}_s"]
    return found["median"]


def _groups(layers: list[dict[str, Any]], total_s: float) -> list[dict[str, Any]]:
    names = dict.fromkeys(_GROUPS.get(layer["op"], "all others") for layer in layers)
    groups: list[dict[str, Any]] = []
    for name in names:
        own = [layer for layer in layers if _GROUPS.get(layer["op"], "all others") == name]
        sums = {part: sum(_time(layer, part) for layer in own) for part in ("forward", "backward")}
        times = {f"{part}_s": sums[part] for part in sums}
        groups.append({"name": name, "layers": len(own), **times, "share": sum(sums.values()) / total_s})
    return groups


def _memory_of(graph: Graph, layer: Layer, batch: int) -> dict[str, Any]:
    cost = layer_cost(graph, layer)
    return {
        "name": layer.name,
        "op": layer.op.kind,
        "parameters_bytes": cost.weight_bytes,
        "gradients_bytes": cost.weight_bytes,
        "optimizer_bytes": cost.weight_bytes,
        "activations_bytes": batch * cost.activation_bytes,
        "kept_bytes": absent("oneDNN does not tell"),
        "workspace_bytes": absent("oneDNN does not tell"),
    }


def _tries(graph: Graph, layer: Layer, batch: int, luck: random.Random) -> dict[str, Any]:
    cost = layer_cost(graph, layer)
    results: list[dict[str, Any]] = []
    for part in ("forward", "data", "weight"):
        flops = batch * cost.forward_flops
        picked = luck.choice(("IMPLICIT_PRECOMP_GEMM", "WINOGRAD"))
        for algorithm in ALGORITHMS:
            impossible = algorithm == "DIRECT" or (algorithm == "WINOGRAD" and luck.random() < 0.3)
            reference = algorithm.startswith("winograd F")
            time_s = flops / 2e13 * luck.choice((1, 1.3, 1.8, 2.5, 4, 9, 20))
            results.append(
                {
                    "algorithm": algorithm,
                    "pass": part,
                    "time_s": absent("the library does not support it for this shape")
                    if impossible
                    else quantity(time_s),
                    "workspace_bytes": luck.choice((0, 2**20, 300 * 2**20)),
                    "flops": flops,
                    "transform_flops": absent("it transforms nothing"),
                    "formula": "direct",
                    "relative_error": 2e-7,
                    "kind": "reference" if reference else "timed",
                    "picked": algorithm == picked and not impossible,
                }
            )
    shape = {"input": list(graph.shapes[layer.inputs[0]]), "output": list(graph.shapes[layer.name]), "kernel": [3, 3]}
    shape |= {"stride": [1, 1], "pad": [1, 1, 1, 1], "dilation": [1, 1], "groups": 1}
    named = {"name": layer.name, "equal": [], "shape": shape}
    return {**named, "results": results, "best": {}, "in_step": {}}


def figure_of(result: Mapping[str, Any], name: str | None = None) -> Figure:
    return make_figure(as_result(result), name)


def figures_of(result: Mapping[str, Any], name: str | None = None) -> Drawable:
    return make_figures(as_result(result), name)


def comm_result(
    *,
    transports: Mapping[str, tuple[float, float]] | None = None,
    operations: tuple[str, ...] = ("allreduce", "p2p"),
    processes: int = 2,
    buckets: tuple[int, ...] = (),
    wrong: int = 0,
) -> dict[str, Any]:
    """`transports`: alpha and beta of each. `buckets`: of a model. `wrong`: a size whose result is wrong."""
    planted = transports or {"gloo": (4e-4, 1.2e-9), "mpi": (2e-6, 8e-10)}
    sizes = sorted(set(buckets)) or [1024 * 4**power for power in range(9)]
    curves: list[dict[str, Any]] = []
    for transport, (alpha_s, beta) in planted.items():
        for operation in operations:
            segment = {"from_bytes": sizes[0], "to_bytes": sizes[-1], "alpha_s": alpha_s, "beta_s_per_byte": beta}
            told: dict[str, Any] = {
                "transport": transport,
                "operation": operation,
                "processes": processes,
                "nodes": 1,
                "device": "cpu",
                "threads": 1,
                "library": f"{transport} of old",
                "launcher": {"name": "local", "version": "0.1.0", "argv": []},
                "points": [_comm_point(size, alpha_s + beta * size, size == wrong) for size in sizes],
                "fit": {"segments": [segment], "residual": 0.01, "worst": 0.02},
                "wire": absent("not counted"),
            }
            if buckets:
                told["buckets"] = {"bytes": list(buckets), "sum_s": quantity(sum(alpha_s + beta * b for b in buckets))}
            curves.append(told)
    command = ["deepstone", "comm", f"transport={','.join(planted)}", f"processes={processes}"]
    head = {"schema": 1, "kind": "comm", "outcome": "ok", "model": "cifarnet" if buckets else "", "command": command}
    return {**head, "curves": curves, "launches": 3, "interval": "across launches"}


def _comm_point(size: int, time_s: float, wrong: bool) -> dict[str, Any]:
    if wrong:
        why = absent("the result was wrong: rank 1: 3 of 4 numbers")
        return {"bytes": size, "time_s": why, "algbw": why, "busbw": why, "checked": False}
    rate = quantity(size / time_s)
    return {"bytes": size, "time_s": quantity(time_s), "algbw": rate, "busbw": rate, "checked": True}
