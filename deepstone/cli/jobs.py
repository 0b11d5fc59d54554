"""From the words of a command to jobs, and from jobs to stored records."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from deepstone.absent import Absent, as_json
from deepstone.cli.output import print_json, print_table
from deepstone.cli.progress import progress_bar
from deepstone.cli.table import Column
from deepstone.errors import MissingError
from deepstone.models.load import LoadedModel
from deepstone.records.schema import Record
from deepstone.runner.job import Job, Machine, title
from deepstone.runner.launch import Effort
from deepstone.runner.new_job import make_job as make_job
from deepstone.runner.run import run_job
from deepstone.setups.request import Request, as_words
from deepstone.store.store import Store
from deepstone.units import bytes_, count


def plan(loaded: LoadedModel, requests: Sequence[Request], command: Sequence[str], options: Sequence[str]) -> list[Job]:
    """A job for every request, each with the command that gives it alone. Raises MissingError."""
    machine = Machine.here()
    return [make_job(loaded, request, machine, (*command, *as_words(request), *options)) for request in requests]


def print_plan(jobs: Sequence[Job], *, as_json: bool) -> None:
    """What a dry run prints."""
    if as_json:
        print_json(_described(jobs))
        return
    rows = [
        (
            shlex.join(job.command),
            f"{job.environment.framework} {job.environment.version}",
            "unknown" if isinstance(job.need_bytes, Absent) else bytes_(job.need_bytes),
            "unknown" if isinstance(job.flops, Absent) else count(job.flops),
            job.broken_rule or "yes",
        )
        for job in jobs
    ]
    columns = [
        Column(heading="command", wraps=30),
        Column(heading="framework", rank=2),
        Column(heading="analytic\nneed", right=True, rank=1),
        Column(heading="FLOPs\nper step", right=True, rank=1),
        Column(heading="can run", wraps=20),
    ]
    print_table(columns, rows)


def _described(jobs: Sequence[Job]) -> list[dict[str, object]]:
    return [
        {
            "command": shlex.join(job.command),
            "job": job.id,
            "model": job.model.name,
            "requested": dict(job.request),
            "framework": f"{job.environment.framework}@{job.environment.version}",
            "analytic_bytes": as_json(job.need_bytes),
            "flops": as_json(job.flops),
            "can_run": job.broken_rule or "yes",
        }
        for job in jobs
    ]


def measure_all(jobs: Sequence[Job], effort: Effort, store_path: Path) -> tuple[list[Record], list[MissingError]]:
    """Measure and store one job after the other. What is missing fails its own job and spares the others."""
    store = Store.open(store_path)
    store.probe()
    records: list[Record] = []
    missing: list[MissingError] = []
    with progress_bar(len(jobs)) as bar:
        for job in jobs:
            bar.begin(title(job))
            try:
                draft = run_job(job, effort, bar.tell)
            except MissingError as error:
                missing.append(error)
                bar.end()
                if len(jobs) > 1:
                    bar.say(f"deepstone: {error}")
                continue
            records.append(store.add(draft))
            bar.end()
            bar.say(f"stored {records[-1]['id']}")
    return records, missing
