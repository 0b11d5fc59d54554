"""How a study is shown: its plan, its progress while it runs, and what became of its tasks."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from deepstone.absent import Absent, as_json
from deepstone.cli.output import harmless, note, print_json, print_lines, print_table
from deepstone.cli.table import Column
from deepstone.studies.course import Call, Course
from deepstone.studies.durations import duration
from deepstone.studies.find import builtin_names, find_study
from deepstone.studies.perform import Performed
from deepstone.studies.plan import Plan
from deepstone.studies.state import STATES, Progress, State
from deepstone.units import digits

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

_MOST_STATEMENTS: Final = 15


def show_builtin(*, as_json: bool) -> None:
    studies = [find_study(name) for name in builtin_names()]
    if as_json:
        print_json([{"name": each.name, "title": each.title, "description": each.description} for each in studies])
        return
    columns = [
        Column(heading="study"),
        Column(heading="what it asks", wraps=20),
        Column(heading="how", rank=1, wraps=30),
    ]
    print_table(columns, [(each.name, each.title, each.description) for each in studies])


def show_plan(plan: Plan, course: Course, call: Call, *, as_json: bool) -> None:
    """What a dry run prints: by setup for a person, task by task and in order for a program."""
    queue = course.foresee()
    queued = {progress.task.id for progress in queue}
    settled = [progress for progress in course.state.tasks if progress.task.id not in queued]
    if as_json:
        print_json(_plan_json(plan, course, call, [*queue, *settled]))
        return
    columns = [
        Column(heading="task", wraps=24),
        Column(heading="rounds", right=True),
        Column(heading="each\nabout", right=True),
        Column(heading="estimated from", rank=1),
        Column(heading="what becomes of it", wraps=24),
    ]
    print_table(columns, [_plan_row(rounds) for rounds in _by_setup(course.state.tasks)])
    print_lines(["", *_plan_lines(plan, course, call)])


def show_results(state: State) -> None:
    """What did not go as planned, task by task; and the count of all."""
    for name in ("failed", "pruned", "left out"):
        for rounds in _by_setup([progress for progress in state.tasks if progress.state == name]):
            times = f" ({len(rounds)} rounds)" if len(rounds) > 1 else ""
            print_lines([f"{name}: {rounds[0].task.title}{times}: {rounds[0].why}"])
    print_lines([f"study {state.name}: {_counts(state.tasks)}", *_to_add(state.addable)])
    if state.count("left out"):
        print_lines([f"For what was left out: {state.resume}"])


def show_statements(statements: Sequence[Mapping[str, Any]]) -> None:
    """What was found, the most important first."""
    if statements:
        shown = statements[:_MOST_STATEMENTS]
        print_lines(["", "What was found:", *(f"  · {statement['text']}" for statement in shown)], hang=4)
    if len(statements) > _MOST_STATEMENTS:
        print_lines([f"  … and {len(statements) - _MOST_STATEMENTS} more, on the page: --report FILE"])


@contextmanager
def watching(course: Course) -> Generator[Watcher]:
    """A line for each task; and on a terminal, below it, how far the study is, drawn only between blocks."""
    if not sys.stderr.isatty():
        yield Watcher(course, None, None)
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
        yield Watcher(course, bar, bar.add_task("", total=1.0))


class Watcher:
    """Told by the study how it goes. Without a terminal it says a line per task and nothing else."""

    def __init__(self, course: Course, bar: Bar | None, line: TaskID | None) -> None:
        self._course = course
        self._bar = bar
        self._line = line
        self._title = self._brief = ""
        self._is_waiting = False
        self._start_s = time.monotonic()
        self._estimate_s = 0.0

    def begin(self, progress: Progress) -> None:
        task = progress.task
        self._title = f"{task.title}, round {task.round}"
        changed = " ".join(f"{axis}={value}" for axis, value in task.changed.items())
        self._brief = task.title if task.kind != "run" else f"{task.model} {changed or 'base'}, round {task.round}"
        self._start_s, self._estimate_s = time.monotonic(), progress.estimate_s
        self.tell("starting", 0.0)

    def tell(self, stage: str, share: float) -> None:
        if self._bar is None or self._line is None:
            return
        tasks = self._course.state.tasks
        settled = sum(progress.state != "waiting" for progress in tasks)
        under_way_s = min(self._estimate_s, time.monotonic() - self._start_s)
        left_s = max(0.0, self._course.left_s - under_way_s)
        failed = self._course.state.count("failed")
        head = f"{settled}/{len(tasks)}" + (f", {failed} failed" if failed else "")
        text = harmless(f"{head}, {duration(left_s)} left · {self._brief}: {stage}")
        self._bar.update(self._line, completed=(settled + share) / len(tasks), description=text)
        self._bar.refresh()

    def end(self, progress: Progress, performed: Performed | None) -> None:
        tasks = self._course.state.tasks
        settled = sum(each.state != "waiting" for each in tasks)
        speed = "" if performed is None or performed.speed is None else f", {digits(performed.speed)} images/s"
        why = f": {progress.why}" if progress.why else ""
        stored = "" if performed is None else f"; stored {performed.id}"
        left = f"; {duration(self._course.left_s)} left" if self._course.left_s else ""
        self._say(f"[{settled}/{len(tasks)}] {progress.state}: {self._title}{speed}{why}{stored}{left}")

    def waiting(self, tasks: int) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._say(f"another study is measuring {tasks} of the tasks; waiting for it")

    def _say(self, message: str) -> None:
        if self._bar is None:
            note(message)
        else:
            self._bar.console.print(harmless(message), markup=False, highlight=False, soft_wrap=True)


def _by_setup(tasks: Iterable[Progress]) -> list[list[Progress]]:
    """The rounds of each setup, as the study wrote them."""
    found: dict[str, list[Progress]] = {}
    for progress in tasks:
        found.setdefault(progress.task.setup, []).append(progress)
    return sorted(found.values(), key=lambda rounds: min(progress.task.number for progress in rounds))


def _plan_row(rounds: Sequence[Progress]) -> list[str]:
    measured = [progress for progress in rounds if progress.state in ("waiting", "left out")]
    first = measured[0] if measured else rounds[0]
    states = sorted(rounds, key=lambda progress: STATES.index(progress.state))
    parts = [
        f"{len(members)} {word}" if len(members) < len(rounds) else word
        for state, group in groupby(states, key=lambda progress: progress.state)
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


def _plan_lines(plan: Plan, course: Course, call: Call) -> list[str]:
    rules = plan.study.rules
    order = "in random order within each round" if rules.order == "random" else "in the order written"
    lines = [f"{len(plan.tasks)} tasks: {_counts(course.state.tasks, waiting='to measure')}, {order}."]
    lines.append(f"About {duration(course.left_s)} in all." if course.left_s else "Nothing is left to measure.")
    if call.time_s is not None:
        lines.append(f"Limited to {duration(call.time_s)}: the most informative first, what does not fit is left out.")
    if plan.excluded:
        lines.append(f"Excluded by the study itself: {plan.excluded} combinations.")
    return [*lines, *_to_add(plan.addable)]


def _to_add(names: Sequence[str]) -> list[str]:
    return [f"Not installed, so not in it: deepstone env add {' '.join(names)}"] if names else []


def _counts(tasks: Sequence[Progress], *, waiting: str = "waiting") -> str:
    counts = {state: sum(progress.state == state for progress in tasks) for state in STATES}
    words = [f"{counts[state]} {waiting if state == 'waiting' else state}" for state in STATES if counts[state]]
    return ", ".join(words) or "nothing"


def _plan_json(plan: Plan, course: Course, call: Call, tasks: Sequence[Progress]) -> object:
    return as_json(
        {
            "name": plan.study.name,
            "title": plan.study.title,
            "command": list(call.command),
            "estimate_s": course.left_s,
            "time_s": Absent("as long as it takes") if call.time_s is None else call.time_s,
            "excluded": plan.excluded,
            "base": dict(plan.base),
            "addable": list(plan.addable),
            "tasks": [progress.to_json() for progress in tasks],
        }
    )
