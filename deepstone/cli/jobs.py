"""Turns the words of a command into jobs, and jobs into stored records and findings.

Every command imports this module, so it imports slow modules only in functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from deepstone.cli.draw import draw_figure
from deepstone.cli.output import note, print_json
from deepstone.cli.plans import differing, expected_s
from deepstone.cli.progress import Bar, progress_bar
from deepstone.errors import BusyMachineError, InternalError, MissingError, UsageError, shown
from deepstone.units import digits

if TYPE_CHECKING:
    from deepstone.cli.findings import FindingStore
    from deepstone.graph.graph import Graph
    from deepstone.measure.effort import Effort
    from deepstone.measure.noise import NoiseReading
    from deepstone.models.load import LoadedModel
    from deepstone.results.findings import Finding
    from deepstone.results.record import Record
    from deepstone.runner.job import Job
    from deepstone.runner.quiet import QuietMachine
    from deepstone.setups.request import Choices, Request
    from deepstone.trace.events import Event

_RESULT_SCHEMA = 1


def image_size(text: str | None) -> tuple[int, int, int] | None:
    """Parse --input: channels, height, width."""
    if text is None:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,5}(x[1-9][0-9]{0,5}){2}", text):
        raise UsageError(f"--input {shown(text)}: must be channels, height and width, as in 3x224x224")
    channels, height, width = map(int, text.split("x"))
    return channels, height, width


def image_words(text: str | None) -> list[str]:
    """Return the option for the command in a record."""
    return [] if text is None else ["--input", text]


def refuse_lists(choices: Choices, command: str) -> None:
    for name, values in choices.items():
        if name != "framework" and len(values) > 1:
            raise UsageError(f"{name}: {command} takes one value; only framework may list several")


def refuse_several_processes(requests: Iterable[Request], command: str) -> None:
    from deepstone.setups.world import World

    if any(World.of(request).is_parallel for request in requests):
        raise UsageError(
            f"{command} looks into one process; leave out processes and nodes, or use `deepstone run`, which with "
            "--dry-run tells the memory of each process"
        )


def refuse_opaque(graph: Graph, what: str) -> None:
    """Raise UsageError if the content of the model is known only to its framework."""
    if graph.opaque:
        raise UsageError(
            f"{graph.name} is a torch module of your own, which only torch sees into; {what} needs a graph"
        )


def noise_at_start() -> NoiseReading:
    """Return a first noise reading. Call it before slow imports, so that the check for a quiet machine covers them."""
    from deepstone.hardware.noise import Noise

    return Noise([]).now()


def quiet_machine(begin: NoiseReading, wait: str | None) -> QuietMachine:
    """Return the check for a quiet machine. `wait` is the user's text; raises UsageError if it is not a time."""
    from deepstone.runner.quiet import QuietMachine

    return QuietMachine(begin=begin, wait_s=wait_limit_s(wait))


def wait_limit_s(wait: str | None) -> float | None:
    from deepstone.studies.durations import parse_duration

    return None if wait is None else parse_duration(wait)


def plan(loaded: LoadedModel, requests: Sequence[Request], command: Sequence[str], options: Sequence[str]) -> list[Job]:
    """Return a job for every request, each with the command that repeats only it. Raises MissingError."""
    from deepstone.runner.job import Machine
    from deepstone.runner.new_job import make_job
    from deepstone.setups.request import as_words

    machine = Machine.here()
    return [make_job(loaded, request, machine, (*command, *as_words(request), *options)) for request in requests]


def measure_all(
    jobs: Sequence[Job],
    effort: Effort,
    store_path: Path,
    quiet: QuietMachine,
    records: list[Record],
    events: list[Event] | None = None,
) -> list[MissingError | InternalError | BusyMachineError]:
    """Measure and store one job after the other. `records` receives the stored ones, also if a signal ends the command,
    and `events` those of the traced steps of several processes. A missing framework or an internal error fails only its
    own job. A machine that does not become quiet ends all."""
    from deepstone.runner.job import title
    from deepstone.runner.run import run_job
    from deepstone.store.store import Store

    store = Store.open(store_path)
    store.probe()
    failed: list[MissingError | InternalError | BusyMachineError] = []
    if len(jobs) * effort.launches > 1:
        note(_time_needed(jobs, effort))
    with progress_bar(len(jobs)) as bar:
        for job in jobs:
            bar.begin(title(job))
            try:
                quiet.before([job], bar.say)
                records.append(store.add(run_job(job, effort, bar.advance, events)))
            except BusyMachineError as error:
                failed.append(error)
                if len(jobs) > 1:
                    bar.say(f"deepstone: {error}; {len(records)} of {len(jobs)} jobs are stored")
                break
            except (MissingError, InternalError) as error:
                failed.append(error)
                bar.end()
                if len(jobs) > 1:
                    bar.say(f"deepstone: {error}")
                continue
            bar.end()
            bar.say(f"stored {records[-1].id}" + (f": {_result(job, jobs, records[-1])}" if len(jobs) > 1 else ""))
    return failed


def _time_needed(jobs: Sequence[Job], effort: Effort) -> str:
    """Estimate the time of all jobs. A run takes less if its interval is narrow before its budget is spent."""
    from deepstone.results.view import counted
    from deepstone.studies.durations import duration

    launches = len(jobs) * effort.launches
    total_s = effort.launches * sum(expected_s(job, effort.budget_s) for job in jobs)
    each = counted(effort.launches, "launch", "launches")
    return (
        f"{counted(len(jobs), 'job')}, {each} each: about {duration(total_s)} on a quiet machine if all budgets are "
        f"spent ({launches} × {effort.budget_s:g} s), start-up included"
    )


def _result(job: Job, jobs: Sequence[Job], record: Record) -> str:
    """Summarize one of several jobs, by the axes in which they differ."""
    from deepstone.results.view import rate, words

    setup = differing(job, jobs)
    speed = rate(record)
    result = words(record, "failure") or record.outcome
    if speed is not None:
        result = f"{digits(speed.median)} {record.workload.things}/s ({speed.span_in_words(digits)})"
    return f"{setup}: {result}"


def findings_of(
    jobs: Sequence[Job], find: Callable[[Job, Bar], Finding], store: FindingStore, *, method: str = ""
) -> dict[str, Finding]:
    """Measure and store a finding for each framework. If one fails, the others still run."""
    from deepstone.runner.assemble import now
    from deepstone.runner.job import title

    found: dict[str, Finding] = {}
    with progress_bar(len(jobs)) as bar:
        for job in jobs:
            bar.begin(f"{title(job)} {job.environment.framework}")
            started_at = now()
            try:
                finding = find(job, bar)
            finally:
                bar.end()
            found[str(job.request["framework"])] = store.keep(
                finding, job, started_at=started_at, say=bar.say, method=method
            )
    return found


def present(
    found: Mapping[str, Finding],
    *,
    show: Callable[[Mapping[str, Finding]], None],
    output: Path | None,
    json: bool,
    store: FindingStore,
) -> None:
    """Print the findings and draw their figure. Exits with 1 if a framework failed, with 3 if something could not be
    stored."""
    if json:
        print_json(_joined(found))
    else:
        show(found)
    good = {name: each for name, each in found.items() if each.outcome == "ok"}
    if good:
        draw_figure(_joined(good), output)
    store.leave_if_failed()
    if len(good) < len(found):
        raise typer.Exit(1)


def _joined(found: Mapping[str, Finding]) -> Finding:
    """Return one framework's finding as it is, or several by name."""
    from deepstone.results.findings import Finding

    first = next(iter(found.values()))
    if len(found) == 1:
        return first
    return Finding(schema=_RESULT_SCHEMA, kind=first.kind, model=first.model, parts=found, parts_by="frameworks")
