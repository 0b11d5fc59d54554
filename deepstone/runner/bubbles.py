"""How long the stages of a pipeline wait in real steps, with a timestamp at both ends of every pass.

A step of the job lasts from the end of the one before to its own: the last stage is done early, and begins to wait for
the next step while the first one still computes. So the first of some consecutive steps only gives its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.measure.effort import Effort
from deepstone.measure.pipeline import BACKWARD, FORWARD, Pass, Waiting, ideal_share, replay
from deepstone.measure.statistics import median_of
from deepstone.results.parallel import Bubbles, Lane, Span, Timeline
from deepstone.runner.replies import TracedStep
from deepstone.runner.team import Team
from deepstone.runner.timeline import StepOfJob, by_step
from deepstone.runner.turns import turns_within
from deepstone.setups.schemes import stages_per_process
from deepstone.setups.world import Parts, World

_BUDGET_SHARE: Final = 0.25  # of the budget, if steps are short
_LIMIT_SHARE: Final = 0.5
_PACE: Final = 4  # so many times as long as the steps of one program a round may take
_MOST_STEPS: Final = 50
METHOD: Final = "timestamps at every pass, in steps of their own; a replay of these passes shows what needs no network"


class TracedPipeline(Struct, frozen=True, kw_only=True):
    bubbles: Bubbles | Absent
    timeline: Timeline | Absent
    steps: list[StepOfJob]


class _Step(Struct, frozen=True, kw_only=True):
    """One step of the job. `shares`: by rank, of the step in which it waits."""

    traced: StepOfJob
    begin_s: float
    step_s: float
    shares: list[float]
    replayed: Waiting

    @property
    def share(self) -> float:
        return sum(self.shares) / len(self.shares)


def trace_pipeline(team: Team, step_s: float, effort: Effort) -> TracedPipeline:
    offsets_s, programs = team.clock_offsets_s(), team.open_timeline()
    if isinstance(programs, Absent):
        return TracedPipeline(bubbles=programs, timeline=programs, steps=[])
    share_s, limit_s = _BUDGET_SHARE * effort.budget_s, _LIMIT_SHARE * effort.budget_s
    turns = turns_within(step_s, programs=_PACE, share_s=share_s, limit_s=limit_s)
    steps = 1 + min(turns.steps, _MOST_STEPS)
    traced = [by_step(team.timeline("train", steps, untimed=turns.untimed), offsets_s) for _ in range(turns.rounds)]
    team.close_timeline()
    if not all(_passes(rank) for rank in traced[0][0]):
        untold = Absent("steps of this framework do not tell of every pass of a microbatch")
        return TracedPipeline(bubbles=untold, timeline=untold, steps=[])
    by_round = [_steps(consecutive, team.world) for consecutive in traced]
    return TracedPipeline(
        bubbles=_bubbles(by_round, team.world, Parts.of(team.job.request)),
        timeline=_timeline([step for of_round in by_round for step in of_round]),
        steps=[step.traced for of_round in by_round for step in of_round],
    )


def _steps(consecutive: Sequence[StepOfJob], world: World) -> list[_Step]:
    ends_s = [max(rank.end_s for rank in step) for step in consecutive]
    found: list[_Step] = []
    for (before_s, end_s), step in zip(pairwise(ends_s), consecutive[1:], strict=True):
        whole_s = end_s - before_s
        shares = [1 - _computing_s(rank) / whole_s for rank in step]
        found.append(
            _Step(traced=step, begin_s=before_s, step_s=whole_s, shares=shares, replayed=_replayed(step, world))
        )
    return found


def _computing_s(rank: TracedStep) -> float:
    """Everything that was told of but the sum over pipelines."""
    return sum(end_s - begin_s for kind, begin_s, end_s, _ in rank.spans if kind != "reduce")


def _replayed(step: StepOfJob, world: World) -> Waiting:
    """The longest of several pipelines decides."""
    pipelines = [step[first : first + world.stages] for first in range(0, world.processes, world.stages)]
    found = [
        replay([_passes(rank) for rank in pipeline], [_after_s(rank) for rank in pipeline]) for pipeline in pipelines
    ]
    return max(found, key=lambda each: each.step_s)


def _passes(rank: TracedStep) -> list[Pass]:
    found: list[Pass] = []
    for kind, begin_s, end_s, _ in sorted(rank.spans, key=lambda span: span[1]):
        named = pass_of(kind)
        if named is not None:
            direction, stage, microbatch = named
            found.append(
                Pass(
                    direction=FORWARD if direction == FORWARD else BACKWARD,
                    stage=stage,
                    microbatch=microbatch,
                    seconds=end_s - begin_s,
                )
            )
    return found


def _after_s(rank: TracedStep) -> float:
    return sum(end_s - begin_s for kind, begin_s, end_s, _ in rank.spans if kind == "update")


def pass_of(kind: str) -> tuple[str, int, int] | None:
    """`forward 1 3`: the direction, the stage and the microbatch; None if a span is no pass."""
    direction, *numbers = kind.split()
    return (direction, int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else None


def _bubbles(rounds: Sequence[Sequence[_Step]], world: World, parts: Parts) -> Bubbles:
    ideal = ideal_share(
        processes=world.stages,
        microbatches=parts.microbatches,
        stages_per_process=stages_per_process(parts.schedule),
    )
    ranks = range(world.processes)
    return Bubbles(
        share=median_of([[[step.share for step in steps] for steps in rounds]]),
        ranks=[median_of([[[step.shares[rank] for step in steps] for steps in rounds]]) for rank in ranks],
        ideal_share=ideal,
        replayed_share=median_of([[[step.replayed.share for step in steps] for steps in rounds]]),
        exposed_s=median_of([[[step.step_s - step.replayed.step_s for step in steps] for steps in rounds]]),
        traced_step_s=median_of([[[step.step_s for step in steps] for steps in rounds]]),
        method=METHOD,
    )


def _timeline(steps: Sequence[_Step]) -> Timeline:
    """The step whose time is in the middle."""
    step = sorted(steps, key=lambda each: each.step_s)[len(steps) // 2]
    lanes = [
        Lane(rank=number, spans=[_span(*span, step.begin_s) for span in sorted(rank.spans, key=lambda span: span[1])])
        for number, rank in enumerate(step.traced)
    ]
    return Timeline(step_s=step.step_s, lanes=lanes)


def _span(kind: str, begin_s: float, end_s: float, size: int, from_s: float) -> Span:
    named = pass_of(kind)
    begin_s, end_s = begin_s - from_s, end_s - from_s
    if named is None:
        return Span(kind=kind, begin_s=begin_s, end_s=end_s, bytes=size)
    direction, stage, microbatch = named
    return Span(kind=direction, begin_s=begin_s, end_s=end_s, stage=stage, microbatch=microbatch)
