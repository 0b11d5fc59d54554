"""What `caffe time` measures: so many iterations, and each layer's share of them.

    prepare ─▶ two steps to warm up ─▶ [ plain steps │ steps with marks around each layer ] × n ─▶ close

There are as many plain steps as marked ones, as many as were asked for. The plain ones say how long an iteration
takes. Where a framework cannot be timed inside a step, each layer is timed by itself after the plain steps.
"""

from __future__ import annotations

from contextlib import closing
from itertools import chain
from statistics import fmean
from typing import Any

from deepstone.absent import Absent
from deepstone.runner.conversation import Conversation, JobFailed, talking_to_worker
from deepstone.runner.isolated import time_alone
from deepstone.runner.job import Job
from deepstone.runner.launch import Tell, noise_around, silent, start
from deepstone.runner.layer_report import alone_times
from deepstone.runner.layers import LayersFound, one_turn

WARM_UP_STEPS = 2
STEPS_AT_A_TIME = 10
_LEAST_ALONE_S, _MOST_ALONE_S = 2.0, 60.0  # in all, for layers by themselves


def time_iterations(job: Job, iterations: int, *, timeout_s: float, tell: Tell = silent) -> LayersFound:
    """Raises JobFailed when the job does not run, MissingError when something is not there."""
    reason = job.broken_rule
    if reason:
        raise JobFailed("unsupported", reason, stage="plan")
    found = LayersFound()
    with talking_to_worker(job, timeout_s=timeout_s) as conversation:
        start(conversation, job, found.launched, tell)
        found.launched.blocks.append(conversation.block(samples=WARM_UP_STEPS))
        with closing(noise_around([found.launched])) as noise:
            before = noise.now()
            _in_turns(conversation, found, iterations, tell)
            found.launched.noise = (before, noise.now())
        if found.in_place_absent is not None:
            spent_s = sum(chain.from_iterable(found.plain_s))
            found.isolated = time_alone(
                conversation,
                job.model.graph,
                budget_s=min(_MOST_ALONE_S, max(_LEAST_ALONE_S, spent_s)),
                on_gpu=found.launched.on_gpu,
                tell=tell,
            )
        conversation.close()
    return found


def _in_turns(conversation: Conversation, found: LayersFound, iterations: int, tell: Tell) -> None:
    done = 0
    while done < iterations:
        tell("iterations", done / iterations)
        steps = min(STEPS_AT_A_TIME, iterations - done)
        one_turn(conversation, found, steps)
        done += steps


def caffe_summary(job: Job, found: LayersFound) -> dict[str, Any]:
    """The numbers that `caffe time` prints: means over the iterations; of layers by themselves, medians.

    A layer that did nothing has taken 0 s. Where there is no backward pass its times are absent.
    """
    times = _means(found) if found.rounds else {key: time.median for key, time in alone_times(found).items()}
    graph = job.model.graph
    names = [layer.name for layer in graph.layers if layer.name != graph.input.name]
    forward_s = {name: times.get((name, "forward"), 0.0) for name in names}
    backward_s = {name: times.get((name, "backward"), 0.0) for name in names}
    iterations_s = list(chain.from_iterable(found.plain_s))
    no_backward = Absent("phase TEST runs forward only") if job.phase == "forward" else None
    return {
        "iterations": len(iterations_s),
        "iteration_s": iterations_s,
        "layers": [
            {"name": name, "forward_s": forward_s[name], "backward_s": no_backward or backward_s[name]}
            for name in names
        ],
        "forward_s": sum(forward_s.values()),
        "backward_s": no_backward or sum(backward_s.values()),
        "forward_backward_s": fmean(iterations_s),
        "total_s": sum(iterations_s),
        "in_place": bool(found.rounds),
        "why_not_in_place": "" if found.in_place_absent is None else found.in_place_absent.reason,
    }


def _means(found: LayersFound) -> dict[tuple[str, str], float]:
    keys = {key for times in found.rounds for key in times.layers_s}
    return {
        key: fmean(chain.from_iterable(times.layers_s.get(key, [0.0] * len(times.total_s)) for times in found.rounds))
        for key in keys
    }
