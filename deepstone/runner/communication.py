"""What communication costs a step, from programs that do less and less of it, run in turns.

    train      the real step
    meet       the step without the exchange; processes only wait for each other
    local      the step without any communication
    exchange   the exchange alone, bucket by bucket, with nothing computed beside it

    waiting of a rank = (meet - local of that rank) - meeting        meeting = the least of (meet - local) over ranks
    exposed           = (train - meet) + meeting

Time in a collective itself proves little: it holds waiting for others, and what overlaps with computing may slow that
down. So nothing here reads it. A difference has an interval and may come out negative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from deepstone.absent import Absent
from deepstone.measure.effort import Effort
from deepstone.measure.statistics import Quantity, difference_of_medians, median_of
from deepstone.results.parallel import Communication
from deepstone.runner.team import Team

_ROUNDS: Final = 8
_BUDGET_SHARE: Final = 0.5
_FEWEST_STEPS: Final = 3  # of each program in a round
_FEWEST_ROUNDS: Final = 3  # of one step each, where steps are so long that more would take far beyond the budget
_MOST_BUDGETS: Final = 2  # or this long, if that is more:
_ALWAYS_S: Final = 10.0
_PROGRAMS: Final = ("train", "meet", "local", "exchange")
_COMPRESSED: Final = "compressed gradients are not exchanged apart from a step"
METHOD: Final = "steps with less and less communication, in turns"

Times = dict[str, list[list[float]]]  # program → what each round's steps took


def measure_communication(team: Team, step_s: float, effort: Effort) -> Communication:
    """The replicas are made equal again after it."""
    rounds, steps = rounds_and_steps(step_s, effort.budget_s)
    programs = _programs(team)
    of_job: Times = {program: [] for program in programs}
    of_ranks: list[Times] = [{program: [] for program in programs} for _ in range(team.world.processes)]
    if rounds == _ROUNDS:  # else steps are long, and the untimed one of each block has to do
        for program in programs:
            team.block(samples=1, program=program)
    for turn in range(rounds):
        for program in in_turn(programs, turn):
            of_job[program].append(team.block(samples=steps, program=program).step_s)
            for rank, block in zip(of_ranks, team.last_blocks[: len(of_ranks)], strict=True):  # servers always wait
                rank[program].append(block.step_s)
    team.restore()
    return communication_of(of_job, of_ranks)


def rounds_and_steps(step_s: float, budget_s: float, share: float = _BUDGET_SHARE) -> tuple[int, int]:
    """How many rounds, and steps of each program in a round. `share`: of the budget, if steps are short."""
    steps = int(share * budget_s / len(_PROGRAMS) / _ROUNDS / max(step_s, 1e-9))
    affordable = int(max(_MOST_BUDGETS * budget_s, _ALWAYS_S) / len(_PROGRAMS) / max(step_s, 1e-9))
    if affordable >= _ROUNDS * _FEWEST_STEPS:
        return _ROUNDS, max(_FEWEST_STEPS, steps)
    rounds = min(_ROUNDS, max(_FEWEST_ROUNDS, affordable))
    return rounds, max(1, affordable // rounds)


def communication_of(of_job: Times, of_ranks: Sequence[Times]) -> Communication:
    longer = [difference_of_medians(rank["meet"], rank["local"]) for rank in of_ranks]
    meeting_s = min(each.median for each in longer)
    exposed = _shifted(difference_of_medians(of_job["train"], of_job["meet"]), meeting_s)
    alone = median_of([of_job["exchange"]]) if "exchange" in of_job else Absent(_COMPRESSED)
    return Communication(
        exposed_s=exposed,
        waiting_s=[_shifted(each, -meeting_s) for each in longer],
        meeting_s=meeting_s,
        alone_s=alone,
        hidden_share=alone if isinstance(alone, Absent) else _hidden(exposed.median, alone.median),
        local_step_s=median_of([of_job["local"]]),
        method=METHOD,
    )


def _hidden(exposed_s: float, alone_s: float) -> float | Absent:
    if not math.isfinite(alone_s) or alone_s <= 0:
        return Absent("the exchange alone takes no time that could be measured")
    return 1 - exposed_s / alone_s


def _programs(team: Team) -> tuple[str, ...]:
    """Compressed gradients depend on those of the steps before, so they are not exchanged without a step."""
    return _PROGRAMS if team.job.request["compression"] == "none" else _PROGRAMS[:-1]


def in_turn(programs: tuple[str, ...], turn: int) -> tuple[str, ...]:
    """Another program is first in every round."""
    first = turn % len(programs)
    return programs[first:] + programs[:first]


def _shifted(quantity: Quantity, by: float) -> Quantity:
    median = quantity.median + by
    if not quantity.has_interval:
        return Quantity.without_interval(median, n=quantity.n, why=quantity.no_interval)
    return Quantity.of(median=median, low=quantity.low + by, high=quantity.high + by, n=quantity.n)
