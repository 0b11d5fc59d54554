"""What a step of one process, or of several, is made of: its phases, waiting and exposed communication."""

from __future__ import annotations

from collections.abc import Sequence

from deepstone.absent import Absent
from deepstone.measure.statistics import sum_of_bounds
from deepstone.results.parallel import Bubbles, Communication, Parallel
from deepstone.results.quantity import Quantity
from deepstone.results.record import Record
from deepstone.results.scaling import StepParts


def step_parts(record: Record) -> StepParts | Absent:
    if isinstance(record.summary, Absent):
        return Absent("nothing was measured to the end")
    if isinstance(record.phases, Absent):
        return record.phases
    return StepParts.like(
        record.phases,
        step_s=record.summary.step_s,
        waiting_s=_waiting(record.parallel),
        communication_s=_exposed(record.parallel),
    )


def middle_of(records: Sequence[Record]) -> StepParts | Absent:
    """Of the run whose step is in the middle, among those with phases."""
    parts = [found for record in records if not isinstance(found := step_parts(record), Absent)]
    if not parts:
        return Absent("phases were not measured in these runs")
    return sorted(parts, key=lambda each: each.step_s.median)[len(parts) // 2]


def _waiting(parallel: Parallel | Absent | None) -> Quantity | Absent:
    """The mean over processes. The stages of a pipeline wait even if communication took no time: that is this part."""
    if (bubbles := _bubbles(parallel)) is not None:
        return bubbles.replayed_share.scaled(bubbles.traced_step_s.median - bubbles.exposed_s.median)
    communication = _communication(parallel)
    if isinstance(communication, Absent):
        return communication
    waiting = communication.waiting_s
    return waiting if isinstance(waiting, Absent) else sum_of_bounds(waiting).scaled(1 / len(waiting))


def _exposed(parallel: Parallel | Absent | None) -> Quantity | Absent:
    if (bubbles := _bubbles(parallel)) is not None:
        return bubbles.exposed_s
    communication = _communication(parallel)
    return communication if isinstance(communication, Absent) else communication.exposed_s


def _bubbles(parallel: Parallel | Absent | None) -> Bubbles | None:
    found = parallel.bubbles if isinstance(parallel, Parallel) else None
    return found if isinstance(found, Bubbles) else None


def _communication(parallel: Parallel | Absent | None) -> Communication | Absent:
    if parallel is None:
        return Absent("one process does not communicate")
    return parallel if isinstance(parallel, Absent) else parallel.communication
