"""`deepstone study`: many jobs, planned, measured, resumed and kept together."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepstone.cli.completion import complete_axis, complete_study
from deepstone.cli.figure_file import check_page
from deepstone.cli.options import DryRun, Json, StorePath, TimeLimit, examples, not_nan, store_folder
from deepstone.cli.output import note, print_json
from deepstone.cli.studying import exit_as, given_words, measured, opened_for, show_planned
from deepstone.errors import UsageError, nearest

if TYPE_CHECKING:
    from deepstone.store.store import Store
    from deepstone.studies.course import Call
    from deepstone.studies.plan import Plan
    from deepstone.studies.study import Rerun, Study

EXAMPLES = examples(
    "deepstone study --list",
    "deepstone study examples/which-settings.toml --dry-run",
    "deepstone study examples/which-settings.toml model=resnet50 --time '10 min'",
)


def study(
    ctx: typer.Context,
    reference: Annotated[
        str | None,
        typer.Argument(
            help="A study that comes with Deepstone, a file .toml, or file.py:function.",
            metavar="FILE|NAME",
            autocompletion=complete_study,
            show_default=False,
        ),
    ] = None,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help="Values that take the place of the study's own, as in batch=32 model=resnet50.",
            metavar="AXIS=VALUE",
            autocompletion=complete_axis,
            show_default=False,
        ),
    ] = None,
    dry_run: DryRun = False,
    time: TimeLimit = None,
    rerun: Annotated[
        str | None,
        typer.Option(
            "--rerun", help="What to measure again: never, failed or always.", metavar="POLICY", show_default="never"
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            help="Seconds of timed steps of each run.",
            metavar="SECONDS",
            min=0.01,
            max=86400,
            callback=not_nan,
        ),
    ] = None,
    repetitions: Annotated[
        int | None,
        typer.Option("--repetitions", help="Rounds, each a fresh process.", metavar="N", min=1, max=1000),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write the page about it here.", metavar="FILE")
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="The studies that come with Deepstone.")] = False,
    store: StorePath = None,
    json: Json = False,
) -> None:
    """Run a study, or go on with one: what is already in the store is not measured again.

    Exit codes: 0 all ok, 1 some task failed, 2 the study is refused, 4 something is missing, 130 interrupted.
    """
    if list_all:
        from deepstone.cli.show_study import show_builtin

        show_builtin(as_json=json)
        return
    if reference is None:
        raise UsageError("study needs a file or a name; `deepstone study --list` shows those that there are")
    check_page(report)
    chosen = _changed(reference, list(words or []), time=time, rerun=rerun, budget=budget, repetitions=repetitions)
    # Only now what is slow to import: a mistake in the file is told at once.
    from deepstone.studies.course import Call
    from deepstone.studies.plan import make_plan

    plan = make_plan(chosen)
    # A store that the environment names is named again by it.
    source = ctx.get_parameter_source("store")
    named = store if source is not None and source.name == "COMMANDLINE" else None
    command = _command(reference, list(words or []), time, rerun, budget, repetitions, report, named)
    rules = chosen.rules
    call = Call(command=command, resume=shlex.join(command), rerun=rules.rerun, time_s=rules.time_s)
    if dry_run:
        show_planned(plan, call, store_folder(store), as_json=json)
    else:
        _run(plan, call, store_folder(store), report, as_json=json)


def finish(state: dict[str, Any], store: Store, report: Path | None, *, silent: bool) -> None:
    """What a study ends with: what was found, in sentences, and the page about it. `silent`: prints nothing."""
    from deepstone.cli.report_sources import study_sources

    sources = study_sources(store, state)
    if not silent:
        from deepstone.cli.show_study import show_statements

        show_statements(sources.statements)
    if report is not None:
        from deepstone.report.book import make_book
        from deepstone.report.book_files import write_page

        write_page(make_book(sources), report.expanduser())
        note(f"The page about it: {report}")


def _changed(
    reference: str,
    words: list[str],
    *,
    time: str | None,
    rerun: str | None,
    budget: float | None,
    repetitions: int | None,
) -> Study:
    """The study with what the command line says otherwise."""
    from dataclasses import replace

    from deepstone.studies.durations import parse_duration
    from deepstone.studies.find import find_study
    from deepstone.studies.words import with_words

    found = with_words(find_study(reference), words)
    rules = found.rules
    if time is not None:
        rules = replace(rules, time_s=parse_duration(time))
    if rerun is not None:
        rules = replace(rules, rerun=_policy(rerun))
    sweeps = [
        replace(
            sweep,
            effort=replace(
                sweep.effort,
                budget_s=budget if budget is not None and sweep.measure in ("run", "layers") else sweep.effort.budget_s,
                repetitions=repetitions
                if repetitions is not None and sweep.measure == "run"
                else sweep.effort.repetitions,
            ),
        )
        for sweep in found.sweeps
    ]
    return replace(found, rules=rules, sweeps=tuple(sweeps))


def _policy(word: str) -> Rerun:
    from deepstone.studies.study import RERUNS

    for policy in RERUNS:
        if word == policy:
            return policy
    raise UsageError(f"--rerun {word}: {nearest(word, RERUNS)}")


def _command(
    reference: str,
    words: list[str],
    time: str | None,
    rerun: str | None,
    budget: float | None,
    repetitions: int | None,
    report: Path | None,
    store: Path | None,
) -> tuple[str, ...]:
    """The words that go on with it."""
    options: list[tuple[str, object]] = [
        ("--time", time),
        ("--rerun", rerun),
        ("--budget", None if budget is None else f"{budget:.12g}"),
        ("--repetitions", repetitions),
        ("--report", report),
        ("--store", store),
    ]
    return ("deepstone", "study", reference, *words, *given_words(options))


def _run(plan: Plan, call: Call, folder: Path, report: Path | None, *, as_json: bool) -> None:
    from deepstone.cli.show_study import show_results

    store = opened_for(folder)
    state = measured(plan, store, call)
    if as_json:
        print_json(state.to_json())
    else:
        show_results(state)
    finish(state.to_json(), store, report, silent=as_json)
    exit_as(state)
