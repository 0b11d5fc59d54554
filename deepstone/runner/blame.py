"""Who is to blame when several processes fail together: the rank that began, not those that lost it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from deepstone.runner.conversation import FROZEN, JobFailed

# What a library says when another rank is gone: a consequence, and not what went wrong.
_LOST_A_PEER: Final = re.compile(
    r"closed by peer|reset by peer|connection (was )?(closed|refused|reset)|broken pipe|timed? ?out|peer|"
    r"remote process|unreachable|unhealthy",
    re.IGNORECASE,
)
# What a library says before it ends its own process, because another one is gone.
_ENDED_BY_LIBRARY: Final = re.compile(r"distributed service detected fatal errors|tasks are unhealthy")


class RankFailure(Struct, frozen=True, kw_only=True):
    rank: int
    failure: JobFailed
    at_s: float

    @property
    def blame(self) -> tuple[int, float]:
        """Who began: a process that ended without a word or is held, then one that says something else than that it
        lost a peer, then the first."""
        lost_a_peer = self._was_ended_by_library or _LOST_A_PEER.search(self.failure.reason) is not None
        return 0 if self.began else 2 if lost_a_peer else 1, self.at_s

    @property
    def began(self) -> bool:
        """It ended without a word, or something holds it: no other rank made it do so."""
        failure = self.failure
        ended = failure.details.signal is not None or failure.details.exit_code is not None or failure.reason == FROZEN
        return ended and not self._was_ended_by_library

    @property
    def _was_ended_by_library(self) -> bool:
        return _ENDED_BY_LIBRARY.search(self.failure.details.stderr_tail) is not None


def blamed(failures: Sequence[RankFailure], silent: Sequence[int], titles: Sequence[str]) -> JobFailed:
    """The failure of the job: that of the rank that began, and what became of the others. `titles`: by rank."""
    began, *others = sorted(failures, key=lambda each: each.blame)
    failure, rank = began.failure, began.rank
    reason = f"{titles[rank]}: {failure.reason}"
    if others:
        reason += f"; with it went {', '.join(f'rank {each.rank}' for each in others)}"
    waiting = [number for number in silent if number != rank]
    if waiting:
        reason += f"; {', '.join(f'rank {number}' for number in waiting)} waited for it and was ended"
    return failure.because(reason)
