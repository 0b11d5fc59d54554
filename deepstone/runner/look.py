"""A look at a job: one fresh process, warm-up, a second or two of timed steps, and no more. For searches, in which the
start of a process costs more than its steps, and where many quick numbers say more than one narrow interval.

    hello ─ prepare ─▶ early steps ─▶ warm-up ─▶ block block block ─▶ late steps ─▶ energy ─▶ loss, memory ─▶ close

The record is an ordinary one, with the doubts that so few samples raise. It contains the first losses and updates, so
that a setup which trains something else can be told.
"""

from __future__ import annotations

import math
from contextlib import closing
from typing import Final

from deepstone.measure.effort import Effort
from deepstone.measure.training import EARLY_STEPS
from deepstone.results.record import LOOK, Draft
from deepstone.runner.assemble import draft, now
from deepstone.runner.conversation import JobFailed
from deepstone.runner.gpu_around import gpu_use_around
from deepstone.runner.job import Job
from deepstone.runner.measurement import (
    SHORTEST_SAMPLE_CPU_S,
    SHORTEST_SAMPLE_GPU_S,
    Launched,
    OnProgress,
    finish,
    measure_energy,
    no_progress,
    noise_around,
    snapshot,
    snapshot_before_last,
    snapshots_at_end,
    start,
)
from deepstone.runner.replies import BlockTimes
from deepstone.runner.standby import Standby
from deepstone.runner.team import Talk, talking_to

TOO_SLOW: Final = "early steps"  # where a look ends whose steps take too long
_BLOCKS: Final = 4
_LEAST_SAMPLES: Final = 2
_WARMUP_SHARE: Final = 0.4  # of the timed time


def look_at(
    job: Job,
    *,
    timed_s: float,
    timeout_s: float,
    slowest_step_s: float = math.inf,
    energy_s: float = 0.0,
    standby: Standby | None = None,
    on_progress: OnProgress = no_progress,
) -> Draft:
    """Raises MissingError; any other failure is the outcome of the record. `slowest_step_s`: of one whose steps take
    longer no more is measured. `standby`: workers that wait for a job."""
    started_at, launched = now(), Launched()
    effort = Effort(budget_s=timed_s, timeout_s=timeout_s, phases=False, energy_s=energy_s)
    try:
        reason = job.broken_rule
        if reason:
            raise JobFailed("unsupported", reason, stage="plan")
        with gpu_use_around(job) as gpu, talking_to(job, timeout_s=timeout_s, spares=standby) as conversation:
            launched.gpu = gpu
            start(conversation, job, launched, on_progress)
            if standby is not None:
                standby.settle()
            on_progress("measuring", 0.5)
            with closing(noise_around([launched])) as noise:
                before = noise.now()
                _steps(conversation, launched, timed_s, slowest_step_s)
                launched.noise = (before, noise.now())
            measure_energy(conversation, job, launched, energy_s)
            finish(conversation, job, launched)
    except JobFailed as failure:
        return draft(job, [launched], started_at=started_at, effort=effort, failure=failure)
    return draft(job, [launched], started_at=started_at, effort=effort)


def _steps(conversation: Talk, launched: Launched, timed_s: float, slowest_step_s: float) -> None:
    """Early steps between two snapshots, more warm-up if steps are short, then the timed blocks."""
    assert launched.evidence is not None
    assert launched.prepared is not None
    launched.evidence.first = snapshot(conversation, launched)
    launched.blocks.append(conversation.block(samples=EARLY_STEPS))
    # The fastest of all: the first compiles, and the next one may record what was compiled.
    step_s = min(launched.prepared.first_step_s, *launched.blocks[-1].step_s)
    if step_s > slowest_step_s:
        reason = f"a step takes {step_s:.3g} s, and with more than {slowest_step_s:.3g} s it cannot win"
        raise JobFailed("timeout", reason, stage=TOO_SLOW)
    launched.evidence.early = snapshot(conversation, launched)
    step_s = launched.recent_step_s
    if step_s < _WARMUP_SHARE * timed_s / 2:
        launched.blocks.append(_block(conversation, launched, _WARMUP_SHARE * timed_s))
    launched.warmup_given = len(launched.samples)
    step_s = launched.recent_step_s
    if step_s > timed_s / _BLOCKS:
        samples = max(_LEAST_SAMPLES, conversation.fewest_samples, math.ceil(timed_s / max(step_s, 1e-9)))
        snapshot_before_last(conversation, launched)
        launched.blocks.append(conversation.block(samples=samples))
    else:
        for number in range(_BLOCKS):
            if number == _BLOCKS - 1:
                snapshot_before_last(conversation, launched)
            launched.blocks.append(_block(conversation, launched, timed_s / _BLOCKS))
    snapshots_at_end(conversation, launched)  # what no longer trains once it is timed must not win
    launched.stopped = f"{LOOK}{timed_s:g} s"


def _block(conversation: Talk, launched: Launched, block_s: float) -> BlockTimes:
    """A block that lasts about so long."""
    step_s = max(launched.recent_step_s, 1e-9)
    shortest_s = SHORTEST_SAMPLE_GPU_S if launched.on_gpu else SHORTEST_SAMPLE_CPU_S
    per_sample = max(1, math.ceil(shortest_s / step_s))
    samples = max(conversation.fewest_samples, round(block_s / (step_s * per_sample)))
    return conversation.block(samples=samples, steps_per_sample=per_sample)
