"""What every command that runs a study does with it: show the plan, measure it, say how it ended."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from deepstone.cli.stopped import Stopped
from deepstone.errors import MissingError

if TYPE_CHECKING:
    from deepstone.store.store import Store
    from deepstone.studies.course import Call
    from deepstone.studies.plan import Plan
    from deepstone.studies.state import State


def show_planned(plan: Plan, call: Call, folder: Path, *, as_json: bool) -> None:
    from deepstone.cli.show_study import show_plan
    from deepstone.store.layout import Layout
    from deepstone.store.store import Store
    from deepstone.studies.course import Course

    is_there = Layout(root=folder).format.exists()  # a dry run makes no store
    course = Course(plan, Store.open(folder, create=False) if is_there else None, call)
    show_plan(plan, course, call, as_json=as_json)


def opened_for(folder: Path) -> Store:
    """A store that can be written to, or StoreError before minutes are spent on measuring."""
    from deepstone.store.store import Store

    store = Store.open(folder)
    store.probe()
    return store


def measured(plan: Plan, store: Store, call: Call) -> State:
    """Runs it, or goes on with it, and shows how far it is. A signal is told with the command that goes on."""
    from deepstone.cli.show_study import watching
    from deepstone.studies.course import Course
    from deepstone.studies.run import run_study

    try:
        course = Course(plan, store, call)
        with watching(course) as watch:
            return run_study(course, store, call, watch)
    except Stopped as stopped:
        stopped.kept = f"what is stored is kept; go on with: {call.resume}"
        raise


def exit_as(state: State) -> None:
    """Leaves with the exit code for what is missing or failed, if anything is."""
    if any(progress.task.missing for progress in state.tasks):
        raise typer.Exit(MissingError.exit_code)
    if state.count("failed"):
        raise typer.Exit(1)


def given_words(options: Iterable[tuple[str, object]]) -> list[str]:
    """Of (option, value), those that were given, as words: what goes on with a study is the same command."""
    return [word for option, value in options if value is not None for word in (option, str(value))]
