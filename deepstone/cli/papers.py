"""`deepstone papers`: the claims of the source studies, measured again, with a verdict on each."""

from __future__ import annotations

import json as json_module
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepstone.cli.figure_file import check_folder
from deepstone.cli.options import Also, DryRun, Json, StorePath, TimeLimit, examples, store_folder
from deepstone.cli.output import note, print_json
from deepstone.cli.stored import warn
from deepstone.cli.studying import exit_as, given_words, measured, opened_for, show_planned
from deepstone.errors import DeepstoneError, UsageError, nearest

if TYPE_CHECKING:
    from deepstone.papers.paper import Paper, Scale
    from deepstone.store.layout import Damage
    from deepstone.studies.course import Call
    from deepstone.studies.plan import Plan
    from deepstone.studies.state import State

EXAMPLES = examples(
    "deepstone papers                                      (all verdicts, nothing is measured)",
    "deepstone papers kim2017 --scale small --dry-run",
    "deepstone papers kim2017 --also results/h200 -o kim2017.json",
    "deepstone papers kim2017 --claim kim-3",
)


def complete_paper(incomplete: str) -> list[str]:
    from deepstone.papers.catalog import names

    return [name for name in names() if name.startswith(incomplete)]


def papers(
    which: Annotated[
        str | None,
        typer.Argument(help="A paper.", metavar="NAME", autocompletion=complete_paper, show_default=False),
    ] = None,
    scale: Annotated[
        str, typer.Option("--scale", help="small: minutes on two cores; paper: as published.", metavar="SCALE")
    ] = "small",
    claim: Annotated[
        str | None, typer.Option("--claim", help="Only tell what this claim says and how it is judged.", metavar="ID")
    ] = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Judge from what is there, and measure nothing.")] = False,
    dry_run: DryRun = False,
    time: TimeLimit = None,
    also: Also = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Save verdicts and figures as JSON.", metavar="FILE")
    ] = None,
    store: StorePath = None,
    json: Json = False,
) -> None:
    """Measure what a paper claims, or go on with it, and print a verdict on every claim.

    Exit codes: 0 ok, 1 something could not be measured, 2 usage or a refused file, 4 something is missing.
    """
    from deepstone.papers.catalog import load, names

    elsewhere = list(also or [])
    _check_output(output)
    if which is None:
        for given, option in ((claim, "--claim"), (time, "--time"), (output, "-o"), (dry_run or None, "--dry-run")):
            if given is not None:
                raise UsageError(f"{option}: needs the name of a paper: {', '.join(names())}")
        _show_all([load(each) for each in names()], store_folder(store), elsewhere, as_json=json)
        return
    paper = load(which)
    if claim is not None:
        _show_claim(paper, claim, as_json=json)
        return
    chosen = _scale(scale)
    state: State | None = None
    if not no_run:
        command = _command(which, chosen, time, elsewhere, output, store)
        plan, call = _planned(paper, chosen, time, command)
        if dry_run:
            show_planned(plan, call, store_folder(store), as_json=json)
            return
        # What is wrong with files from elsewhere is told before minutes are spent on measuring.
        _judged([paper], store_folder(store), elsewhere, chosen)
        state = measured(plan, opened_for(store_folder(store)), call)
        _tell_unmeasured(state)
    [judged] = _judged([paper], store_folder(store), elsewhere, chosen)
    _show(judged, output, as_json=json)
    if state is not None:
        exit_as(state)


def _show_all(papers: list[Paper], store: Path, also: list[Path], *, as_json: bool) -> None:
    from deepstone.cli.show_papers import show_table

    judged = _judged(papers, store, also, None)
    if as_json:
        print_json(judged)
        return
    show_table(judged)


def _show_claim(paper: Paper, id: str, *, as_json: bool) -> None:
    from deepstone.cli.show_papers import claim_as_json, show_claim

    found = paper.claim(id)
    if found is None:
        raise UsageError(f"{paper.name} has no claim {id!r}; {nearest(id, [each.id for each in paper.claims])}")
    if as_json:
        print_json(claim_as_json(found))
    else:
        show_claim(found)


def _show(judged: dict[str, Any], output: Path | None, *, as_json: bool) -> None:
    from deepstone.cli.show_papers import show_paper

    if output is not None:
        from deepstone.durable import write_whole

        try:
            write_whole(json_module.dumps(judged, indent=1, allow_nan=False).encode(), output.absolute())
        except OSError as error:
            raise DeepstoneError(f"cannot write {output}: {(error.strerror or str(error)).lower()}") from error
    if as_json:
        print_json(judged)
    else:
        show_paper(judged)
    if output is not None:
        note(f"saved {output}")


def _judged(papers: list[Paper], store: Path, also: list[Path], scale: Scale | None) -> list[dict[str, Any]]:
    from deepstone.papers.gather import gather
    from deepstone.papers.judge import judged_paper

    damaged: list[Damage] = []
    evidence = gather(papers, store, also, damaged)
    warn(dict.fromkeys(damaged))
    return [judged_paper(paper, evidence, scale=scale) for paper in papers]


def _planned(paper: Paper, scale: Scale, time: str | None, command: tuple[str, ...]) -> tuple[Plan, Call]:
    from dataclasses import replace

    from deepstone.studies.course import Call
    from deepstone.studies.durations import parse_duration
    from deepstone.studies.find import read_study_file
    from deepstone.studies.plan import make_plan

    time_s = None if time is None else parse_duration(time)
    study = read_study_file(paper.studies[scale])
    rules = replace(study.rules, time_s=time_s) if time_s is not None else study.rules
    plan = make_plan(replace(study, rules=rules))
    return plan, Call(command=command, resume=shlex.join(command), rerun=rules.rerun, time_s=rules.time_s)


def _tell_unmeasured(state: State) -> None:
    """What there was no time for, and what failed, by name; what cannot run here is no failure."""
    for progress in state.tasks:
        if progress.state in ("left out", "failed"):
            note(f"{progress.state}: {progress.task.title}, round {progress.task.round}: {progress.why}")
    if state.count("left out"):
        note(f"for what was left out: {state.resume}")


def _scale(word: str) -> Scale:
    from deepstone.papers.paper import SCALES

    for scale in SCALES:
        if word == scale:
            return scale
    raise UsageError(f"--scale {word}: {nearest(word, SCALES)}")


def _check_output(output: Path | None) -> None:
    if output is not None and output.suffix != ".json":
        raise UsageError(f"-o {output}: verdicts are saved as JSON; give a name that ends in .json")
    check_folder(output)


def _command(
    name: str, scale: Scale, time: str | None, also: list[Path], output: Path | None, store: Path | None
) -> tuple[str, ...]:
    """The words that go on with it."""
    options: list[tuple[str, object]] = [
        ("--scale", scale),
        ("--time", time),
        *(("--also", path) for path in also),
        ("-o", output),
        ("--store", store),
    ]
    return ("deepstone", "papers", name, *given_words(options))
