"""A study run: the tasks that the store already settles, the waiting ones, their order, and the estimated time.

Rounds follow each other, and within a round the order is random: slow changes of the machine then affect all setups
alike, and setups can be compared round by round. Tasks that must fail are not tried: a larger batch after one that ran
out of memory, another round of an unsupported setup.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import groupby

from msgspec import Struct

from deepstone.results.study import TaskState
from deepstone.runner.assemble import now
from deepstone.store.store import Store
from deepstone.studies.durations import duration
from deepstone.studies.estimate import Estimator
from deepstone.studies.perform import Known, Performed
from deepstone.studies.plan import Plan
from deepstone.studies.state import Earlier, State, Task, TaskStatus
from deepstone.studies.study import Rerun, Rules


class Call(Struct, frozen=True, kw_only=True):
    """The options of this call. `time_s` limits this call; None: no limit."""

    command: tuple[str, ...]
    resume: str
    rerun: Rerun = "never"
    time_s: float | None = None


class StudyRun:
    """`state` is always up to date. Without a store there is only the plan, which is enough for a dry run."""

    def __init__(self, plan: Plan, store: Store | None, call: Call) -> None:
        self._call = call
        self._pruner = Pruner()
        rows = () if store is None else store.list().rows
        self._known = None if store is None else Known(store, rows)
        self._estimator = Estimator(store, rows, cores=plan.machine.usable_cores)
        earlier = Earlier(None if store is None else store.studies.get(plan.study.name), call.command)
        self.state = State(
            name=plan.study.name,
            title=plan.study.title,
            description=plan.study.description,
            command=call.command,
            resume=call.resume,
            started_at=earlier.started_at or now(),
            base=plan.base,
            figures=plan.study.figures,
            addable=plan.addable,
            tasks=[TaskStatus(task=task) for task in in_order(plan.tasks, plan.study.rules)],
        )
        self._settle_known(earlier)
        self._estimate()

    @property
    def left_s(self) -> float:
        """Estimate the time of the waiting tasks."""
        return sum(status.estimate_s for status in self.state.tasks if status.state == "waiting")

    @property
    def sameness_s(self) -> float:
        """About how long the check in the end will take; at most half of the time that there is."""
        needed_s = self._estimator.sameness_s(status.task for status in self.state.tasks)
        return needed_s if self._call.time_s is None else min(needed_s, self._call.time_s / 2)

    @property
    def tasks_time_s(self) -> float | None:
        """What the limit leaves for the tasks; None without a limit."""
        return None if self._call.time_s is None else self._call.time_s - self.sameness_s

    def queue(self) -> list[TaskStatus]:
        """Return the tasks that fit into the time, in order, then the rest by priority in case there is time left."""
        left = [status for status in self.state.tasks if not status.is_settled]
        chosen = self._chosen(left)
        rest = [status for status in left if status.task.id not in chosen]
        return [
            *(status for status in left if status.task.id in chosen),
            *sorted(rest, key=lambda status: status.task.priority),
        ]

    def foresee(self) -> list[TaskStatus]:
        """Return the queue, and mark as left out the tasks that do not fit into the time by the estimates."""
        queue = self.queue()
        chosen = self._chosen(queue)
        for status in queue:
            if status.task.id not in chosen and self._call.time_s is not None:
                status.settle("left out", why=f"no time for it within {duration(self._call.time_s)}")
        return queue

    def why_hopeless(self, status: TaskStatus) -> str:
        return self._pruner.why_hopeless(status.task)

    def settled_by_others(self, status: TaskStatus) -> bool:
        """Settle a task that another process has stored since; return whether there was one."""
        newer = None if self._known is None else self._known.newer(status.task)
        if newer is not None:
            self.settle(status, newer)
        return newer is not None

    def settle(self, status: TaskStatus, performed: Performed) -> None:
        self._pruner.learn(status.task, performed.outcome, performed.reason)
        why = "" if performed.outcome == "ok" else f"{performed.outcome}: {performed.reason}"
        status.settle(_state_of(performed.outcome), why=why, runs=(performed.id,))

    def update_prune_reasons(self) -> None:
        """Renew the reasons at the end, so that they do not depend on when a task was pruned."""
        for status in self.state.tasks:
            if status.state == "pruned" and not status.runs:
                status.why = self.why_hopeless(status)

    def measured(self, status: TaskStatus, performed: Performed, took_s: float) -> None:
        """Settle a task, and estimate similar tasks from its time."""
        self.settle(status, performed)
        status.took_s = took_s
        if performed.outcome == "ok":
            self._estimator.learn(status.task, took_s)
            self._estimate()

    def _chosen(self, left: list[TaskStatus]) -> set[str]:
        time_s = self.tasks_time_s
        if time_s is None:
            return {status.task.id for status in left}
        estimates_s = {status.task.id: status.estimate_s for status in left}
        return most_informative([status.task for status in left], estimates_s, time_s)

    def _settle_known(self, earlier: Earlier) -> None:
        """Settle tasks from the store, as far as the policy allows."""
        for status in self.state.tasks:
            task = status.task
            performed = None if task.hopeless or self._known is None else self._known.best(task)
            if performed is None:
                continue
            took_s = earlier.took_s(performed.id)
            if took_s is not None and performed.outcome == "ok":
                self._estimator.learn(task, took_s)
            if self._counts(performed, resumed=earlier.is_unfinished and took_s is not None):
                self.settle(status, performed)
                status.took_s = took_s
        for status in self.state.tasks:
            why = "" if status.is_settled else self.why_hopeless(status)
            if why:
                status.settle("pruned", why=why)

    def _counts(self, performed: Performed, *, resumed: bool) -> bool:
        if self._call.rerun == "never" or resumed:
            return True
        return self._call.rerun == "failed" and performed.outcome in ("ok", "unsupported")

    def _estimate(self) -> None:
        for status in self.state.tasks:
            if not status.is_settled:
                estimate = self._estimator.of(status.task)
                status.estimate_s, status.estimate_from = estimate.seconds, estimate.basis


def _state_of(outcome: str) -> TaskState:
    """A limitation of a framework is not a failure of the study."""
    if outcome == "ok":
        return "done"
    return "pruned" if outcome == "unsupported" else "failed"


def in_order(tasks: Sequence[Task], rules: Rules) -> list[Task]:
    """Order tasks by tier and round. The same tasks and seed give the same order, so that a study can resume."""
    ordered: list[Task] = []
    for (tier, round), members in groupby(sorted(tasks, key=_block), key=_block):
        block = list(members)
        if rules.order == "random":
            block.sort(key=lambda task: task.id)
            random.Random(f"{rules.seed} {tier} {round}").shuffle(block)
        ordered += block
    return ordered


def most_informative(tasks: Sequence[Task], estimates_s: Mapping[str, float], time_s: float) -> set[str]:
    """Return the ids of the tasks that fit into the time, by priority; a shorter one may fit if a longer does not."""
    chosen: set[str] = set()
    for task in sorted(tasks, key=lambda task: task.priority):
        if estimates_s[task.id] <= time_s:
            chosen.add(task.id)
            time_s -= estimates_s[task.id]
    return chosen


def _block(task: Task) -> tuple[int, int]:
    return task.tier, task.round


class Pruner:
    """Learns from outcomes, in any order."""

    def __init__(self) -> None:
        self._smallest_oom: dict[str, int] = {}  # by setup without the batch
        self._unsupported: dict[str, str] = {}  # by setup

    def learn(self, task: Task, outcome: str, reason: str) -> None:
        if outcome == "oom":
            known = self._smallest_oom.get(task.setup_but_batch, task.job.batch)
            self._smallest_oom[task.setup_but_batch] = min(known, task.job.batch)
        elif outcome == "unsupported":
            self._unsupported[task.setup] = reason

    def why_hopeless(self, task: Task) -> str:
        """Return why the task cannot succeed, or an empty text."""
        if task.hopeless:
            return task.hopeless
        if task.setup in self._unsupported:
            return f"unsupported: {self._unsupported[task.setup]}"
        smallest = self._smallest_oom.get(task.setup_but_batch)
        if smallest is None or task.job.batch < smallest:
            return ""
        same = "the same setup" if task.job.batch == smallest else f"batch {smallest} of the same setup"
        return f"oom: {same} ran out of memory"
