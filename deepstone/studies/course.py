"""A study under way: what the store already settles, what is left, in which order, and how long it will take."""

from __future__ import annotations

from dataclasses import dataclass

from deepstone.runner.assemble import now
from deepstone.store.store import Store
from deepstone.studies.durations import duration
from deepstone.studies.earlier import Earlier
from deepstone.studies.estimate import Estimator
from deepstone.studies.known import Known
from deepstone.studies.order import in_order, most_informative
from deepstone.studies.perform import Performed
from deepstone.studies.plan import Plan
from deepstone.studies.prune import Pruner
from deepstone.studies.state import Progress, State, TaskState
from deepstone.studies.study import Rerun


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """How a study is run this time. `time_s` limits this call; None means as long as it takes."""

    command: tuple[str, ...]
    resume: str
    rerun: Rerun = "never"
    time_s: float | None = None


class Course:
    """`state` is true at any moment. Without a store there is nothing but the plan, which is enough for a dry run."""

    def __init__(self, plan: Plan, store: Store | None, call: Call) -> None:
        self._call = call
        self._pruner = Pruner()
        rows = () if store is None else store.list().rows
        self._known = None if store is None else Known(store, rows)
        self._estimator = Estimator(store, rows, cores=int(plan.machine.description["cpu"]["usable_cores"]))
        earlier = Earlier(None if store is None else store.studies.get(plan.study.name), call.command)
        self.state = State(
            name=plan.study.name,
            title=plan.study.title,
            description=plan.study.description,
            command=call.command,
            resume=call.resume,
            started_at=earlier.started_at or now(),
            base=dict(plan.base),
            figures=plan.study.figures,
            addable=plan.addable,
            tasks=[Progress(task=task) for task in in_order(plan.tasks, plan.study.rules)],
        )
        self._settle_known(earlier)
        self._estimate()

    @property
    def left_s(self) -> float:
        """About how long what waits will take."""
        return sum(progress.estimate_s for progress in self.state.tasks if progress.state == "waiting")

    def queue(self) -> list[Progress]:
        """What fits into the time in its order, and after it the rest by priority, should there be time after all."""
        left = [progress for progress in self.state.tasks if not progress.is_settled]
        chosen = self._chosen(left)
        rest = [progress for progress in left if progress.task.id not in chosen]
        return [
            *(progress for progress in left if progress.task.id in chosen),
            *sorted(rest, key=lambda progress: progress.task.priority),
        ]

    def foresee(self) -> list[Progress]:
        """The queue, with those marked as left out that there will be no time for, by the estimates."""
        queue = self.queue()
        chosen = self._chosen(queue)
        for progress in queue:
            if progress.task.id not in chosen and self._call.time_s is not None:
                progress.settle("left out", why=f"no time for it within {duration(self._call.time_s)}")
        return queue

    def why_hopeless(self, progress: Progress) -> str:
        return self._pruner.why_hopeless(progress.task)

    def settled_by_others(self, progress: Progress) -> bool:
        """Whether another process has stored it since; then that settles it."""
        newer = None if self._known is None else self._known.newer(progress.task)
        if newer is not None:
            self.settle(progress, newer)
        return newer is not None

    def settle(self, progress: Progress, performed: Performed) -> None:
        self._pruner.learn(progress.task, performed.outcome, performed.reason)
        why = "" if performed.outcome == "ok" else f"{performed.outcome}: {performed.reason}"
        progress.settle(_state_of(performed.outcome), why=why, runs=(performed.id,))

    def tell_why_pruned(self) -> None:
        """By all that is known in the end: what is said of a task must not depend on when it was given up."""
        for progress in self.state.tasks:
            if progress.state == "pruned" and not progress.runs:
                progress.why = self.why_hopeless(progress)

    def measured(self, progress: Progress, performed: Performed, took_s: float) -> None:
        """Settles it, and expects of its like what it took."""
        self.settle(progress, performed)
        progress.took_s = took_s
        if performed.outcome == "ok":
            self._estimator.learn(progress.task, took_s)
            self._estimate()

    def _chosen(self, left: list[Progress]) -> set[str]:
        if self._call.time_s is None:
            return {progress.task.id for progress in left}
        estimates_s = {progress.task.id: progress.estimate_s for progress in left}
        return most_informative([progress.task for progress in left], estimates_s, self._call.time_s)

    def _settle_known(self, earlier: Earlier) -> None:
        """By what the store has, as far as the policy lets it count."""
        for progress in self.state.tasks:
            task = progress.task
            performed = None if task.hopeless or self._known is None else self._known.best(task)
            if performed is None:
                continue
            took_s = earlier.took_s(task.id, performed.id)
            if took_s is not None and performed.outcome == "ok":
                self._estimator.learn(task, took_s)
            if self._counts(performed, resumed=earlier.is_unfinished and took_s is not None):
                self.settle(progress, performed)
                progress.took_s = took_s
        for progress in self.state.tasks:
            why = "" if progress.is_settled else self.why_hopeless(progress)
            if why:
                progress.settle("pruned", why=why)

    def _counts(self, performed: Performed, *, resumed: bool) -> bool:
        if self._call.rerun == "never" or resumed:
            return True
        return self._call.rerun == "failed" and performed.outcome in ("ok", "unsupported")

    def _estimate(self) -> None:
        for progress in self.state.tasks:
            if not progress.is_settled:
                estimate = self._estimator.of(progress.task)
                progress.estimate_s, progress.estimate_from = estimate.seconds, estimate.basis


def _state_of(outcome: str) -> TaskState:
    """What a framework cannot do is no failure of the study."""
    if outcome == "ok":
        return "done"
    return "pruned" if outcome == "unsupported" else "failed"
