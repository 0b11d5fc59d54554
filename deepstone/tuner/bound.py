"""What keeps a setup from being faster: its share of the layer-wise roofline, and the limits that held its device."""

from __future__ import annotations

import re
from typing import Final

from deepstone.absent import Absent
from deepstone.graph.cost import layer_work
from deepstone.measure.roofline import bound
from deepstone.results.findings import Finding
from deepstone.results.record import Record
from deepstone.results.tune import Bound, LostTime
from deepstone.runner.job import Job
from deepstone.runner.peaks import known_peaks
from deepstone.setups.widths import value_bytes
from deepstone.setups.world import World
from deepstone.tuner.lost import most_lost

_HELD: Final = re.compile(r"by the power limit for ([0-9.]+) % of the time")


def bound_of(job: Job, record: Record, layers: Finding | None) -> Bound:
    """By the ceilings that this machine is known to have, the doubts of a run, and the times of its layers."""
    share = roofline_share(job, record)
    return Bound(
        roofline_share=share,
        power_limit_share=_power_limit_share(record),
        most_lost=_most_lost(job, share, layers),
        layers=None if layers is None else layers.id,
    )


def _most_lost(job: Job, share: float | Absent, layers: Finding | None) -> list[LostTime] | Absent:
    if layers is not None:
        return most_lost(layers)
    if World.of(job.request).is_parallel:
        return Absent("layers of several processes are not timed")
    if isinstance(share, Absent):
        return share
    return Absent("there was no time left to time its layers; `deepstone layers` with this setup does")


def roofline_share(job: Job, record: Record) -> float | Absent:
    """The sum of the shortest times of all layers over the time of a step."""
    if isinstance(record.summary, Absent):
        return record.summary
    if job.model.graph.opaque:
        return Absent("the layers of a module of your own are not known")
    peaks = known_peaks(job, record.setup.effective)
    if isinstance(peaks, Absent):
        return peaks
    precision, total_s = record.setup.value("precision"), 0.0
    for layer in job.model.graph.layers:
        work = layer_work(
            job.model.graph,
            layer,
            batch=job.batch,
            phase=job.phase,
            value_bytes=value_bytes(precision),
            input_grad=job.request["input_grad"] == "on",
        )
        shortest = bound(work, peaks, precision, taken_s=1.0)
        if isinstance(shortest, Absent):
            if work.forward.flops or work.backward.flops:
                return shortest
            continue
        total_s += shortest.forward_s + shortest.backward_s
    share = total_s / record.summary.step_s.median
    if share > 1:
        return Absent(
            f"its layers would take {100 * share:.0f} % of its time at the measured peaks, which are too low; measure "
            "them again with `deepstone doctor --peaks` while nothing else runs"
        )
    return share


def _power_limit_share(record: Record) -> float | Absent:
    """As the doubt about throttling tells it."""
    for doubt in record.doubts:
        if doubt.code == "throttling" and (found := _HELD.search(doubt.detail)):
            return float(found[1]) / 100
    return Absent("the run saw no power limit")
