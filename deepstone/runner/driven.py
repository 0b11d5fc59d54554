"""What communication costs a step where a driver makes the workers step (TensorFlow's parameter servers).

    train      the real step, timed by the driver
    local      workers compute, and servers update, each on its own; no driver, no communication
    exchange   workers fetch all parameters and send as much back, and compute nothing

    exposed    = train - local

Workers never meet: each takes what the driver has to do next. So nothing tells how long one waits for another.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from deepstone.absent import Absent
from deepstone.measure.effort import Effort
from deepstone.measure.statistics import Array, joint_medians, median_of
from deepstone.results.parallel import Communication, Wire
from deepstone.runner.communication import ladder_turns
from deepstone.runner.team import Team
from deepstone.runner.turns import in_turn
from deepstone.runner.wire import WireCount

_PROGRAMS: Final = ("train", "local", "exchange")
_REPLICATES: Final = 1000
_DO_NOT_MEET: Final = Absent("workers take what the driver gives them, and do not meet")
METHOD: Final = "steps with and without communication, in turns"


def measure_driven_communication(team: Team, step_s: float, effort: Effort) -> tuple[Communication, Wire | Absent]:
    """Bytes on the wire are counted around the same blocks. No program but `train` changes what is trained."""
    turns, wire = ladder_turns(step_s, effort.budget_s), WireCount(team)
    times: dict[str, list[list[float]]] = {program: [] for program in _PROGRAMS}
    for program in _PROGRAMS:  # compiles, warms up
        team.block(samples=1, program=program, untimed=turns.untimed)
    for turn in range(turns.rounds):
        for program in in_turn(_PROGRAMS, turn):
            with wire.around(program):
                block = team.block(samples=turns.steps, program=program, untimed=turns.untimed)
            times[program].append(block.step_s)
    medians = joint_medians([times[program] for program in _PROGRAMS], replicates=_REPLICATES)

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
        method=METHOD,
    )
    return found, wire.result()
