"""What must fail is not tried: a larger batch after one that ran out of memory, another round of the unsupported."""

from __future__ import annotations

from deepstone.studies.task import Task


class Pruner:
    """Learns from outcomes; the order of learning does not matter."""

    def __init__(self) -> None:
        self._smallest_oom: dict[str, int] = {}  # by setup, whatever the batch
        self._unsupported: dict[str, str] = {}  # by setup

    def learn(self, task: Task, outcome: str, reason: str) -> None:
        if outcome == "oom":
            known = self._smallest_oom.get(task.setup_but_batch, task.job.batch)
            self._smallest_oom[task.setup_but_batch] = min(known, task.job.batch)
        elif outcome == "unsupported":
            self._unsupported[task.setup] = reason

    def why_hopeless(self, task: Task) -> str:
        """Why it cannot succeed, or nothing."""
        if task.hopeless:
            return task.hopeless
        if task.setup in self._unsupported:
            return f"unsupported: {self._unsupported[task.setup]}"
        smallest = self._smallest_oom.get(task.setup_but_batch)
        if smallest is None or task.job.batch < smallest:
            return ""
        same = "the same setup" if task.job.batch == smallest else f"batch {smallest} of the same setup"
        return f"oom: {same} ran out of memory"
