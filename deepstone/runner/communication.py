"""What communication costs a step, from programs that do less and less of it, run in turns.

    train      the real step
    meet       the step without the exchange; processes only wait for each other
    local      the step without any communication
    exchange   the exchange alone, bucket by bucket, with nothing computed beside it

    waiting of a rank = (meet - local of that rank) - meeting        meeting = the least of (meet - local) over ranks
    exposed           = (train - meet) + meeting

Time in a collective itself proves little: it holds waiting for others, and what overlaps with computing may slow that
down. So nothing here reads it. A difference has an interval and may come out negative. Every interval is that of rounds
drawn for all programs and ranks at once, since what slows a round slows them all.

Where a driver makes the workers step (TensorFlow's parameter servers), workers never meet: each takes what the driver
has to do next. So nothing tells how long one waits for another.

    train      the real step, timed by the driver
    local      workers compute, and servers update, each on its own; no driver, no communication
    exchange   workers fetch all parameters and send as much back, and compute nothing

    exposed           = train - local
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from deepstone.absent import Absent
from deepstone.measure.effort import Effort
from deepstone.measure.statistics import Array, joint_medians, median_of
from deepstone.results.parallel import Communication, Wire
from deepstone.runner.team import Team
from deepstone.runner.turns import Turns, in_turn, turns_within
from deepstone.runner.wire import WireCount

_BUDGET_SHARE: Final = 0.5  # of the budget, if steps are short
_LIMIT_SHARE: Final = 0.75
_REPLICATES: Final = 1000
_PROGRAMS: Final = ("train", "meet", "local", "exchange")
_COMPRESSED: Final = "compressed gradients are not exchanged apart from a step"
_METHOD: Final = "steps with less and less communication, in turns"
_DRIVEN_PROGRAMS: Final = ("train", "local", "exchange")
_DRIVEN_METHOD: Final = "steps with and without communication, in turns"
_DO_NOT_MEET: Final = Absent("workers take what the driver gives them, and do not meet")

Times = dict[str, list[list[float]]]  # program → what each round's steps took


def measure_communication(team: Team, step_s: float, effort: Effort) -> tuple[Communication, Wire | Absent]:
    """The replicas are made equal again after it. Bytes on the wire are counted around the same blocks."""
    programs = _programs(team)
    turns = ladder_turns(step_s, effort.budget_s)
    of_job: Times = {program: [] for program in programs}
    of_ranks: list[Times] = [{program: [] for program in programs} for _ in range(team.world.processes)]
    wire = WireCount(team)
    for program in programs:  # compiles, warms up; the job's own program is warm
        if program != "train" or not turns.are_long:
            team.block(samples=1, program=program, untimed=turns.untimed)
    for program, step_times_s in _rounds(team, programs, turns, wire):
        of_job[program].append(step_times_s)
        for rank, block in zip(of_ranks, team.last_blocks[: len(of_ranks)], strict=True):  # servers always wait
            rank[program].append(block.step_s)
    team.restore()
    return communication_of(of_job, of_ranks), wire.result()


def measure_driven_communication(team: Team, step_s: float, effort: Effort) -> tuple[Communication, Wire | Absent]:
    """Where a driver makes the workers step. No program but `train` changes what is trained."""
    turns, wire = ladder_turns(step_s, effort.budget_s), WireCount(team)
    times: Times = {program: [] for program in _DRIVEN_PROGRAMS}
    for program in _DRIVEN_PROGRAMS:  # compiles, warms up
        team.block(samples=1, program=program, untimed=turns.untimed)
    for program, step_times_s in _rounds(team, _DRIVEN_PROGRAMS, turns, wire):
        times[program].append(step_times_s)
    medians = joint_medians([times[program] for program in _DRIVEN_PROGRAMS], replicates=_REPLICATES)

    def exposed(values: Array) -> Array:
        return values[..., 0] - values[..., 1]

    def hidden(values: Array) -> Array:
        return 1 - exposed(values) / np.maximum(values[..., 2], 1e-12)

    found = Communication(
        exposed_s=medians.quantity_of_few(exposed),
        waiting_s=_DO_NOT_MEET,
        meeting_s=_DO_NOT_MEET,
        alone_s=median_of([times["exchange"]]),
        hidden_share=medians.quantity_of_few(hidden),
        local_step_s=median_of([times["local"]]),
        method=_DRIVEN_METHOD,
    )
    return found, wire.result()


def _rounds(team: Team, programs: tuple[str, ...], turns: Turns, wire: WireCount) -> Iterator[tuple[str, list[float]]]:
    """Run the programs in turns, and count the bytes of each. Yields a program and the times of its steps."""
    for turn in range(turns.rounds):
        for program in in_turn(programs, turn):
            with wire.around(program):
                block = team.block(samples=turns.steps, program=program, untimed=turns.untimed)
            yield program, block.step_s


def ladder_turns(step_s: float, budget_s: float) -> Turns:
    share_s, limit_s = _BUDGET_SHARE * budget_s, _LIMIT_SHARE * budget_s
    return turns_within(step_s, programs=len(_PROGRAMS), share_s=share_s, limit_s=limit_s)


def communication_of(of_job: Times, of_ranks: Sequence[Times]) -> Communication:
    exchange = [of_job["exchange"]] if "exchange" in of_job else []
    series = [of_job["train"], of_job["meet"], *exchange]
    first = len(series)
    for rank in of_ranks:
        series += [rank["meet"], rank["local"]]
    medians = joint_medians(series, replicates=_REPLICATES)

    def longer(values: Array) -> Array:
        """By rank: how much longer a step takes that meets the others."""
        return values[..., first::2] - values[..., first + 1 :: 2]

    def meeting(values: Array) -> Array:
        return longer(values).min(axis=-1)

    def exposed(values: Array) -> Array:
        return values[..., 0] - values[..., 1] + meeting(values)

    def waiting(rank: int) -> Callable[[Array], Array]:
        return lambda values: longer(values)[..., rank] - meeting(values)

    def hidden(values: Array) -> Array:
        return 1 - exposed(values) / np.maximum(values[..., 2], 1e-12)

    alone = median_of([of_job["exchange"]]) if exchange else Absent(_COMPRESSED)
    is_timed = not isinstance(alone, Absent) and alone.median > 0
    untimed = alone if isinstance(alone, Absent) else Absent("the exchange alone takes no time that could be measured")
    return Communication(
        exposed_s=medians.quantity_of_few(exposed),
        waiting_s=[medians.quantity_of_few(waiting(rank)) for rank in range(len(of_ranks))],
        meeting_s=medians.quantity_of_few(meeting),
        alone_s=alone,
        hidden_share=medians.quantity_of_few(hidden) if is_timed else untimed,
        local_step_s=median_of([of_job["local"]]),
        method=_METHOD,
    )


def _programs(team: Team) -> tuple[str, ...]:
    """Compressed gradients depend on those of the steps before, so they are not exchanged without a step."""
    return _PROGRAMS if team.job.request["compression"] == "none" else _PROGRAMS[:-1]
