"""`deepstone papers`: the claims of the source papers, measured again, with a verdict on each."""

from __future__ import annotations

import json as json_module
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepstone.absent import Absent
from deepstone.cli.declare import argument, examples, file, flag
from deepstone.cli.draw import check_folder
from deepstone.cli.jobs import wait_limit_s
from deepstone.cli.options import Also, DryRun, Json, StorePath, TimeLimit, WaitUntilQuiet
from deepstone.cli.output import Column, Data, note, print_json, print_lines, print_table
from deepstone.cli.stores import store_folder, warn
from deepstone.cli.studying import exit_as, given_words, measured, opened_for, show_planned
from deepstone.errors import DeepstoneError, UsageError, nearest
from deepstone.units import digits

if TYPE_CHECKING:
    from deepstone.papers.paper import Claim, Paper, Scale
    from deepstone.results.claim import JudgedClaim, JudgedPaper, Verdict
    from deepstone.results.quantity import Quantity
    from deepstone.store.layout import Damage
    from deepstone.studies.plan import Plan
    from deepstone.studies.state import State
    from deepstone.studies.study_run import Call


EXAMPLES = examples(
    "deepstone papers                                      (all verdicts, nothing is measured)",
    "deepstone papers kim2017 --scale small --dry-run",
    "deepstone papers kim2017 --also results/h200 -o kim2017.json",
    "deepstone papers kim2017 --claim kim-3",
)


def complete_paper(incomplete: str) -> list[str]:
    from deepstone.papers.paper import paper_names

    return [name for name in paper_names() if name.startswith(incomplete)]


def papers(
    which: Annotated[
        str | None,
        argument("NAME", "A paper.", complete_paper),
    ] = None,
    scale: Annotated[
        str, typer.Option("--scale", help="small: minutes on two cores; paper: as published.", metavar="SCALE")
    ] = "small",
    claim: Annotated[
        str | None, typer.Option("--claim", help="Only tell what this claim says and how it is judged.", metavar="ID")
    ] = None,
    no_run: Annotated[bool, flag("--no-run", "Judge from what is there, and measure nothing.")] = False,
    dry_run: DryRun = False,
    time: TimeLimit = None,
    wait_until_quiet: WaitUntilQuiet = None,
    also: Also = None,
    output: Annotated[Path | None, file("-o", "--output", help="Save verdicts and figures as JSON.")] = None,
    store: StorePath = None,
    json: Json = False,
) -> None:
    """Measure what a paper claims, or go on with it, and print a verdict on every claim.

    Exit codes: 0 ok, 1 something could not be measured, 2 usage or a refused file, 4 something is missing.
    """
    from deepstone.papers.paper import load_paper, paper_names

    elsewhere = list(also or [])
    _check_output(output)
    wait_limit_s(wait_until_quiet)
    if which is None:
        for given, option in ((claim, "--claim"), (time, "--time"), (output, "-o"), (dry_run or None, "--dry-run")):
            if given is not None:
                raise UsageError(f"{option}: needs the name of a paper: {', '.join(paper_names())}")
        _show_all([load_paper(each) for each in paper_names()], store_folder(store), elsewhere, as_json=json)
        return
    paper = load_paper(which)
    if claim is not None:
        _show_claim(paper, claim, as_json=json)
        return
    chosen = _scale(scale)
    state: State | None = None
    if not no_run:
        command = _command(which, chosen, time, wait_until_quiet, elsewhere, output, store)
        plan, call = _planned(paper, chosen, time, command)
        if dry_run:
            show_planned(plan, call, store_folder(store), as_json=json)
            return
        # Report errors in imported files before measuring, which takes minutes.
        _judged([paper], store_folder(store), elsewhere, chosen)
        state = measured(plan, opened_for(store_folder(store)), call, wait=wait_until_quiet)
        _report_unmeasured(state)
    [judged] = _judged([paper], store_folder(store), elsewhere, chosen)
    _show(judged, output, as_json=json)
    if state is not None:
        exit_as(state)


def _show_all(papers: list[Paper], store: Path, also: list[Path], *, as_json: bool) -> None:
    judged = _judged(papers, store, also, None)
    if as_json:
        print_json(judged)
        return
    _print_table(judged)


def _show_claim(paper: Paper, id: str, *, as_json: bool) -> None:
    found = paper.claim(id)
    if found is None:
        raise UsageError(f"{paper.name} has no claim {id!r}; {nearest(id, [each.id for each in paper.claims])}")
    if as_json:
        print_json(_claim_json(found))
    else:
        _print_claim(found)


def _show(judged: JudgedPaper, output: Path | None, *, as_json: bool) -> None:
    if output is not None:
        from deepstone.durable import write_whole

        try:
            write_whole(json_module.dumps(judged.to_json(), indent=1, allow_nan=False).encode(), output.absolute())
        except OSError as error:
            raise DeepstoneError(f"cannot write {output}: {(error.strerror or str(error)).lower()}") from error
    if as_json:
        print_json(judged)
    else:
        _print_paper(judged)
    if output is not None:
        note(f"saved {output}")


def _judged(papers: list[Paper], store: Path, also: list[Path], scale: Scale | None) -> list[JudgedPaper]:
    from deepstone.papers.gather import gather
    from deepstone.papers.judge import judged_paper

    damaged: list[Damage] = []
    skipped: list[str] = []
    evidence = gather(papers, store, also, damaged, skipped)
    warn(dict.fromkeys(damaged))
    for line in skipped:
        note(f"deepstone: passed over {line}")
    return [judged_paper(paper, evidence, scale=scale) for paper in papers]


def _planned(paper: Paper, scale: Scale, time: str | None, command: tuple[str, ...]) -> tuple[Plan, Call]:
    from msgspec.structs import replace

    from deepstone.studies.durations import parse_duration
    from deepstone.studies.find import read_study_file
    from deepstone.studies.plan import make_plan
    from deepstone.studies.study_run import Call

    time_s = None if time is None else parse_duration(time)
    study = read_study_file(paper.studies[scale])
    rules = replace(study.rules, time_s=time_s) if time_s is not None else study.rules
    plan = make_plan(replace(study, rules=rules))
    return plan, Call(command=command, resume=shlex.join(command), rerun=rules.rerun, time_s=rules.time_s)


def _report_unmeasured(state: State) -> None:
    """Report tasks that were left out for lack of time, and failed ones by name. Unsupported tasks are not failures."""
    for status in state.tasks:
        if status.state in ("left out", "failed"):
            note(f"{status.state}: {status.task.title}, round {status.task.round}: {status.why}")
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
    name: str,
    scale: Scale,
    time: str | None,
    wait: str | None,
    also: list[Path],
    output: Path | None,
    store: Path | None,
) -> tuple[str, ...]:
    """Return the command that resumes it."""
    options: list[tuple[str, object]] = [
        ("--scale", scale),
        ("--time", time),
        ("--wait-until-quiet", wait),
        *(("--also", path) for path in also),
        ("-o", output),
        ("--store", store),
    ]
    return ("deepstone", "papers", name, *given_words(options))


def _print_table(papers: Sequence[JudgedPaper]) -> None:
    """Print every claim of every paper, with one line for each machine that has a verdict."""
    columns = [
        Column(heading="claim"),
        Column(heading="what", wraps=24),
        Column(heading="published", wraps=12),
        Column(heading="verdict"),
        Column(heading="measured", right=True),
        Column(heading="machine", wraps=12),
    ]
    print_table(columns, [row for paper in papers for claim in paper.claims for row in _rows(claim)])
    for paper in papers:
        print_lines(["", f"{paper.name}: {_counted(paper)}; `deepstone papers {paper.name}` tells why"])


def _print_paper(paper: JudgedPaper) -> None:
    print_lines([f"{paper.name}: {paper.title}", f"    {paper.citation}", f"    measured on: {paper.setup}"])
    for claim in paper.claims:
        print_lines(["", f"{claim.id}  {claim.claim} ({claim.where}: {claim.published['text']})"], hang=8)
        for verdict in verdicts_to_report(claim.by_machine or [claim]):
            print_lines([f"    {_head(verdict)}"], hang=4)
            print_lines([f"        {verdict.why}"], hang=0)
            if verdict.setup:
                print_lines([f"        {verdict.setup}{_rests_on(verdict)}"], hang=0)
    print_lines(["", f"{_counted(paper)}; {len(paper.charts)} figures"])
    print_lines(f"wrong in the paper itself: {error}" for error in paper.errors)


def _print_claim(claim: Claim) -> None:
    print_lines(
        [
            f"{claim.id}: {claim.text}",
            f"    where      {claim.where}",
            f"    published  {claim.published.text}",
            f"    tested by  {claim.test}",
        ],
        hang=11,
    )
    for number, use in enumerate(claim.rules):
        given = ", ".join(f"{key} = {value}" for key, value in use.parameters.items())
        head = "rule" if number == 0 else "beside" if use.beside else "else"
        print_lines([f"    {head:<11}{use.name}: {use.rule.words}"], hang=11)
        print_lines([f"               {given}"] if given else [], hang=0)
        print_lines([f"               called: {use.label}"] if use.label else [], hang=0)
        print_lines([f"               said with it: {use.remark}"] if use.remark else [], hang=0)


def _claim_json(claim: Claim) -> dict[str, Data]:
    from deepstone.papers.judge import rule_words

    return {
        "id": claim.id,
        "claim": claim.text,
        "where": claim.where,
        "published": claim.published,
        "test": claim.test,
        "rule": rule_words(claim),
        "rules": [
            {"name": use.name, "parameters": use.parameters, "label": use.label, "beside": use.beside}
            for use in claim.rules
        ],
    }


def _rows(claim: JudgedClaim) -> list[list[str]]:
    verdicts = verdicts_to_report(claim.by_machine or [claim])
    first = [claim.id, claim.claim, str(claim.published["text"])]
    return [
        [*(first if number == 0 else ["", "", ""]), verdict.verdict, measured_in_words(verdict), verdict.machine]
        for number, verdict in enumerate(verdicts)
    ]


def verdicts_to_report(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts of machines that have one; if none has, the first, which says what it lacks."""
    return [verdict for verdict in verdicts if verdict.verdict != "not testable here"] or list(verdicts[:1])


def _head(verdict: Verdict) -> str:
    parts = [verdict.verdict.upper(), measured_in_words(verdict), verdict.machine]
    return "  ".join(part for part in parts if part)


def measured_in_words(verdict: Verdict) -> str:
    """Format the measured number with its interval; empty if there is none."""
    value = verdict.measured
    if isinstance(value, Absent):
        return ""
    if verdict.unit == "share":
        return f"{digits(100 * value.median)} %{_interval(value, 100)}"
    unit = "x" if verdict.unit == "ratio" else f" {verdict.unit}"
    return f"{digits(value.median)}{unit}{_interval(value, 1)}"


def _interval(value: Quantity, factor: float) -> str:
    """Format the interval: empty for a count, the reason for a measurement without one."""
    if value.lower == value.upper and not isinstance(value.lower, Absent):
        return ""
    return f" ({value.span_in_words(lambda end: digits(factor * end))})"


def _rests_on(verdict: Verdict) -> str:
    ids = [*verdict.runs, *verdict.findings]
    return f" [{', '.join(ids)}]" if ids else ""


def _counted(paper: JudgedPaper) -> str:
    from deepstone.papers.verdict import WORDS

    counts = Counter(claim.verdict for claim in paper.claims)
    return ", ".join(f"{counts[word]} {word}" for word in WORDS if counts[word])
