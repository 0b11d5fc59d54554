"""`deepstone study`: many jobs, planned, measured, resumed and reported together."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec import Struct
from msgspec.structs import replace

from deepstone.cli.completion import complete_axis, complete_study
from deepstone.cli.declare import argument, examples, file, flag, seconds
from deepstone.cli.draw import check_page
from deepstone.cli.jobs import wait_limit_s
from deepstone.cli.options import DryRun, Json, StorePath, TimeLimit, WaitUntilQuiet, with_files
from deepstone.cli.output import Column, note, print_json, print_lines, print_table, write
from deepstone.cli.stores import named_store, store_folder, warn
from deepstone.cli.studying import (
    exit_as,
    given_words,
    measured,
    opened_for,
    rounds_by_setup,
    show_planned,
    task_counts,
    to_add,
)
from deepstone.errors import UsageError, nearest

if TYPE_CHECKING:
    from deepstone.results.claim import Statement
    from deepstone.store.layout import Damage
    from deepstone.store.store import Store
    from deepstone.studies.plan import Plan
    from deepstone.studies.state import State
    from deepstone.studies.study import Rerun, Study
    from deepstone.studies.study_run import Call

EXAMPLES = examples(
    "deepstone study --list",
    "deepstone study examples/which-settings.toml --dry-run",
    "deepstone study examples/which-settings.toml model=resnet50 --time '10 min'",
)

_MOST_STATEMENTS: Final = 15
_MOST_RUNS: Final = 6  # of the advice; the page and the store have all


def study(
    ctx: typer.Context,
    reference: Annotated[
        str | None,
        argument("FILE|NAME", "A study that comes with Deepstone, a file .toml, or file.py:function.", complete_study),
    ] = None,
    words: Annotated[
        list[str] | None,
        argument(
            "AXIS=VALUE",
            "Values that take the place of the study's own, as in batch=32 model=resnet50; @FILE: those of a setup.",
            complete_axis,
            with_files,
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
    budget: Annotated[float | None, seconds("--budget", "Seconds of timed steps of each run.")] = None,
    repetitions: Annotated[
        int | None,
        typer.Option("--repetitions", help="Rounds, each a fresh process.", metavar="N", min=1, max=1000),
    ] = None,
    report: Annotated[Path | None, file("--report", help="Write the page about it here.")] = None,
    part: Annotated[
        str | None, typer.Option("--part", help="Only this part of it, as in 2/8: for many machines.", metavar="I/K")
    ] = None,
    submit: Annotated[
        str | None,
        typer.Option(
            "--submit",
            help="Measure nothing, and write a script for this scheduler (slurm), which measures K parts (--part K).",
            metavar="SCHEDULER",
        ),
    ] = None,
    wait_until_quiet: WaitUntilQuiet = None,
    list_all: Annotated[bool, flag("--list", "The studies that come with Deepstone.")] = False,
    store: StorePath = None,
    json: Json = False,
) -> None:
    """Run a study, or go on with one: what is already in the store is not measured again.

    Exit codes: 0 all ok, 1 some task failed, 2 the study is refused, 4 something is missing, 130 interrupted.
    """
    if list_all:
        _show_builtin(as_json=json)
        return
    if reference is None:
        raise UsageError("study needs a file or a name; `deepstone study --list` shows those that there are")
    check_page(report)
    wait_limit_s(wait_until_quiet)
    changes = _Changes(words=tuple(words or ()), time=time, rerun=rerun, budget=budget, repetitions=repetitions)
    chosen = _changed(reference, changes)
    # Imported only now, because it is slow: errors in the file are reported at once.
    from deepstone.studies.plan import make_plan
    from deepstone.studies.study_run import Call

    if submit is not None:
        script = _submitted(submit, reference, changes, part, store_folder(store))
        if dry_run:
            _show_script(script, as_json=json)
        else:
            script.write()
        return
    plan = make_plan(chosen)
    if part is not None:
        from deepstone.studies.parts import Part, part_of

        plan = part_of(plan, Part.parse(part))
    command = _command(reference, changes, report, wait_until_quiet, named_store(ctx, store), part)
    rules = chosen.rules
    call = Call(command=command, resume=shlex.join(command), rerun=rules.rerun, time_s=rules.time_s)
    if dry_run:
        show_planned(plan, call, store_folder(store), as_json=json)
    else:
        _run(plan, call, store_folder(store), report, wait_until_quiet, as_json=json)


def finish(state: State, store: Store, report: Path | None, *, silent: bool) -> None:
    """Print the statements of a finished study and write its page. `silent`: print nothing."""
    from deepstone.report.sources import study_sources

    damaged: list[Damage] = []
    sources = study_sources(store, state.name, damaged)
    warn(damaged)
    if not silent:
        _show_statements(sources.statements)
    if report is not None:
        from deepstone.report.book import make_book
        from deepstone.report.files import write_page

        write_page(make_book(sources), report.expanduser())
        note(f"The page about it: {report}")


class _Changes(Struct, frozen=True, kw_only=True):
    """Changes to the study from the command line."""

    words: tuple[str, ...]
    time: str | None
    rerun: str | None
    budget: float | None
    repetitions: int | None


def _changed(reference: str, changes: _Changes) -> Study:
    """Return the study with its changes."""
    from deepstone.studies.durations import parse_duration
    from deepstone.studies.find import find_study, with_words

    found = with_words(find_study(reference), changes.words)
    rules = found.rules
    if changes.time is not None:
        rules = replace(rules, time_s=parse_duration(changes.time))
    if changes.rerun is not None:
        rules = replace(rules, rerun=_policy(changes.rerun))
    budget, repetitions = changes.budget, changes.repetitions
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


class _Script(Struct, frozen=True, kw_only=True):
    """For a scheduler. It is written beside us; who submits it may change it first."""

    path: Path
    text: str

    def write(self) -> None:
        try:
            with self.path.open("x", encoding="utf-8") as out:
                out.write(self.text)
        except FileExistsError:
            raise UsageError(f"{self.path} is there already; remove it first") from None
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be written: {error.strerror}") from None
        note(f"Wrote {self.path}. Submit it with: sbatch {self.path}")


def _submitted(scheduler: str, reference: str, changes: _Changes, part: str | None, store: Path) -> _Script:
    from deepstone.studies.find import find_study
    from deepstone.studies.parts import parts_to_submit, slurm_script

    if scheduler != "slurm":
        raise UsageError(f"--submit {scheduler}: {nearest(scheduler, ('slurm',))}")
    name = find_study(reference).name
    command = _command(reference, changes, None, None, None)
    return _Script(path=Path(f"{name}.sbatch"), text=slurm_script(name, command, parts_to_submit(part), store))


def _show_script(script: _Script, *, as_json: bool) -> None:
    if as_json:
        print_json({"file": str(script.path), "script": script.text})
        return
    write(script.text)
    note(f"Without --dry-run this goes to {script.path}.")


def _command(
    reference: str,
    changes: _Changes,
    report: Path | None,
    wait: str | None,
    store: Path | None,
    part: str | None = None,
) -> tuple[str, ...]:
    """Return the command that resumes it."""
    budget = None if changes.budget is None else f"{changes.budget:.12g}"
    options: list[tuple[str, object]] = [
        ("--time", changes.time),
        ("--rerun", changes.rerun),
        ("--budget", budget),
        ("--repetitions", changes.repetitions),
        ("--report", report),
        ("--part", part),
        ("--wait-until-quiet", wait),
        ("--store", store),
    ]
    return ("deepstone", "study", reference, *changes.words, *given_words(options))


def _run(plan: Plan, call: Call, folder: Path, report: Path | None, wait: str | None, *, as_json: bool) -> None:
    store = opened_for(folder)
    state = measured(plan, store, call, wait=wait)
    if as_json:
        print_json(state.kept().to_json())
    else:
        _show_results(state)
    finish(state, store, report, silent=as_json)
    exit_as(state)


def _show_builtin(*, as_json: bool) -> None:
    from deepstone.studies.find import builtin_names, find_study

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


def _show_results(state: State) -> None:
    """Print the tasks that were not done, and the counts of all."""
    for name in ("failed", "pruned", "left out"):
        for rounds in rounds_by_setup([progress for progress in state.tasks if progress.state == name]):
            times = f" ({len(rounds)} rounds)" if len(rounds) > 1 else ""
            print_lines([f"{name}: {rounds[0].task.title}{times}: {rounds[0].why}"])
    print_lines([f"study {state.name}: {task_counts(state.tasks)}", *to_add(state.addable)])
    if state.count("left out"):
        print_lines([f"For what was left out: {state.resume}"])


def _show_statements(statements: Sequence[Statement]) -> None:
    """Print the statements, the most important first."""
    if statements:
        shown = statements[:_MOST_STATEMENTS]
        print_lines(["", "What was found:", *(f"  · {statement.text}" for statement in shown)], hang=4)
    if len(statements) > _MOST_STATEMENTS:
        print_lines([f"  … and {len(statements) - _MOST_STATEMENTS} more, on the page: --report FILE"])
    for statement in statements:
        if statement.advice:
            print_lines(["", f"Advice: {statement.advice}", f"  {statement.how}"], hang=4)
            print_lines([f"  runs: {' '.join(statement.runs[:_MOST_RUNS])}{_more(statement.runs)}"], hang=4)


def _more(runs: Sequence[str]) -> str:
    return f" and {len(runs) - _MOST_RUNS} more" if len(runs) > _MOST_RUNS else ""
