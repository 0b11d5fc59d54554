"""Prints what a dry run would measure: every job, whether it can run here, and how long all of it takes."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.cli.output import Column, Data, print_json, print_lines, print_table
from deepstone.units import bytes_, count

if TYPE_CHECKING:
    from deepstone.runner.job import Job


def print_plan(jobs: Sequence[Job], *, as_json: bool) -> None:
    """Print jobs of which each has a command of its own."""
    answers = answers_of(jobs)
    if as_json:
        print_json(_described(jobs, answers))
        return
    rows = [
        (shlex.join(job.command), _framework(job), _need_words(job), _flops(job), answer)
        for job, answer in zip(jobs, answers, strict=True)
    ]
    print_table([Column(heading="command", wraps=30), *_COLUMNS, Column(heading="can run", wraps=20)], rows)


class Planned(Struct, frozen=True, kw_only=True):
    """A setup of one command that measures several. `jobs`: its own, one for each launch if their number is known."""

    name: str
    jobs: Sequence[Job]


def print_setups(
    planned: Sequence[Planned], heading: str, summary: str, *, named: Collection[str] = (), as_json: bool
) -> None:
    """Print setups by their names, in a column with this heading, and what differs between them, without the axes of
    which the names tell."""
    jobs = [job for each in planned for job in each.jobs]
    answers = dict(zip((job.id for job in jobs), answers_of(jobs), strict=True))
    if as_json:
        described: list[dict[str, Data]] = [
            {"name": each.name, "round": job.repetition, **_described_job(job, _needs(job), answers[job.id])}
            for each in planned
            for job in each.jobs
        ]
        print_json(described)
        return
    firsts = [each.jobs[0] for each in planned]
    rows = [
        (
            each.name,
            differing(job, firsts, without=named),
            _workers(job),
            _framework(job),
            _need_words(job),
            _flops(job),
            answers[job.id],
        )
        for each, job in zip(planned, firsts, strict=True)
    ]
    columns = [
        Column(heading=heading, wraps=12),
        Column(heading="differs in", rank=1, wraps=16),
        Column(heading="processes\n× threads", right=True),
        *_COLUMNS,
        Column(heading="can run", wraps=20),
    ]
    print_lines([shlex.join(firsts[0].command), ""])
    print_table(columns, rows)
    print_lines(["", summary])


_COLUMNS = (
    Column(heading="framework", rank=2),
    Column(heading="analytic\nneed", right=True, rank=1),
    Column(heading="FLOPs\nper step", right=True, rank=1),
)


def differing(job: Job, jobs: Sequence[Job], *, without: Collection[str] = ()) -> str:
    """The axes of a job in which these jobs differ."""
    axes = [axis for axis in job.request if len({str(each.request[axis]) for each in jobs}) > 1 and axis not in without]
    return " ".join(f"{axis}={job.request[axis]}" for axis in axes)


def expected_s(job: Job, budget_s: float) -> float:
    """About how long one launch takes: its start, and its budget."""
    from deepstone.backends.registry import backend_of

    return backend_of(job.environment.framework, job.environment.version).startup_s + budget_s


def _workers(job: Job) -> str:
    """How many processes compute, and with how many threads each."""
    from deepstone.runner.team import rank_jobs
    from deepstone.setups.world import World

    world = World.of(job.request)
    if not world.is_parallel:
        return f"1 × {job.request['threads']}"
    return f"{world.processes} × {rank_jobs(job)[0].request['threads']}"


def _framework(job: Job) -> str:
    return f"{job.environment.framework} {job.environment.version}"


def _flops(job: Job) -> str:
    return "unknown" if isinstance(job.flops, Absent) else count(job.flops)


def answers_of(jobs: Sequence[Job]) -> list[str]:
    """Whether each can run here: `yes`, or `no` with the reason and the remedy, as far as that is known without
    starting it."""
    from deepstone.runner.lacking import why_not

    known: dict[str, str] = {}  # by setup: the rounds of one need the same
    answers: list[str] = []
    for job in jobs:
        setup = replace(job, repetition=1).id
        if setup not in known:
            reason = why_not(job)
            known[setup] = "yes" if reason is None else f"no: {reason}"
        answers.append(known[setup])
    return answers


def _need_words(job: Job) -> str:
    """Of each process, from the least to the most."""
    known = [need for need in _needs(job) if not isinstance(need, Absent)]
    if not known:
        return "unknown"
    least, most = min(known), max(known)
    return bytes_(most) if least == most else f"{bytes_(least)} – {bytes_(most)}"


def _needs(job: Job) -> Sequence[int | Absent]:
    """By rank."""
    from deepstone.runner.rank_memory import planned_bytes
    from deepstone.setups.world import World

    return planned_bytes(job) if World.of(job.request).is_parallel else [job.need_bytes]


def _described(jobs: Sequence[Job], answers: Sequence[str]) -> list[dict[str, Data]]:
    return [_described_job(job, _needs(job), answer) for job, answer in zip(jobs, answers, strict=True)]


def _described_job(job: Job, needs: Sequence[int | Absent], answer: str) -> dict[str, Data]:
    return {
        "command": shlex.join(job.command),
        "job": job.id,
        "model": job.model.name,
        "requested": dict(job.request),
        "framework": f"{job.environment.framework}@{job.environment.version}",
        "analytic_bytes": max((need for need in needs if not isinstance(need, Absent)), default=job.need_bytes),
        "analytic_bytes_by_rank": list(needs),
        "flops": job.flops,
        "can_run": answer,
    }
