"""From what was measured of layers to the result that is printed, kept and drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from deepstone.absent import Absent, as_json
from deepstone.graph.cost import LayerWork, layer_work
from deepstone.graph.graph import Graph
from deepstone.graph.groups import GROUPS
from deepstone.measure import doubts
from deepstone.measure.roofline import Bound, Peaks, bound
from deepstone.measure.statistics import (
    Quantity,
    difference_of_bounds,
    joint_medians,
    median_of,
    sum_of_bounds,
)
from deepstone.results.doubt import Doubt
from deepstone.runner.assemble import environment_of
from deepstone.runner.conversation import InPlaceTimes
from deepstone.runner.job import Job, storable
from deepstone.runner.layers.isolated import IsolatedTimes
from deepstone.runner.layers.measure import LayersFound
from deepstone.runner.peaks import known_peaks
from deepstone.setups.widths import value_bytes

SCHEMA = 1
ISOLATED = "each layer by itself"
PASSES = ("forward", "backward")
_PARTS = (
    "traced_step_s",
    "traced_time_ratio",
    "sum_s",
    "layers_time_ratio",
    "data_s",
    "update_s",
    "gaps_s",
    "together_s",
    "explained",
)
_REPLICATES = 200  # there are hundreds of layers, and each interval needs its own


def layers_report(job: Job, found: LayersFound, *, started_at: str) -> dict[str, Any]:
    """The JSON of `deepstone layers` for one framework."""
    assert found.launched.prepared is not None
    effective = found.launched.prepared.effective
    peaks = known_peaks(job, effective)
    step = median_of([found.plain_s])
    times = _in_place(found) if found.rounds else isolated_times(found)
    rows = _rows(job, found, times, peaks, str(effective["precision"]["value"]))
    total_s = sum(_seconds(row[f"{part}_s"]) for row in rows for part in PASSES)
    for row in rows:
        row["share"] = sum(_seconds(row[f"{part}_s"]) for part in PASSES) / total_s if total_s else 0.0
    parts = _parts(found)
    isolated_s = _isolated_sum(found)
    return as_json(
        {
            "schema": SCHEMA,
            "kind": "layers",
            "model": job.model.name,
            "graph_sha": job.model.graph.sha,
            "started_at": started_at,
            "command": [storable(word) for word in job.command],
            "workload": job.workload,
            "setup": {"requested": dict(job.request), "effective": effective},
            "environment": environment_of(job, found.launched),
            "method": found.rounds[0].method if found.rounds else ISOLATED,
            "rule": found.rounds[0].rule if found.rounds else _isolated_rule(found),
            "step_s": step.to_json(),
            **{name: part.to_json() if isinstance(part, Quantity) else part for name, part in parts.items()},
            "isolated_sum_s": isolated_s.to_json(),
            "fusion_saved_s": _saved(isolated_s, parts["sum_s"]).to_json(),
            "layers": rows,
            "groups": list(_groups(rows, total_s)),
            "peaks": _peaks_json(peaks),
            "kernels": found.trace,
            "doubts": [doubt.to_json() for doubt in _doubts(found, step)],
        }
    )


def _in_place(found: LayersFound) -> dict[tuple[str, str], Quantity]:
    """By layer and pass; the steps of each round are a block."""
    keys = dict.fromkeys(key for times in found.rounds for key in times.layers_s)
    return {key: _median(_series(found, key)) for key in keys}


def isolated_times(found: LayersFound) -> dict[tuple[str, str], Quantity]:
    if isinstance(found.isolated, Absent):
        return {}
    parts = {(name, part): getattr(times, f"{part}_s") for name, times in found.isolated.items() for part in PASSES}
    return {key: value for key, value in parts.items() if isinstance(value, Quantity)}


def _rows(
    job: Job, found: LayersFound, times: Mapping[tuple[str, str], Quantity], peaks: Peaks | Absent, precision: str
) -> list[dict[str, Any]]:
    graph = job.model.graph
    if graph.opaque:
        return _module_rows(graph, times)
    primitives = _primitives(found)
    return [
        _row(graph, name, work, times, _isolated(found, name), _bound(work, peaks, precision), primitives.get(name, []))
        for name, work in _works(job, precision).items()
    ]


def _works(job: Job, precision: str) -> dict[str, LayerWork]:
    graph = job.model.graph
    return {
        layer.name: layer_work(
            graph,
            layer,
            batch=job.batch,
            phase=job.phase,
            value_bytes=value_bytes(precision),
            input_grad=job.request["input_grad"] == "on",
            dropout=job.request["dropout"] == "on",
        )
        for layer in graph.layers
        if layer.name != graph.input.name
    }


def _row(
    graph: Graph,
    name: str,
    work: LayerWork,
    times: Mapping[tuple[str, str], Quantity],
    isolated: IsolatedTimes | Absent,
    least: Bound | Absent,
    primitives: Sequence[str],
) -> dict[str, Any]:
    forward, backward = times.get((name, "forward")), times.get((name, "backward"))
    taken_s = {
        part: 0.0 if time is None else time.median for part, time in (("forward", forward), ("backward", backward))
    }
    reached = {part: _rate(getattr(work, part).flops, taken_s[part]) for part in PASSES}
    share = (
        least
        if isinstance(least, Absent)
        else least.share(forward_s=taken_s["forward"], backward_s=taken_s["backward"])
    )
    # Where no layer has a time, this one did not do nothing: nobody could look.
    untimed = isolated if not times and isinstance(isolated, Absent) else None
    return {
        "name": name,
        "op": work.op,
        "shape": list(graph.shapes[name]),
        "parameters": sum(math.prod(shape) for shape in graph.parameters(graph.layer(name)).values()),
        "flops": {part: getattr(work, part).flops for part in PASSES},
        "bytes": {part: getattr(work, part).bytes for part in PASSES},
        "forward_s": untimed or _or_none(forward, "forward"),
        "backward_s": untimed or _or_none(backward, "backward"),
        "flops_per_s": reached,
        "isolated": isolated if isinstance(isolated, Absent) else _isolated_json(isolated),
        "bound": least if isinstance(least, Absent) else least.to_json(share),
        "primitives": list(primitives),
    }


def _module_rows(graph: Graph, times: Mapping[tuple[str, str], Quantity]) -> list[dict[str, Any]]:
    """A user's own module: its parts by their own names, and no more is known of them."""
    unknown = Absent("not known of a module of your own")
    known = {layer.name: layer.op.kind for layer in graph.layers}
    return [
        {
            "name": name,
            "op": known.get(name, "module"),
            "shape": unknown,
            "parameters": unknown,
            "flops": unknown,
            "bytes": unknown,
            "forward_s": _or_none(times.get((name, "forward")), "forward"),
            "backward_s": _or_none(times.get((name, "backward")), "backward"),
            "flops_per_s": unknown,
            "isolated": unknown,
            "bound": unknown,
            "primitives": [],
        }
        for name in dict.fromkeys(name for name, _ in times)
    ]


def _or_none(time: Quantity | None, part: str) -> dict[str, Any] | Absent:
    return Absent(f"the layer did nothing {part}") if time is None else time.to_json()


def _isolated(found: LayersFound, name: str) -> IsolatedTimes | Absent:
    return found.isolated if isinstance(found.isolated, Absent) else found.isolated[name]


def _isolated_rule(found: LayersFound) -> str:
    rule = "nothing is shared: no layer ran with another"
    times = found.isolated.values() if isinstance(found.isolated, dict) else ()
    return "; ".join([rule, *sorted({f"each time holds {one.beside}" for one in times if one.beside})])


def _isolated_json(times: IsolatedTimes) -> dict[str, Any]:
    parts = {part: getattr(times, part) for part in ("forward_s", "backward_s", "data_s", "weight_s")}
    return {
        **{part: value if isinstance(value, Absent) else value.to_json() for part, value in parts.items()},
        "by_difference": times.by_difference,
        **({"beside": times.beside} if times.beside else {}),
    }


def _bound(work: LayerWork, peaks: Peaks | Absent, precision: str) -> Bound | Absent:
    return peaks if isinstance(peaks, Absent) else bound(work, peaks, precision)


def _parts(found: LayersFound) -> dict[str, Any]:
    """What a step is made of, and how much of the untraced step that is. Each was measured.

    A sum is that of the medians of what it is made of, so that whoever adds up what is shown comes to the same. It is
    not the median of the sums, which is nearly always larger: what disturbs a step hits another part each time, and the
    medians of the parts leave it out. How long a whole step took that was looked into is told beside it.
    """
    if not found.rounds:
        assert found.in_place_absent is not None
        absent = Absent(f"layers were not timed inside the step: {found.in_place_absent.reason}")
        return {**dict.fromkeys(_PARTS, absent), "other": []}
    rounds = found.rounds
    layers = list(dict.fromkeys(key for times in rounds for key in times.layers_s))
    others = list(dict.fromkeys(name for times in rounds for name in times.other_s))
    series = [_series(found, key) for key in layers]
    series += [[times.other_s.get(name, _none(times)) for times in rounds] for name in others]
    own = {"data_s": [times.data_s for times in rounds]}
    own |= {"update_s": [times.update_s for times in rounds], "gaps_s": [times.gaps_s for times in rounds]}
    series += own.values()
    joint = joint_medians([*series, found.plain_s], replicates=_REPLICATES)
    several, all_of_it = len(layers), len(series)
    return {
        "traced_step_s": _median([times.total_s for times in rounds]),
        "traced_time_ratio": _traced_ratio(found),
        "sum_s": joint.quantity(lambda medians: medians[..., :several].sum(axis=-1)),
        "layers_time_ratio": joint.quantity(lambda medians: medians[..., :several].sum(axis=-1) / medians[..., -1]),
        **{name: _median(blocks) for name, blocks in own.items()},
        "other": [{"name": name, "s": _median(series[several + at]).to_json()} for at, name in enumerate(others)],
        "together_s": joint.quantity(lambda medians: medians[..., :all_of_it].sum(axis=-1)),
        "explained": joint.quantity(lambda medians: medians[..., :all_of_it].sum(axis=-1) / medians[..., -1]),
    }


def _series(found: LayersFound, key: tuple[str, str]) -> list[list[float]]:
    """The times of a layer's pass; the steps of each round are a block."""
    return [times.layers_s.get(key, _none(times)) for times in found.rounds]


def _none(times: InPlaceTimes) -> list[float]:
    return [0.0] * len(times.total_s)


def _traced_ratio(found: LayersFound) -> Quantity:
    """A step that is looked into, over the untraced step of the same round."""
    ratios = [
        median(times.total_s) / median(plain_s) for times, plain_s in zip(found.rounds, found.plain_s, strict=True)
    ]
    return median_of([[[ratio] for ratio in ratios]])


def _isolated_sum(found: LayersFound) -> Quantity | Absent:
    if isinstance(found.isolated, Absent):
        return Absent("layers have no isolated times")
    return sum_of_bounds([time for each in found.isolated.values() for time in each.passes_s])


def _saved(isolated_s: Quantity | Absent, in_place_s: Quantity | Absent) -> Quantity | Absent:
    """What running layers together saved: by fusing them, and by finding their inputs in the cache."""
    if isinstance(isolated_s, Absent) or isinstance(in_place_s, Absent):
        return Absent("needs both isolated times and times in place")
    return difference_of_bounds(isolated_s, in_place_s)


def _groups(rows: Sequence[Mapping[str, Any]], total_s: float) -> Any:
    for name, kinds in GROUPS.items():
        members = [row for row in rows if row["op"] in kinds]
        if not members:
            continue
        parts = {f"{part}_s": sum(_seconds(row[f"{part}_s"]) for row in members) for part in PASSES}
        share = sum(parts.values()) / total_s if total_s else 0.0
        yield {"name": name, "layers": len(members), **parts, "share": share}


def _peaks_json(peaks: Peaks | Absent) -> Any:
    """The ceilings that the bounds rest on, so that a figure can draw them."""
    if isinstance(peaks, Absent):
        return peaks
    copy = peaks.bytes_per_s
    return {
        "device": peaks.device,
        "flops_per_s": {name: rate.to_json() for name, rate in peaks.flops_per_s.items()},
        "bytes_per_s": {"copy": copy if isinstance(copy, Absent) else copy.to_json()},
        "measured_with": peaks.measured_with,
        "measured_at": peaks.measured_at,
    }


def _primitives(found: LayersFound) -> Mapping[str, list[str]]:
    assert found.launched.prepared is not None
    return dict(found.launched.prepared.details.get("onednn_by_layer", []))


def _doubts(found: LayersFound, step: Quantity) -> list[Doubt]:
    changed = doubts.profiler_overhead(_traced_ratio(found)) if found.rounds else None
    clocks = doubts.clocks_disagree(found.launched.round_trips)
    return [
        *found.launched.noise_doubts,
        *(doubt for doubt in (doubts.few_samples(step.n), changed, clocks) if doubt is not None),
    ]


def _median(blocks: Sequence[Sequence[float]]) -> Quantity:
    return median_of([blocks], replicates=_REPLICATES)


def _seconds(time: dict[str, Any] | Absent) -> float:
    return 0.0 if isinstance(time, Absent) else float(time["median"])


def _rate(flops: int, taken_s: float) -> float | Absent:
    if not flops:
        return Absent("no multiply-adds")
    return flops / taken_s if taken_s > 0 else Absent("took no time that could be measured")
