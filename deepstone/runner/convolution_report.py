"""From what the lab found to the result that is printed, kept and drawn: the best of each pass, and of all together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from deepstone.absent import Absent, as_json
from deepstone.algorithms.problem import PASSES, Pass
from deepstone.measure import doubts
from deepstone.measure.statistics import Quantity
from deepstone.models.by_hand import BY_HAND
from deepstone.runner.assemble import environment_of
from deepstone.runner.convolution_results import Convolution, Lab
from deepstone.runner.job import Job, storable
from deepstone.runner.launch import Launched

SCHEMA = 1
LEAST_DIFFERENCE = 0.02  # another algorithm is better than the picked one only beyond this


@dataclass(frozen=True, kw_only=True, slots=True)
class Mix:
    """Seconds per batch over all convolutions that a step of the job needs."""

    picked_s: float
    best_s: float

    @property
    def saved_s(self) -> float:
        return self.picked_s - self.best_s

    def to_json(self) -> dict[str, float]:
        share = self.saved_s / self.picked_s if self.picked_s else 0.0
        return {"picked_s": self.picked_s, "best_s": self.best_s, "saved_s": self.saved_s, "saved_share": share}


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
    return one.high < other.low and one.median * (1 + LEAST_DIFFERENCE) < other.median


def mix(job: Job, lab: Lab) -> Mix | Absent:
    """What all convolutions of a step take as picked, and would take if each were done by its best algorithm."""
    picked_s = best_s = 0.0
    for convolution in lab.convolutions:
        for direction in PASSES:
            count = _needed(job, convolution, direction)
            if not count:
                continue
            timed = convolution.timed(direction)
            picked, chosen = timed.get(convolution.picked(direction)), best(convolution, direction)
            if picked is None or isinstance(chosen, Absent):
                return Absent(f"what is picked for {convolution.name}, {direction}, was not timed")
            picked_s += count * picked.median
            best_s += count * timed[chosen].median
    return Mix(picked_s=picked_s, best_s=best_s) if picked_s else Absent("nothing was timed")


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


def _doubts(lab: Lab) -> Iterator[dict[str, str]]:
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
