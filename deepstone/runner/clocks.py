"""The clocks of a job's ranks, each compared with ours by round trips where it is not the same clock.

    read ─ block block … (every few seconds: read) … block ─ read ─▶ all blocks on our clock

While measuring goes on, a block is on our clock as far as the readings so far tell; in the end, by the readings before
and after it. Only the step times of the job and how far ranks are apart need this: what a rank waits, it times itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Final

from deepstone.measure.clocks import PINGS, Alignment, error_between, reading
from deepstone.results.parallel import Clock
from deepstone.results.together import ends_of, steps_between
from deepstone.runner.conversation import Conversation
from deepstone.runner.replies import BlockTimes

_EVERY_S: Final = 5.0  # clocks of two machines part by some 10 µs in each second


class Clocks:
    def __init__(self, shared: Sequence[bool]) -> None:
        """`shared`: by rank, whether it reads the clock that we read."""
        self._alignments = [Alignment() for _ in shared]
        self._shared = list(shared)
        self._read_at_s: float | None = None
        self._one_at_a_time = threading.Lock()  # or they would lengthen each other's round trips

    @property
    def are_shared(self) -> bool:
        return all(self._shared)

    @property
    def are_due(self) -> bool:
        if self.are_shared:
            return False
        return self._read_at_s is None or time.monotonic() - self._read_at_s >= _EVERY_S

    def read(self, rank: int, conversation: Conversation) -> None:
        """Any thread may ask."""
        if self._shared[rank]:
            return
        with self._one_at_a_time:
            found = reading([conversation.ping() for _ in range(PINGS)])
            self._alignments[rank] = self._alignments[rank].with_reading(found)
            self._read_at_s = time.monotonic()

    def on_ours(self, blocks: Sequence[BlockTimes], ranks: Sequence[int]) -> list[BlockTimes]:
        """A block of each of some ranks."""
        return [_on_ours(block, self._alignments[rank]) for block, rank in zip(blocks, ranks, strict=True)]

    @property
    def error_s(self) -> float:
        """By how much a difference between two ranks may be wrong."""
        return error_between(self._alignments)

    def offsets_s(self) -> list[float]:
        """By rank: what must be added to its clock to have that of rank 0, by the latest readings."""
        latest = [each.readings[-1].offset_s if each.readings else 0.0 for each in self._alignments]
        return [latest[0] - offset_s for offset_s in latest]

    def facts(self, rank: int) -> Clock:
        found = self._alignments[rank]
        return Clock(offset_s=found.offset_s, drift=found.drift, error_s=found.error_s)


def _on_ours(block: BlockTimes, clock: Alignment) -> BlockTimes:
    if clock.is_shared:
        return block
    ends = [clock.ours(at_s) for at_s in ends_of(block)]
    return BlockTimes(
        start_s=ends[0],
        steps_per_sample=block.steps_per_sample,
        step_s=steps_between(ends, block.steps_per_sample),
        enqueue_s=block.enqueue_s,
        total_s=block.total_s,
    )
