"""Shared by the commands that run a study: show the plan, measure it, report how it ended."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from deepstone.absent import Absent
from deepstone.cli.jobs import noise_at_start, quiet_machine
from deepstone.cli.output import Column, Data, harmless, note, print_json, print_lines, print_table
from deepstone.cli.stopped import Stopped, raise_swallowed
from deepstone.errors import BusyMachineError, MissingError
from deepstone.units import digits

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from deepstone.store.store import Store
    from deepstone.studies.perform import Performed
    from deepstone.studies.plan import Plan
    from deepstone.studies.state import State, TaskStatus
    from deepstone.studies.study_run import Call, StudyRun


def show_planned(plan: Plan, call: Call, folder: Path, *, as_json: bool) -> None:
    """Print the plan of a dry run: by setup for people, task by task for programs."""
    from deepstone.store.layout import Layout
    from deepstone.store.store import Store
    from deepstone.studies.study_run import StudyRun

    is_there = Layout(root=folder).format.exists()  # a dry run creates no store
    study_run = StudyRun(plan, Store.open(folder, create=False) if is_there else None, call)
    _show_plan(plan, study_run, call, as_json=as_json)


def opened_for(folder: Path) -> Store:
    """Open the store for writing. Raises StoreError before anything is measured."""
    from deepstone.store.store import Store

    store = Store.open(folder)
    store.probe()
    return store


def measured(plan: Plan, store: Store, call: Call, *, wait: str | None = None) -> State:
    """Run or resume the study, with its progress. If a signal ends it, or the machine does not become quiet within
    `wait`, the message has the command that resumes it."""
    from deepstone.studies.run import run_study
    from deepstone.studies.study_run import StudyRun

    quiet = quiet_machine(noise_at_start(), wait)
    try:
        study_run = StudyRun(plan, store, call)
        with _shown_progress(study_run) as progress:
            return run_study(study_run, store, call, progress, lambda job: quiet.before([job], progress.say))
    except BusyMachineError as error:
        raise BusyMachineError(f"{error}; what is stored is kept; go on with: {call.resume}") from error
    except Stopped as stopped:
        stopped.kept = f"what is stored is kept; go on with: {call.resume}"
        raise


def exit_as(state: State) -> None:
    """Exit with the code for missing or failed tasks, if there are any."""
    if any(status.task.missing for status in state.tasks):
        raise typer.Exit(MissingError.exit_code)
    if state.count("failed"):
        raise typer.Exit(1)


def given_words(options: Iterable[tuple[str, object]]) -> list[str]:
    """Return the options that have a value as words of a command that resumes the study."""
    return [word for option, value in options if value is not None for word in (option, str(value))]


def rounds_by_setup(tasks: Iterable[TaskStatus]) -> list[list[TaskStatus]]:
    """Return the rounds of each setup, as the study lists them."""
    found: dict[str, list[TaskStatus]] = {}
    for status in tasks:
        found.setdefault(status.task.setup, []).append(status)
    return sorted(found.values(), key=lambda rounds: min(status.task.number for status in rounds))


def to_add(names: Sequence[str]) -> list[str]:
    return [f"Not installed, so not in it: deepstone env add {' '.join(names)}"] if names else []


def task_counts(tasks: Sequence[TaskStatus], *, waiting: str = "waiting") -> str:
    from deepstone.results.study import STATES

    counts = {state: sum(status.state == state for status in tasks) for state in STATES}
    words = [f"{counts[state]} {waiting if state == 'waiting' else state}" for state in STATES if counts[state]]
    return ", ".join(words) or "nothing"


def _show_plan(plan: Plan, study_run: StudyRun, call: Call, *, as_json: bool) -> None:
    queue = study_run.foresee()
    queued = {status.task.id for status in queue}
    settled = [status for status in study_run.state.tasks if status.task.id not in queued]
    if as_json:
        print_json(_plan_json(plan, study_run, call, [*queue, *settled]))
        return
    columns = [
        Column(heading="task", wraps=24),
        Column(heading="rounds", right=True),
        Column(heading="each\nabout", right=True),
        Column(heading="estimated from", rank=1),
        Column(heading="what becomes of it", wraps=24),
    ]
    print_table(columns, [_plan_row(rounds) for rounds in rounds_by_setup(study_run.state.tasks)])
    print_lines(["", *_plan_lines(plan, study_run, call)])


def _plan_row(rounds: Sequence[TaskStatus]) -> list[str]:
    from deepstone.results.study import STATES
    from deepstone.studies.durations import duration

    measured = [status for status in rounds if status.state in ("waiting", "left out")]
    first = measured[0] if measured else rounds[0]
    states = sorted(rounds, key=lambda status: STATES.index(status.state))
    parts = [
        f"{len(members)} {word}" if len(members) < len(rounds) else word
        for state, group in groupby(states, key=lambda status: status.state)
        for members, word in [(list(group), "measured" if state == "waiting" else state)]
    ]
    why = f": {first.why}" if first.why else ""
    return [
        first.task.title,
        str(len(rounds)),
        duration(first.estimate_s) if measured else "",
        first.estimate_from if measured else "",
        ", ".join(parts) + why,
    ]


def _plan_lines(plan: Plan, study_run: StudyRun, call: Call) -> list[str]:
    from deepstone.studies.durations import duration

    rules = plan.study.rules
    order = "in random order within each round" if rules.order == "random" else "in the order written"
    lines = [f"{len(plan.tasks)} tasks: {task_counts(study_run.state.tasks, waiting='to measure')}, {order}."]
    lines.append(f"About {duration(study_run.left_s)} in all." if study_run.left_s else "Nothing is left to measure.")
    if study_run.left_s and study_run.sameness_s:
        lines.append(f"Then about {duration(study_run.sameness_s)} to check that the frameworks compute the same.")
    if call.time_s is not None:
        lines.append(f"Limited to {duration(call.time_s)}: the most informative first, what does not fit is left out.")
    if plan.excluded:
        lines.append(f"Excluded by the study itself: {plan.excluded} combinations.")
    return [*lines, *_cannot_run(study_run.state.tasks), *to_add(plan.addable)]


def _cannot_run(tasks: Sequence[TaskStatus]) -> list[str]:
    """What this machine lacks, by reason, as far as that is known without starting anything."""
    from deepstone.cli.plans import answers_of

    jobs = [status.task.job for status in tasks if status.state == "waiting" and status.task.kind == "run"]
    reasons = Counter(answer.removeprefix("no: ") for answer in answers_of(jobs) if answer != "yes")
    return [f"{number} of them cannot run here: {reason}." for reason, number in reasons.most_common()]


def _plan_json(plan: Plan, study_run: StudyRun, call: Call, tasks: Sequence[TaskStatus]) -> dict[str, Data]:
    return {
        "name": plan.study.name,
        "title": plan.study.title,
        "command": call.command,
        "estimate_s": study_run.left_s,
        "time_s": Absent("as long as it takes") if call.time_s is None else call.time_s,
        "excluded": plan.excluded,
        "base": plan.base,
        "addable": plan.addable,
        "tasks": [status.kept() for status in tasks],
    }


@contextmanager
def _shown_progress(study_run: StudyRun) -> Generator[_ShownProgress]:
    """Show progress: a line for each task, and on a terminal a bar, drawn only between blocks."""
    if not sys.stderr.isatty():
        yield _ShownProgress(study_run, None, None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column as TableColumn

    bar = Progress(
        TextColumn("{task.description}", markup=False, table_column=TableColumn(no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=12),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
    )
    with bar:
        yield _ShownProgress(study_run, bar, bar.add_task("", total=1.0))


class _ShownProgress:
    """Shows the progress of a study. Without a terminal it prints only one line per task."""

    def __init__(self, study_run: StudyRun, bar: Bar | None, line: TaskID | None) -> None:
        self._study_run = study_run
        self._bar = bar
        self._line = line
        self._title = self._brief = ""
        self._is_waiting = False
        self._start_s = time.monotonic()
        self._estimate_s = 0.0

    def begin(self, status: TaskStatus) -> None:
        task = status.task
        self._title = f"{task.title}, round {task.round}"
        changed = " ".join(f"{axis}={value}" for axis, value in task.changed.items())
        self._brief = task.title if task.kind != "run" else f"{task.model} {changed or 'base'}, round {task.round}"
        self._start_s, self._estimate_s = time.monotonic(), status.estimate_s
        self.advance("starting", 0.0)

    def advance(self, stage: str, share: float) -> None:
        from deepstone.studies.durations import duration

        raise_swallowed()
        if self._bar is None or self._line is None:
            return
        tasks = self._study_run.state.tasks
        settled = sum(status.state != "waiting" for status in tasks)
        under_way_s = min(self._estimate_s, time.monotonic() - self._start_s)
        left_s = max(0.0, self._study_run.left_s - under_way_s)
        failed = self._study_run.state.count("failed")
        head = f"{settled}/{len(tasks)}" + (f", {failed} failed" if failed else "")
        text = harmless(f"{head}, {duration(left_s)} left · {self._brief}: {stage}")
        self._bar.update(self._line, completed=(settled + share) / len(tasks), description=text)
        self._bar.refresh()

    def end(self, status: TaskStatus, performed: Performed | None) -> None:
        from deepstone.studies.durations import duration

        tasks = self._study_run.state.tasks
        settled = sum(each.state != "waiting" for each in tasks)
        speed = ""
        if performed is not None and performed.speed is not None:
            speed = f", {digits(performed.speed)} {performed.things}/s"
        why = f": {status.why}" if status.why else ""
        stored = "" if performed is None else f"; stored {performed.id}"
        left = f"; {duration(self._study_run.left_s)} left" if self._study_run.left_s else ""
        self.say(f"[{settled}/{len(tasks)}] {status.state}: {self._title}{speed}{why}{stored}{left}")

    def waiting(self, tasks: int) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self.say(f"another study is measuring {tasks} of the tasks; waiting for it")

    def say(self, message: str) -> None:
        if self._bar is None:
            note(message)
        else:
            self._bar.console.print(harmless(message), markup=False, highlight=False, soft_wrap=True)
