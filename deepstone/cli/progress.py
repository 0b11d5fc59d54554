"""A progress bar on standard error. It is drawn only on a call, so nothing of ours runs during a measurement."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deepstone.cli.output import harmless, note
from deepstone.cli.stopped import raise_swallowed

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Bar:
    """One bar for several jobs. Without a terminal it shows nothing."""

    def __init__(self, progress: Progress | None, task: TaskID | None, jobs: int) -> None:
        self._progress = progress
        self._task = task
        self._jobs = jobs
        self._done = 0
        self._title = ""

    @property
    def is_drawn(self) -> bool:
        return self._progress is not None

    def begin(self, title: str) -> None:
        self._title = title
        self.advance("starting", 0.0)

    def advance(self, stage: str, share: float) -> None:
        """Show the stage and the finished share of the job. Call it between blocks."""
        raise_swallowed()
        if self._progress is None or self._task is None:
            return
        number = f"{self._done + 1}/{self._jobs} " if self._jobs > 1 else ""
        self._progress.update(
            self._task, completed=(self._done + share) / self._jobs, description=f"{number}{self._title}: {stage}"
        )
        self._progress.refresh()

    def end(self) -> None:
        self._done += 1

    def say(self, message: str) -> None:
        """Print a line above the bar."""
        if self._progress is None:
            note(message)
        else:
            self._progress.console.print(harmless(message), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress_bar(jobs: int) -> Generator[Bar, None, None]:
    if not sys.stderr.isatty():
        yield Bar(None, None, jobs)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
    )
    with progress:
        yield Bar(progress, progress.add_task("", total=1.0), jobs)
