"""Builds the finding from the measured layer times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

import msgspec

from deepstone.absent import Absent
from deepstone.graph.cost import LayerWork, Work, layer_work
from deepstone.graph.graph import Graph
from deepstone.measure import doubts
from deepstone.measure.roofline import bound
from deepstone.measure.statistics import (
    Quantity,
    difference_of_bounds,
    joint_medians,
    median_of,
    sum_of_bounds,
)
from deepstone.results.doubt import Doubt
from deepstone.results.findings import Finding
from deepstone.results.layers import (
    GROUPS,
    IsolatedLayer,
    LayerGroup,
    LayerPeaks,
    LayerRow,
    LayerTable,
    OtherPart,
    Passes,
    PassRates,
    known_s,
)
from deepstone.runner.assemble import bare_finding, environment_of, setup_of
from deepstone.runner.job import Job
from deepstone.runner.layers.measure import LayersFound
from deepstone.runner.layers.modules import ModuleLayers
from deepstone.runner.peaks import known_peaks
from deepstone.runner.replies import InPlaceTimes
from deepstone.setups.widths import value_bytes

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
_REPLICATES = 200  # few, since there are hundreds of layers


def layers_report(job: Job, found: LayersFound, *, started_at: str) -> Finding:
    """Return the result of `deepstone layers` for one framework."""
    return msgspec.structs.replace(
        bare_finding("layers", job, _table(job, found)),
        outcome="ok",
        started_at=started_at,
        graph_sha=job.model.graph.sha,
        workload=job.workload,
        setup=setup_of(job, found.launched),
        environment=environment_of(job, found.launched),
    )


def _table(job: Job, found: LayersFound) -> LayerTable:
    prepared = found.launched.prepared
    assert prepared is not None
    peaks = known_peaks(job, prepared.effective)
    step = median_of([found.plain_s])
    times = _in_place(found) if found.rounds else isolated_times(found)
    rows = _with_shares(_rows(job, found, times, peaks, prepared.value("precision")))
    parts = _parts(found)
    isolated_s = _isolated_sum(found)
    module = ModuleLayers.of(found.rounds)
    return LayerTable(
        method=found.rounds[0].method if found.rounds else ISOLATED,
        rule=found.rounds[0].rule if found.rounds else _isolated_rule(found),
        step_s=step,
        other=[OtherPart(name=name, s=_median(blocks)) for name, blocks in _other_parts(found).items()],
        isolated_sum_s=isolated_s,
        fusion_saved_s=_saved(isolated_s, parts["sum_s"]),
        layers=rows,
        groups=module.by_class(rows) if module.parts else list(_groups(rows)),
        blocks=module.by_block(rows) if module.parts else None,
        classes=module.by_container(rows) if module.parts else None,
        peaks=peaks,
        kernels=found.trace,
        doubts=_doubts(found, step),
        **parts,
    )


def _in_place(found: LayersFound) -> dict[tuple[str, str], Quantity]:
    """Return times by layer and pass; the steps of each round are a block."""
    keys = dict.fromkeys(key for times in found.rounds for key in times.layers_s)
    return {key: _median(_series(found, key)) for key in keys}


def isolated_times(found: LayersFound) -> dict[tuple[str, str], Quantity]:
    if isinstance(found.isolated, Absent):
        return {}
    parts = {
        (name, part): time
        for name, times in found.isolated.items()
        for part, time in zip(PASSES, (times.forward_s, times.backward_s), strict=True)
    }
    return {key: time for key, time in parts.items() if isinstance(time, Quantity)}


def _rows(
    job: Job, found: LayersFound, times: Mapping[tuple[str, str], Quantity], peaks: LayerPeaks | Absent, precision: str
) -> list[LayerRow]:
    graph = job.model.graph
    if graph.opaque:
        return ModuleLayers.of(found.rounds).rows(times, {layer.name: layer.op.kind for layer in graph.layers})
    assert found.launched.prepared is not None
    primitives = dict(found.launched.prepared.known.onednn_by_layer)
    return [
        _row(graph, name, work, times, _isolated(found, name), peaks, precision, primitives.get(name, []))
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
    isolated: IsolatedLayer | Absent,
    peaks: LayerPeaks | Absent,
    precision: str,
    primitives: list[str],
) -> LayerRow:
    forward, backward = times.get((name, "forward")), times.get((name, "backward"))
    forward_s, backward_s = (0.0 if time is None else time.median for time in (forward, backward))
    # Without any layer time, this layer was not measured; its time is absent, not zero.
    untimed = isolated if not times and isinstance(isolated, Absent) else None
    return LayerRow(
        name=name,
        op=work.op,
        shape=list(graph.shapes[name]),
        parameters=sum(math.prod(shape) for shape in graph.parameters(graph.layer(name)).values()),
        flops=Passes(forward=work.forward.flops, backward=work.backward.flops),
        bytes=Passes(forward=work.forward.bytes, backward=work.backward.bytes),
        forward_s=untimed or _time_or_absent(forward, "forward"),
        backward_s=untimed or _time_or_absent(backward, "backward"),
        flops_per_s=PassRates(forward=_rate(work.forward, forward_s), backward=_rate(work.backward, backward_s)),
        isolated=isolated,
        bound=peaks if isinstance(peaks, Absent) else bound(work, peaks, precision, taken_s=forward_s + backward_s),
        primitives=primitives,
        share=0.0,
    )


def _with_shares(rows: Sequence[LayerRow]) -> list[LayerRow]:
    """Return the rows, each with its share of the total time."""
    taken_s = [known_s(row.forward_s) + known_s(row.backward_s) for row in rows]
    total_s = sum(taken_s)
    return [
        msgspec.structs.replace(row, share=row_s / total_s if total_s else 0.0)
        for row, row_s in zip(rows, taken_s, strict=True)
    ]


def _time_or_absent(time: Quantity | None, part: str) -> Quantity | Absent:
    return Absent(f"the layer did nothing {part}") if time is None else time


def _isolated(found: LayersFound, name: str) -> IsolatedLayer | Absent:
    return found.isolated if isinstance(found.isolated, Absent) else found.isolated[name]


def _isolated_rule(found: LayersFound) -> str:
    rule = "nothing is shared: no layer ran with another"
    times = found.isolated.values() if isinstance(found.isolated, dict) else ()
    return "; ".join([rule, *sorted({f"each time holds {one.beside}" for one in times if one.beside})])


def _parts(found: LayersFound) -> dict[str, Quantity | Absent]:
    """Return the measured parts of a step, and their share of the untraced step.

    A sum is the sum of the medians of its parts, so that it equals the sum of the displayed values. The median of the
    sums is nearly always larger: a disturbance hits another part each time, and the medians of the parts exclude it.
    The time of the whole traced step is a separate field.
    """
    if not found.rounds:
        assert found.in_place_absent is not None
        absent = Absent(f"layers were not timed inside the step: {found.in_place_absent.reason}")
        return dict.fromkeys(_PARTS, absent)
    rounds = found.rounds
    layers = [_series(found, key) for key in dict.fromkeys(key for times in rounds for key in times.layers_s)]
    own = {"data_s": [times.data_s for times in rounds]}
    own |= {"update_s": [times.update_s for times in rounds], "gaps_s": [times.gaps_s for times in rounds]}
    series = [*layers, *_other_parts(found).values(), *own.values()]
    joint = joint_medians([*series, found.plain_s], replicates=_REPLICATES)
    several, all_of_it = len(layers), len(series)
    return {
        "traced_step_s": _median([times.total_s for times in rounds]),
        "traced_time_ratio": _traced_ratio(found),
        "sum_s": joint.quantity(lambda medians: medians[..., :several].sum(axis=-1)),
        "layers_time_ratio": joint.quantity(lambda medians: medians[..., :several].sum(axis=-1) / medians[..., -1]),
        **{name: _median(blocks) for name, blocks in own.items()},
        "together_s": joint.quantity(lambda medians: medians[..., :all_of_it].sum(axis=-1)),
        "explained": joint.quantity(lambda medians: medians[..., :all_of_it].sum(axis=-1) / medians[..., -1]),
    }


def _other_parts(found: LayersFound) -> dict[str, list[list[float]]]:
    """Return the times of the parts of a step that are not layers."""
    names = dict.fromkeys(name for times in found.rounds for name in times.other_s)
    return {name: [times.other_s.get(name, _zeros(times)) for times in found.rounds] for name in names}


def _series(found: LayersFound, key: tuple[str, str]) -> list[list[float]]:
    """Return the times of a layer's pass; the steps of each round are a block."""
    return [times.layers_s.get(key, _zeros(times)) for times in found.rounds]


def _zeros(times: InPlaceTimes) -> list[float]:
    return [0.0] * len(times.total_s)


def _traced_ratio(found: LayersFound) -> Quantity:
    """Return the time of a traced step over that of the untraced step of the same round."""
    ratios = [
        median(times.total_s) / median(plain_s) for times, plain_s in zip(found.rounds, found.plain_s, strict=True)
    ]
    return median_of([[[ratio] for ratio in ratios]])


def _isolated_sum(found: LayersFound) -> Quantity | Absent:
    if isinstance(found.isolated, Absent):
        return Absent("layers have no isolated times")
    passes = [time for each in found.isolated.values() for time in (each.forward_s, each.backward_s)]
    return sum_of_bounds([time for time in passes if isinstance(time, Quantity)])


def _saved(isolated_s: Quantity | Absent, in_place_s: Quantity | Absent) -> Quantity | Absent:
    """Return the time that a step saves against isolated layers, by fusion and by inputs that are still in the
    cache."""
    if isinstance(isolated_s, Absent) or isinstance(in_place_s, Absent):
        return Absent("needs both isolated times and times in place")
    return difference_of_bounds(isolated_s, in_place_s)


def _groups(rows: Sequence[LayerRow]) -> Iterator[LayerGroup]:
    for name, kinds in GROUPS.items():
        members = [row for row in rows if row.op in kinds]
        if members:
            yield LayerGroup.of(name, members)


def _doubts(found: LayersFound, step: Quantity) -> list[Doubt]:
    changed = doubts.profiler_overhead(_traced_ratio(found)) if found.rounds else None
    clocks = doubts.clocks_disagree(found.launched.round_trips)
    return [
        *found.launched.noise_doubts,
        *(doubt for doubt in (doubts.few_samples(step.n), changed, clocks) if doubt is not None),
    ]


def _median(blocks: Sequence[Sequence[float]]) -> Quantity:
    return median_of([blocks], replicates=_REPLICATES)


def _rate(work: Work, taken_s: float) -> float | Absent:
    if not work.flops:
        return Absent("no multiply-adds")
    return work.flops / taken_s if taken_s > 0 else Absent("took no time that could be measured")
