"""What a report must name though there is no number of it: runs that failed, and tasks of studies that did not run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from deepstone.report.reading import Node
from deepstone.report.run_rows import RunRow

_TASKS_TOLD: Final = 200
_DONE: Final = "done"


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """One reason, and all runs that it ended."""

    why: str
    what: str
    runs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Unfinished:
    """Tasks of a study that have no result; `tasks` are title, state and reason of each."""

    study: str
    resume: str
    tasks: tuple[tuple[str, str, str], ...]
    more: int


def failures_of(runs: Sequence[RunRow]) -> tuple[Failure, ...]:
    """Grouped by reason, the commonest first."""
    groups: dict[str, list[RunRow]] = {}
    for row in runs:
        if row.outcome != "ok":
            groups.setdefault(dict(row.rest).get("why it failed", row.outcome), []).append(row)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    return tuple(Failure(why=why, what=_what(rows), runs=tuple(row.id for row in rows)) for why, rows in ordered)


def unfinished_in(state: Node) -> list[Unfinished]:
    """Empty when every task of the study was done."""
    tasks = [task for task in state.nodes("tasks") if task.text("state", _DONE) != _DONE]
    if not tasks:
        return []
    told = tuple((_title(task), task.text("state"), task.text("why", "")) for task in tasks[:_TASKS_TOLD])
    return [
        Unfinished(
            study=state.text("title", "") or state.text("name"),
            resume=state.text("resume", ""),
            tasks=told,
            more=len(tasks) - len(told),
        )
    ]


def _title(task: Node) -> str:
    number = task.text("round", "1")
    return task.text("title") + (f" (round {number})" if number != "1" else "")


def _what(rows: Sequence[RunRow]) -> str:
    first = rows[0]
    words = " ".join(word for word in (first.model, f"batch={first.batch}", first.framework, first.setup) if word)
    return words if len(rows) == 1 else f"{words} and {len(rows) - 1:,} more"
