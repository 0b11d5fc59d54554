"""From what the lab found to the result that is printed, kept and drawn: the best of each pass, and of all together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deepstone.absent import Absent, as_json
from deepstone.algorithms.problem import PASSES, Pass
from deepstone.measure import doubts
from deepstone.measure.noise import gpu_shared
from deepstone.measure.ratios import LEAST_DIFFERENCE
from deepstone.measure.statistics import (
    FEWEST_FOR_CONFIDENCE,
    Quantity,
    difference_of_bounds,
    ratio_of_bounds,
    sum_of_bounds,
)
from deepstone.models.by_hand import BY_HAND
from deepstone.runner.assemble import environment_of
from deepstone.runner.convolutions.results import Convolution, Lab
from deepstone.runner.job import Job, storable
from deepstone.runner.measurement import Launched

SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Mix:
    """Seconds per batch over all convolutions that a step of the job needs. What another choice would save is absent
    where too few samples leave open whether an algorithm is faster."""

    picked_s: Quantity
    best_s: Quantity | Absent
    saved_s: Quantity | Absent
    saved_share: Quantity | Absent

    def to_json(self) -> dict[str, Any]:
        parts = {"picked_s": self.picked_s, "best_s": self.best_s}
        parts |= {"saved_s": self.saved_s, "saved_share": self.saved_share}
        return {name: part.to_json() for name, part in parts.items()}


def lab_report(job: Job, lab: Lab) -> dict[str, Any]:
    """The JSON of `deepstone conv` for one batch, complete or not."""
    facts = lab.facts
    unknown = Absent("nothing could be tried")
    return as_json(
        {
            "schema": SCHEMA,
            "kind": "conv",
            "model": job.model.name,
            "graph_sha": job.model.graph.sha,
            "started_at": lab.started_at,
            "command": [storable(word) for word in job.command],
            "device": unknown if facts is None else facts.device,
            "batch": job.batch,
            "phase": job.phase,
            "precision": unknown if facts is None else facts.precision,
            "layout": unknown if facts is None else facts.layout,
            "environment": environment_of(job, Launched(hello=lab.hello)),
            "layers": [_layer(job, each) for each in lab.convolutions],
            "mix": mix(job, lab).to_json(),
            "failures": lab.failures,
            "doubts": list(_doubts(lab)),
        }
    )


def joined_reports(reports: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Of several batches: what they share, and each under its batch."""
    first = next(iter(reports.values()))
    if len(reports) == 1:
        return first
    shared = ("schema", "kind", "model", "graph_sha", "started_at", "device", "precision", "layout", "environment")
    return {
        **{key: first[key] for key in shared},
        "batches": {str(batch): report for batch, report in reports.items()},
    }


def best(convolution: Convolution, direction: Pass) -> str | Absent:
    """The fastest algorithm; the picked one where no other is shown to be faster."""
    timed = convolution.timed(direction)
    if not timed:
        return Absent("no algorithm was timed")
    picked = timed.get(convolution.picked(direction))
    faster = timed if picked is None else {name: time for name, time in timed.items() if _is_faster(time, picked)}
    if not faster:
        return convolution.picked(direction)
    return min(faster, key=lambda name: faster[name].median)


def _is_faster(one: Quantity, other: Quantity) -> bool:
    """By whole intervals, and only where both hold what they say: the best of many is soon fast by chance."""
    return _seems_faster(one, other) and _enough(one, other) and one.high < other.low


def _seems_faster(one: Quantity, other: Quantity) -> bool:
    return one.median * (1 + LEAST_DIFFERENCE) < other.median


def _enough(*times: Quantity) -> bool:
    return min(time.n for time in times) >= FEWEST_FOR_CONFIDENCE


def _left_open(convolution: Convolution, direction: Pass) -> bool:
    """Whether another algorithm seems faster than the picked one, but too few samples say so."""
    timed = convolution.timed(direction)
    picked = timed.get(convolution.picked(direction))
    return picked is not None and any(
        _seems_faster(time, picked) and not _enough(time, picked) for time in timed.values()
    )


def mix(job: Job, lab: Lab) -> Mix | Absent:
    """What all convolutions of a step take as picked, and would take if each were done by its best algorithm."""
    taken: list[Quantity] = []
    least: list[Quantity] = []
    saved: list[Quantity] = []
    left_open: list[str] = []
    for convolution in lab.convolutions:
        for direction in PASSES:
            count = _needed(job, convolution, direction)
            if not count:
                continue
            timed = convolution.timed(direction)
            picked, chosen = timed.get(convolution.picked(direction)), best(convolution, direction)
            if picked is None or isinstance(chosen, Absent):
                return Absent(f"what is picked for {convolution.name}, {direction}, was not timed")
            taken.append(picked.scaled(count))
            least.append(timed[chosen].scaled(count))
            if timed[chosen] is not picked:  # else its error is the same on both sides and cancels
                saved.append(difference_of_bounds(taken[-1], least[-1]))
            if _left_open(convolution, direction):
                left_open.append(f"{convolution.name}, {direction}")
    picked_s = sum_of_bounds(taken)
    if not picked_s.median:
        return Absent("nothing was timed")
    if left_open:
        unknown = Absent(_too_few(left_open))
        return Mix(picked_s=picked_s, best_s=unknown, saved_s=unknown, saved_share=unknown)
    saved_s = sum_of_bounds(saved) if saved else Quantity.of(median=0.0, low=0.0, high=0.0, n=picked_s.n)
    share = ratio_of_bounds(saved_s, picked_s)
    return Mix(picked_s=picked_s, best_s=sum_of_bounds(least), saved_s=saved_s, saved_share=share)


def _too_few(passes: list[str]) -> str:
    named = "; ".join(passes[:3]) + (f" and {len(passes) - 3} more" if len(passes) > 3 else "")
    return (
        f"fewer than {FEWEST_FOR_CONFIDENCE} samples leave open whether another algorithm is faster ({named}): "
        "use a larger --budget"
    )


def _needed(job: Job, convolution: Convolution, direction: Pass) -> int:
    """How many of its layers do this pass in a step: training needs no gradient of the image."""
    if job.phase == "forward":
        return len(convolution.layers) if direction == "forward" else 0
    if direction != "data" or job.model.source == BY_HAND:
        return len(convolution.layers)
    return sum(layer in job.model.graph.after_parameters for layer in convolution.layers)


def _layer(job: Job, convolution: Convolution) -> dict[str, Any]:
    passes: list[Pass] = list(dict.fromkeys(each.direction for each in convolution.tried))
    return {
        "name": convolution.name,
        "equal": list(convolution.layers[1:]),
        "shape": convolution.problem.to_json(),
        "results": [each.to_json() for each in convolution.tried],
        "best": {direction: best(convolution, direction) for direction in passes},
        "in_step": {direction: _needed(job, convolution, direction) for direction in passes},
        **({"failures": dict(convolution.failures)} if convolution.failures else {}),
    }


def _doubts(lab: Lab) -> Iterator[Mapping[str, Any]]:
    """One for all timings that share a reason."""
    timings = [(convolution, each) for convolution in lab.convolutions for each in convolution.tried]
    runs = [each.time.n for _, each in timings if isinstance(each.time, Quantity)]
    few = [count for count in runs if doubts.few_samples(count) is not None]
    if few:
        detail = (
            f"{len(few)} of {len(runs)} timings rest on few samples, the fewest on {min(few)}: use a larger --budget"
        )
        yield {"code": "few_samples", "detail": detail}
    bound = [(convolution, each) for convolution, each in timings if each.doubt is not None]
    if bound:
        convolution, first = bound[0]
        where = f"{convolution.name}, {first.direction}, {first.algorithm}"
        detail = f"in {len(bound)} timings, the first {where}, the GPU waited for the CPU: use a larger batch"
        yield {"code": "host_bound", "detail": detail}
    on_gpu = lab.facts is not None and lab.facts.device != "cpu"
    shared = gpu_shared((), **lab.gpu.uses(None)) if on_gpu else None
    for doubt in (shared, doubts.clocks_disagree(lab.round_trips)):
        if doubt is not None:
            yield doubt.to_json()
