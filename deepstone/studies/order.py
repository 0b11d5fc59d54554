"""In which order tasks are measured, and which of them a limited time is spent on.

Rounds follow each other, and within a round the order is random: what a machine does over the hours then meets every
setup alike, and setups can be compared round by round.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import groupby

from deepstone.studies.study import Rules
from deepstone.studies.task import Task


def in_order(tasks: Sequence[Task], rules: Rules) -> list[Task]:
    """Tier by tier, round by round; the same for the same tasks and seed, so that a study goes on as it would have."""
    ordered: list[Task] = []
    for (tier, round), members in groupby(sorted(tasks, key=_block), key=_block):
        block = list(members)
        if rules.order == "random":
            block.sort(key=lambda task: task.id)
            random.Random(f"{rules.seed} {tier} {round}").shuffle(block)
        ordered += block
    return ordered


def most_informative(tasks: Sequence[Task], estimates_s: Mapping[str, float], time_s: float) -> set[str]:
    """The ids of those that fit into the time, by priority; a smaller one may fit where a larger one does not."""
    chosen: set[str] = set()
    for task in sorted(tasks, key=lambda task: task.priority):
        if estimates_s[task.id] <= time_s:
            chosen.add(task.id)
            time_s -= estimates_s[task.id]
    return chosen


def _block(task: Task) -> tuple[int, int]:
    return task.tier, task.round
