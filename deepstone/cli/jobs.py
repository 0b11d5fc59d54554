"""From the words of a command to jobs, and from jobs to stored records."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from deepstone.cli.output import console, print_json, table
from deepstone.cli.progress import progress_bar
from deepstone.environments.installed import find_environment
from deepstone.errors import MissingError
from deepstone.models.load import LoadedModel, load_model
from deepstone.records.schema import Record
from deepstone.runner.job import Job, Machine, title
from deepstone.runner.launch import Effort
from deepstone.runner.run import run_job
from deepstone.setups.request import Request, as_words, expand, parse_words
from deepstone.setups.rules import broken_rule
from deepstone.store.store import Store
from deepstone.units import bytes_, count


def plan(model: str, words: Sequence[str], options: Sequence[str]) -> list[Job]:
    """Every job that the words span. Raises before anything is measured: UsageError, MissingError."""
    requests = expand(parse_words(words))
    loaded = load_model(model)
    machine = Machine.here()
    return [
        make_job(loaded, request, machine, ("deepstone", "run", model, *as_words(request), *options))
        for request in requests
    ]


def make_job(loaded: LoadedModel, request: Request, machine: Machine, command: Sequence[str]) -> Job:
    return Job(
        model=loaded,
        request=request,
        environment=find_environment(str(request["framework"])),
        machine=machine,
        command=tuple(command),
    )


def print_plan(jobs: Sequence[Job], *, as_json: bool) -> None:
    """What a dry run prints."""
    if as_json:
        print_json(_described(jobs))
        return
    rows = [
        (
            shlex.join(job.command),
            f"{job.environment.framework} {job.environment.version}",
            bytes_(job.need_bytes),
            count(job.flops),
            broken_rule(job.request) or "yes",
        )
        for job in jobs
    ]
    columns = [
        ("command", "left"),
        ("framework", "left"),
        ("analytic need", "right"),
        ("FLOPs per step", "right"),
        ("can run", "left"),
    ]
    console().print(table(columns, rows))


def _described(jobs: Sequence[Job]) -> list[dict[str, object]]:
    return [
        {
            "command": shlex.join(job.command),
            "job": job.id,
            "model": job.model.name,
            "requested": dict(job.request),
            "framework": f"{job.environment.framework}@{job.environment.version}",
            "analytic_bytes": job.need_bytes,
            "flops": job.flops,
            "can_run": broken_rule(job.request) or "yes",
        }
        for job in jobs
    ]


def measure_all(jobs: Sequence[Job], effort: Effort, store_path: Path) -> tuple[list[Record], MissingError | None]:
    """Measure and store one job after the other. A missing device fails its own job and spares the others."""
    store = Store.open(store_path)
    store.probe()
    records: list[Record] = []
    missing: MissingError | None = None
    with progress_bar(len(jobs)) as bar:
        for job in jobs:
            bar.begin(title(job))
            try:
                draft = run_job(job, effort, bar.tell)
            except MissingError as error:
                missing = error
                bar.end()
                if len(jobs) > 1:
                    bar.say(f"deepstone: {error}")
                continue
            records.append(store.add(draft))
            bar.end()
            bar.say(f"stored {records[-1]['id']}")
    return records, missing
