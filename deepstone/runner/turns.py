"""How often programs run that take turns, so that they keep to the budget of a run however long its steps are.

short steps   ROUNDS rounds; in each, as many steps of each program as their share of the budget has room for. An
              untimed step precedes them, since processes leave a barrier one after the other
long steps    rounds of one step of each program and no untimed one: what a barrier leaves is a small part of such
              a step. As many as the limit has room for, and LEAST_ROUNDS at least, since one has no interval
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

ROUNDS: Final = 8
LEAST_ROUNDS: Final = 2
LONG_STEP_S: Final = 0.25
_FEWEST_STEPS: Final = 3  # of each program in a round, where there is room for them
_MOST_LONG_ROUNDS: Final = 24
ALWAYS_S: Final = 4.0  # is never too long, however small the budget is


class Turns(Struct, frozen=True, kw_only=True):
    """`steps`: timed ones of each program in a round. `untimed`: those before them. `over_limit_s`: how far they pass
    the limit, since they are the least number."""

    rounds: int
    steps: int
    untimed: int
    over_limit_s: float = 0.0

    @property
    def are_long(self) -> bool:
        return self.untimed == 0

    def seconds(self, step_s: float, programs: int) -> float:
        return programs * self.rounds * (self.untimed + self.steps) * step_s


def turns_within(step_s: float, *, programs: int, share_s: float, limit_s: float) -> Turns:
    """`share_s`: what timed steps may take together, if they are short. `limit_s`: what all steps may take, however
    long they are, but for the least number of rounds."""
    limit_s = max(limit_s, ALWAYS_S)
    wanted = max(_FEWEST_STEPS, int(share_s / programs / ROUNDS / max(step_s, 1e-9)))
    for steps in (wanted, *range(_FEWEST_STEPS - 1, 0, -1)):
        turns = Turns(rounds=ROUNDS, steps=steps, untimed=1)
        if step_s < LONG_STEP_S and turns.seconds(step_s, programs) <= limit_s:
            return turns
    affordable = int(limit_s / programs / step_s)
    turns = Turns(rounds=min(_MOST_LONG_ROUNDS, max(LEAST_ROUNDS, affordable)), steps=1, untimed=0)
    return replace(turns, over_limit_s=max(0.0, turns.seconds(step_s, programs) - limit_s))


def in_turn(programs: tuple[str, ...], turn: int) -> tuple[str, ...]:
    """Another program is first in every round."""
    first = turn % len(programs)
    return programs[first:] + programs[:first]
