"""Turns what was measured of communication into curves: medians with intervals, fits, ratios of transports, doubts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import median
from typing import Final

from deepstone.absent import Absent
from deepstone.measure import doubts
from deepstone.measure.ratios import NO_DIFFERENCE, Ratio, verdict_of
from deepstone.measure.statistics import (
    Quantity,
    flat_steps,
    joint_medians,
    median_of,
    median_of_rounds,
    ratio_of_pairs,
    ratio_of_rounds,
)
from deepstone.results.comm import (
    CommCurve,
    CommCurves,
    CommFailure,
    CommPoint,
    GradientBuckets,
    TransportRatio,
    UnderLoad,
)
from deepstone.results.doubt import Doubt
from deepstone.runner.conversation import JobFailed
from deepstone.scaling.fit import fit_points
from deepstone.scaling.lane import UNDER_LOAD, Lane, Measured, Samples
from deepstone.scaling.measure import CommMeasured, CommPlan
from deepstone.scaling.under_load import under_load
from deepstone.setups.transfers import TRANSFERS
from deepstone.units import bytes_

_NOT_TIMED: Final = "the processes ended before it was timed"


def comm_curves(plan: CommPlan, measured: CommMeasured) -> CommCurves:
    lanes = [lane for lane in measured.lanes if lane.facts is not None]
    lacking = [failure for lane in measured.lanes for failure in _lacking(plan, lane)]
    return CommCurves(
        curves=[_curve(plan, lane, name) for lane in lanes for name in plan.operations if _cells(lane, name)],
        ratios=[ratio for name in plan.operations for ratio in _ratios(plan, lanes, name)],
        launches=max(1, measured.launches),
        interval="within process" if measured.launches <= 1 else "across launches",
        failed=[*(lacking if plan.by_name else ()), *(f for lane in measured.lanes for f in _failures(lane))],
        lacking=[] if plan.by_name else lacking,
        doubts=_doubts(lanes, measured.doubts),
    )


def _cells(lane: Lane, operation: str) -> dict[int, Measured]:
    """By size; without those that were left out."""
    missing = lane.left_out.get(operation, ())
    found = {size: cell for (name, size), cell in lane.cells.items() if name == operation and size not in missing}
    return dict(sorted(found.items()))


def _curve(plan: CommPlan, lane: Lane, operation: str) -> CommCurve:
    facts, world = lane.facts, lane.world
    assert facts is not None
    cells = _cells(lane, operation)
    points = [_point(operation, world.processes, size, cell) for size, cell in cells.items()]
    return CommCurve.like(
        facts,
        transport=lane.transport,
        operation=operation,
        processes=world.processes,
        nodes=world.nodes,
        points=points,
        fit=Absent("some result was wrong") if any(cell.wrong for cell in cells.values()) else fit_points(points),
        wire=lane.wires.get(operation, Absent("the processes ended before it was counted")),
        left_out=_left_out(lane, operation),
        under_load=_under_load(plan, lane, operation),
        buckets=_buckets(lane, operation, cells) if plan.of_model else None,
    )


def _point(operation: str, processes: int, size: int, cell: Measured) -> CommPoint:
    launches = _timed(cell)
    if cell.wrong or not launches:
        why = Absent(f"the result was wrong: {cell.wrong}" if cell.wrong else _NOT_TIMED)
        return CommPoint(bytes=size, time_s=why, algbw=why, busbw=why, checked=not cell.wrong)
    time = median_of(launches)
    return CommPoint(
        bytes=size,
        time_s=time,
        algbw=time.inverse(size),
        busbw=time.inverse(size * TRANSFERS[operation].bus_factor(processes)),
        checked=True,
        rounds_s=[[median(block) for block in launch] for launch in launches],
    )


def _timed(cell: Measured) -> Samples:
    """The launches in which it was timed."""
    return [] if cell.wrong else [launch for launch in cell.launches if launch]


def _left_out(lane: Lane, operation: str) -> str:
    sizes = sorted(lane.left_out.get(operation, ()))
    if not sizes:
        return ""
    return f"{', '.join(bytes_(size) for size in sizes)}: too long for this budget; raise it with --budget"


def _under_load(plan: CommPlan, lane: Lane, operation: str) -> UnderLoad | Absent | None:
    if not plan.under_load or operation != plan.operations[0] or not lane.load_bytes:
        return None
    if UNDER_LOAD in lane.unsupported:
        return Absent(lane.unsupported[UNDER_LOAD])
    return under_load(lane.loads, size=lane.load_bytes, compute=plan.compute)


def _buckets(lane: Lane, operation: str, cells: dict[int, Measured]) -> GradientBuckets:
    """The sum over launches; of one launch, over its rounds."""
    sizes = _bucket_sizes(lane, operation)
    if any(not _timed(cells[size]) for size in sizes):
        return GradientBuckets(bytes=sizes, sum_s=Absent("not every bucket has a time"))
    sums = _step_sums(lane, operation)
    if len(sums) > 1:
        return GradientBuckets(bytes=sizes, sum_s=median_of_rounds(sums))
    distinct = sorted(set(sizes))
    rounds = min(len(cells[size].launches[0]) for size in distinct)
    counts = [sizes.count(size) for size in distinct]
    joint = joint_medians([cells[size].launches[0][:rounds] for size in distinct])
    return GradientBuckets(bytes=sizes, sum_s=joint.quantity(lambda medians: medians @ counts))


def _bucket_sizes(lane: Lane, operation: str) -> list[int]:
    assert lane.facts is not None
    transfer = TRANSFERS[operation]
    return [transfer.whole_bytes(size, lane.world.processes) for size in lane.facts.step_buckets]


def _step_sums(lane: Lane, operation: str) -> list[float]:
    """All buckets of a step one after the other, in each launch that timed them all."""
    launches = [_timed(lane.cells[operation, size]) for size in _bucket_sizes(lane, operation)]
    return [sum(_middle(each) for each in launch) for launch in zip(*launches, strict=False)]


def _middle(launch: Sequence[Sequence[float]]) -> float:
    return float(median(flat_steps([launch])))


# --- transports against each other ---


def _ratios(plan: CommPlan, lanes: Sequence[Lane], operation: str) -> Iterator[TransportRatio]:
    for a, b in combinations(lanes, 2):
        if a.world == b.world and a.transport != b.transport:
            yield from _of_step(a, b, operation) if plan.of_model else _of_sizes(a, b, operation)


def _of_sizes(a: Lane, b: Lane, operation: str) -> Iterator[TransportRatio]:
    others = _cells(b, operation)
    for size, cell in _cells(a, operation).items():
        pairs = list(zip(_timed(cell), _timed(others[size]), strict=False)) if size in others else []
        if pairs:
            yield _ratio("operation", a, b, operation, size, ratio_of_pairs(pairs))


def _of_step(a: Lane, b: Lane, operation: str) -> Iterator[TransportRatio]:
    pairs = list(zip(_step_sums(a, operation), _step_sums(b, operation), strict=False))
    if pairs:
        why = "one launch has no interval; give more with --launches"
        only = Quantity.without_interval(pairs[0][0] / pairs[0][1], why=why)
        ratio = ratio_of_rounds(pairs) if len(pairs) > 1 else only
        yield _ratio("step", a, b, operation, sum(_bucket_sizes(a, operation)), ratio)


def _ratio(what: str, a: Lane, b: Lane, operation: str, size: int, time_ratio: Quantity) -> TransportRatio:
    verdict = verdict_of(Ratio.of_times(time_ratio)) if time_ratio.has_interval else NO_DIFFERENCE
    return TransportRatio(
        what="step" if what == "step" else "operation",
        operation=operation,
        processes=a.world.processes,
        bytes=size,
        a=a.transport,
        b=b.transport,
        time_ratio=time_ratio,
        verdict=verdict,
    )


# --- what is wrong with it ---


def _lacking(plan: CommPlan, lane: Lane) -> Iterator[CommFailure]:
    """Operations that the transport does not have."""
    for operation in plan.operations:
        if operation in lane.unsupported:
            yield _failure(lane, "unsupported", f"{operation}: {lane.unsupported[operation]}")


def _failures(lane: Lane) -> Iterator[CommFailure]:
    if isinstance(lane.failure, JobFailed):
        yield _failure(lane, lane.failure.outcome, lane.failure.reason)
    elif lane.failure is not None:
        yield _failure(lane, "missing", str(lane.failure))


def _failure(lane: Lane, outcome: str, reason: str) -> CommFailure:
    return CommFailure(transport=lane.transport, processes=lane.world.processes, outcome=outcome, reason=reason)


def _doubts(lanes: Sequence[Lane], of_machine: Sequence[Doubt]) -> list[Doubt]:
    """Each once."""
    found = [*of_machine, *(doubt for lane in lanes for doubt in _of_lane(lane))]
    return list({doubt.code: doubt for doubt in reversed(found)}.values())[::-1]


def _of_lane(lane: Lane) -> list[Doubt]:
    facts, world = lane.facts, lane.world
    assert facts is not None
    machines = 1 if facts.emulated else world.nodes
    threads = [facts.threads] * (world.processes // machines)
    found = [
        doubts.emulated_nodes(world.nodes, share_machine=facts.emulated),
        doubts.oversubscribed(threads, lane.job.machine.usable_cores) if facts.device == "cpu" else None,
        doubts.clock_unaligned(lane.clock_error_s, Quantity.without_interval(lane.shortest_sample_s)),
        *(doubts.around_the_network(wire, world.nodes) for wire in lane.wires.values()),
    ]
    return [doubt for doubt in found if doubt is not None]
