"""Measures what `caffe time` measures: a number of iterations, and the time of each layer in them.

    prepare ─▶ two steps to warm up ─▶ [ plain steps │ steps with a timestamp around each layer ] × n ─▶ close

The number of plain steps and that of steps with timestamps are both the number that the user asked for. Plain steps
give the time of an iteration. If a framework cannot time layers inside a step, isolated times follow the plain steps.
"""

from __future__ import annotations

from contextlib import closing
from itertools import chain
from statistics import fmean

from deepstone.absent import Absent
from deepstone.results.parts import Number, OrAbsent, Part
from deepstone.runner.conversation import Conversation, JobFailed, talking_to_worker
from deepstone.runner.gpu_around import gpu_use_around
from deepstone.runner.job import Job
from deepstone.runner.layers.isolated import time_isolated
from deepstone.runner.layers.measure import LayersFound, one_turn
from deepstone.runner.layers.report import isolated_times
from deepstone.runner.measurement import OnProgress, no_progress, noise_around, start

WARM_UP_STEPS = 2
STEPS_AT_A_TIME = 10
_LEAST_ISOLATED_S, _MOST_ISOLATED_S = 2.0, 60.0  # in all, for isolated layers


def time_iterations(
    job: Job, iterations: int, *, timeout_s: float, on_progress: OnProgress = no_progress
) -> LayersFound:
    """Raises JobFailed if the job does not run, MissingError if something is missing."""
    reason = job.broken_rule
    if reason:
        raise JobFailed("unsupported", reason, stage="plan")
    found = LayersFound()
    with gpu_use_around(job) as gpu, talking_to_worker(job, timeout_s=timeout_s) as conversation:
        found.launched.gpu = gpu
        start(conversation, job, found.launched, on_progress)
        found.launched.blocks.append(conversation.block(samples=WARM_UP_STEPS))
        with closing(noise_around([found.launched])) as noise:
            before = noise.now()
            _in_turns(conversation, found, iterations, on_progress)
            found.launched.noise = (before, noise.now())
        if found.in_place_absent is not None:
            spent_s = sum(chain.from_iterable(found.plain_s))
            found.isolated = time_isolated(
                conversation,
                job.model.graph,
                budget_s=min(_MOST_ISOLATED_S, max(_LEAST_ISOLATED_S, spent_s)),
                on_gpu=found.launched.on_gpu,
                on_progress=on_progress,
            )
        found.launched.round_trips = conversation.round_trips
        conversation.close()
    return found


def _in_turns(conversation: Conversation, found: LayersFound, iterations: int, on_progress: OnProgress) -> None:
    done = 0
    while done < iterations:
        on_progress("iterations", done / iterations)
        steps = min(STEPS_AT_A_TIME, iterations - done)
        one_turn(conversation, found, steps)
        done += steps


class CaffeLayer(Part, frozen=True, kw_only=True):
    name: str
    forward_s: Number
    backward_s: OrAbsent[Number]


class CaffeTime(Part, frozen=True, kw_only=True):
    """The numbers that `caffe time` prints: means over the iterations, or medians of isolated layers.

    A layer that did nothing took 0 s. Without a backward pass the backward times are absent.
    """

    iterations: int
    iteration_s: list[Number]
    layers: list[CaffeLayer]
    forward_s: Number
    backward_s: OrAbsent[Number]
    forward_backward_s: Number
    total_s: Number
    in_place: bool
    why_not_in_place: str


def caffe_summary(job: Job, found: LayersFound) -> CaffeTime:
    times = _means(found) if found.rounds else {key: time.median for key, time in isolated_times(found).items()}
    graph = job.model.graph
    names = [layer.name for layer in graph.layers if layer.name != graph.input.name]
    forward_s = {name: times.get((name, "forward"), 0.0) for name in names}
    backward_s = {name: times.get((name, "backward"), 0.0) for name in names}
    iterations_s = list(chain.from_iterable(found.plain_s))
    no_backward = Absent("phase TEST runs forward only") if job.phase == "forward" else None
    return CaffeTime(
        iterations=len(iterations_s),
        iteration_s=list(iterations_s),
        layers=[
            CaffeLayer(name=name, forward_s=forward_s[name], backward_s=no_backward or backward_s[name])
            for name in names
        ],
        forward_s=sum(forward_s.values()),
        backward_s=no_backward or sum(backward_s.values()),
        forward_backward_s=fmean(iterations_s),
        total_s=sum(iterations_s),
        in_place=bool(found.rounds),
        why_not_in_place="" if found.in_place_absent is None else found.in_place_absent.reason,
    )


def _means(found: LayersFound) -> dict[tuple[str, str], float]:
    keys = {key for times in found.rounds for key in times.layers_s}
    return {
        key: fmean(chain.from_iterable(times.layers_s.get(key, [0.0] * len(times.total_s)) for times in found.rounds))
        for key in keys
    }
