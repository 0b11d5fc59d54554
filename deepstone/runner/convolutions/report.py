"""Builds the finding of the convolution lab: the best algorithm of each pass, and the best mix for the whole step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.algorithms.problem import PASSES, Pass, Problem
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
from deepstone.results.convolutions import ConvolutionLab, ConvolutionRow, ConvolutionShape, Mix
from deepstone.results.doubt import Doubt
from deepstone.results.findings import Finding
from deepstone.runner.assemble import bare_finding, environment_of
from deepstone.runner.convolutions.results import Convolution, Lab
from deepstone.runner.job import Job
from deepstone.runner.measurement import Launched


def lab_report(job: Job, lab: Lab) -> Finding:
    """Return the result of `deepstone conv` for one batch, complete or not."""
    return replace(
        bare_finding("conv", job, _content(job, lab)),
        started_at=lab.started_at,
        graph_sha=job.model.graph.sha,
        environment=environment_of(job, Launched(hello=lab.hello)),
    )


def _content(job: Job, lab: Lab) -> ConvolutionLab:
    facts, unknown = lab.facts, Absent("nothing could be tried")
    return ConvolutionLab(
        device=unknown if facts is None else facts.device,
        batch=job.batch,
        phase=job.phase,
        precision=unknown if facts is None else facts.precision,
        layout=unknown if facts is None else facts.layout,
        layers=[_layer(job, each) for each in lab.convolutions],
        mix=mix(job, lab),
        failures=lab.failures,
        doubts=list(_doubts(lab)),
    )


def joined_reports(reports: Mapping[int, Finding]) -> Finding:
    """Join the reports of several batches: the common fields, and each report under its batch."""
    first = next(iter(reports.values()))
    if len(reports) == 1:
        return first
    content = {} if first.content is None else first.content.to_json()
    return replace(
        first,
        id=None,
        command=None,
        content=None,
        shared={key: content[key] for key in ("device", "precision", "layout")},
        parts={str(batch): report for batch, report in reports.items()},
        parts_by="batches",
    )


def best(convolution: Convolution, direction: Pass) -> str | Absent:
    """Return the fastest algorithm, or the picked one if no other is shown to be faster."""
    timed = convolution.timed(direction)
    if not timed:
        return Absent("no algorithm was timed")
    picked = timed.get(convolution.picked(direction))
    faster = timed if picked is None else {name: time for name, time in timed.items() if _is_faster(time, picked)}
    if not faster:
        return convolution.picked(direction)
    return min(faster, key=lambda name: faster[name].median)


def _is_faster(one: Quantity, other: Quantity) -> bool:
    """Compare whole intervals, and only valid ones: the fastest of many algorithms may be fast by chance."""
    return _seems_faster(one, other) and _enough(one, other) and one.high < other.low


def _seems_faster(one: Quantity, other: Quantity) -> bool:
    return one.median * (1 + LEAST_DIFFERENCE) < other.median


def _enough(*times: Quantity) -> bool:
    return min(time.n for time in times) >= FEWEST_FOR_CONFIDENCE


def _is_undecided(convolution: Convolution, direction: Pass) -> bool:
    """Whether another algorithm seems faster than the picked one, but has too few samples to show it."""
    timed = convolution.timed(direction)
    picked = timed.get(convolution.picked(direction))
    return picked is not None and any(
        _seems_faster(time, picked) and not _enough(time, picked) for time in timed.values()
    )


def mix(job: Job, lab: Lab) -> Mix | Absent:
    """Return the time of all convolutions of a step with the picked algorithms and with the best ones."""
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
            if timed[chosen] is not picked:  # otherwise the error is equal on both sides and cancels
                saved.append(difference_of_bounds(taken[-1], least[-1]))
            if _is_undecided(convolution, direction):
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
    """Return how many layers run this pass in a step: training needs no gradient of the image."""
    if job.phase == "forward":
        return len(convolution.layers) if direction == "forward" else 0
    if direction != "data" or job.model.source == BY_HAND:
        return len(convolution.layers)
    return sum(layer in job.model.graph.after_parameters for layer in convolution.layers)


def _layer(job: Job, convolution: Convolution) -> ConvolutionRow:
    passes: list[Pass] = list(dict.fromkeys(each.direction for each in convolution.tried))
    return ConvolutionRow(
        name=convolution.name,
        equal=list(convolution.layers[1:]),
        shape=_shape(convolution.problem),
        results=convolution.tried,
        best={direction: best(convolution, direction) for direction in passes},
        in_step={direction: _needed(job, convolution, direction) for direction in passes},
        failures={**convolution.failures} or None,
    )


def _shape(problem: Problem) -> ConvolutionShape:
    """Return the shape per sample."""
    return ConvolutionShape(
        input=[problem.channels, *problem.image],
        output=[problem.filters, *problem.output],
        kernel=list(problem.kernel),
        stride=list(problem.stride),
        pad=list(problem.pad),
        dilation=list(problem.dilation),
        groups=problem.groups,
    )


def _doubts(lab: Lab) -> Iterator[Doubt]:
    """Yield one doubt for all timings that share a reason."""
    timings = [(convolution, each) for convolution in lab.convolutions for each in convolution.tried]
    runs = [each.time_s.n for _, each in timings if isinstance(each.time_s, Quantity)]
    few = [count for count in runs if doubts.few_samples(count) is not None]
    if few:
        detail = (
            f"{len(few)} of {len(runs)} timings rest on few samples, the fewest on {min(few)}: use a larger --budget"
        )
        yield Doubt(code="few_samples", detail=detail)
    bound = [(convolution, each) for convolution, each in timings if each.doubts]
    if bound:
        convolution, first = bound[0]
        where = f"{convolution.name}, {first.direction}, {first.algorithm}"
        detail = f"in {len(bound)} timings, the first {where}, the GPU waited for the CPU: use a larger batch"
        yield Doubt(code="host_bound", detail=detail)
    on_gpu = lab.facts is not None and lab.facts.device != "cpu"
    shared = gpu_shared((), **lab.gpu.uses(None)) if on_gpu else None
    for doubt in (shared, doubts.clocks_disagree(lab.round_trips)):
        if doubt is not None:
            yield doubt
