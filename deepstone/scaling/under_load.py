"""How much computing and communication hold each other up when both run.

    steps alone       step step step step
    transfers alone   transfer transfer transfer
    both              step  step  step  step  …        in one process, in two threads, on all processes at once
                      transfer   transfer   …

All three by the same loop, in turns. A number of the job is that of its slowest process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Final

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.measure.statistics import ratio_of_rounds
from deepstone.results.comm import UnderLoad
from deepstone.runner.replies import Beside
from deepstone.runner.team import Team

_WINDOW_S: Final = 0.3
_FEWEST_STEPS: Final = 3
_MOST_ROUNDS: Final = 5  # of one launch
_WINDOWS_OF_ROUND: Final = 4  # one each alone, and both together take about twice as long
_MOST_TRANSFERS: Final = 2000
_COMPUTE: Final = "local"  # the program: a step without communication
_UNTIL_DONE: Final = -1
LONGEST_TRANSFER_S: Final = 0.25  # larger ones tell nothing else


class LoadRound(Struct, frozen=True, kw_only=True):
    """Seconds of a step and of a transfer, each alone and beside the other."""

    alone_step_s: float
    loaded_step_s: float
    alone_transfer_s: float
    loaded_transfer_s: float


def measure_under_load(
    team: Team, transfer: str, transfer_s: float, *, budget_s: float, fewest_rounds: int
) -> list[LoadRound] | Absent:
    """`transfer_s`: how long this transfer takes, roughly."""
    first = _beside(team, transfer, 0, _FEWEST_STEPS)
    if first[0].unsupported:
        return Absent(first[0].unsupported)
    step_s = max(1e-6, _slowest([reply.step_s for reply in first]))
    window_s = max(_WINDOW_S, _FEWEST_STEPS * step_s)
    transfers = min(_MOST_TRANSFERS, max(2, math.ceil(window_s / max(transfer_s, 1e-6))))
    steps = max(_FEWEST_STEPS, math.ceil(window_s / step_s))
    rounds = min(_MOST_ROUNDS, max(fewest_rounds, int(budget_s / (_WINDOWS_OF_ROUND * window_s))))
    found: list[LoadRound] = []
    for turn in range(rounds):
        kinds = [(0, steps), (transfers, 0), (transfers, _UNTIL_DONE)]
        order = kinds[turn % 3 :] + kinds[: turn % 3]
        replies = {kind: _beside(team, transfer, *kind) for kind in order}
        alone, sent, both = (replies[kind] for kind in kinds)
        if any(len(reply.step_s) < 1 for reply in both):
            continue  # a step outlasted all transfers
        found.append(
            LoadRound(
                alone_step_s=_slowest([reply.step_s for reply in alone]),
                loaded_step_s=_slowest([reply.step_s for reply in both]),
                alone_transfer_s=_slowest([reply.transfer_s for reply in sent]),
                loaded_transfer_s=_slowest([reply.transfer_s for reply in both]),
            )
        )
    return found


def _beside(team: Team, transfer: str, transfers: int, steps: int) -> list[Beside]:
    return team.ask(lambda rank: rank.beside(transfer, transfers, _COMPUTE, steps))


def _slowest(ranks: Sequence[Sequence[float]]) -> float:
    return max(median(times) for times in ranks)


def under_load(rounds: Sequence[LoadRound], *, size: int, compute: str) -> UnderLoad | Absent:
    if len(rounds) < 2:
        return Absent("too few rounds in which a step fitted beside the transfers; give another size=")
    return UnderLoad(
        bytes=size,
        compute=compute,
        compute_slowdown=ratio_of_rounds([(each.loaded_step_s, each.alone_step_s) for each in rounds]),
        communication_slowdown=ratio_of_rounds([(each.loaded_transfer_s, each.alone_transfer_s) for each in rounds]),
        alone_step_s=median(each.alone_step_s for each in rounds),
        alone_transfer_s=median(each.alone_transfer_s for each in rounds),
    )
