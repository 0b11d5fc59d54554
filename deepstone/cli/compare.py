"""`deepstone compare`: two setups interleaved in one run, and a verdict only where the interval supports one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepstone.absent import Absent, as_json
from deepstone.cli.help import HelpfulCommand
from deepstone.cli.jobs import first_look, print_plan, quiet_machine, refuse_opaque
from deepstone.cli.options import (
    Axes,
    DryRun,
    Json,
    Model,
    StorePath,
    Timeout,
    WaitUntilQuiet,
    changed,
    examples,
    percent,
    seconds,
    store_folder,
)
from deepstone.cli.output import note, print_json, print_lines
from deepstone.cli.progress import progress_bar
from deepstone.errors import InternalError, UsageError
from deepstone.units import digits
from deepstone.units import seconds as in_seconds

if TYPE_CHECKING:
    from deepstone.measure.effort import Effort
    from deepstone.results.parts import Json as JsonValue
    from deepstone.results.quantity import Quantity
    from deepstone.results.record import Draft, Record
    from deepstone.results.sameness import Comparable, SidesChecked
    from deepstone.runner.job import Job
    from deepstone.runner.measurement import OnProgress
    from deepstone.runner.quiet import QuietMachine
    from deepstone.setups.axes import Value
    from deepstone.setups.request import Choices
    from deepstone.store.store import Store

EXAMPLES = examples(
    "deepstone compare alexnet-owt batch=16 engine=onednn -- engine=native",
    "deepstone compare cifarnet batch=32 -- layout=nhwc --json",
    before="What stands before -- holds for both sides; what follows overrides it for B.",
)

SIDE_B = "deepstone.compare.b"


class TwoSidedCommand(HelpfulCommand):
    """Keeps the setup that follows `--` apart; options may stand on either side of it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            split = args.index("--")
            setup, options = self._sorted(args[split + 1 :])
            ctx.meta[SIDE_B] = setup
            args = args[:split] + options
        return super().parse_args(ctx, args)

    def _sorted(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """What is the setup, and what are options with their values."""
        setup: list[str] = []
        options: list[str] = []
        rest = iter(words)
        for word in rest:
            if word == "--":
                raise UsageError("compare takes two setups, so one --")
            if not word.startswith("-"):
                setup.append(word)
                continue
            options.append(word)
            if self._takes_value(word):
                options += [value for value in (next(rest, None),) if value is not None]
        return setup, options

    def _takes_value(self, word: str) -> bool:
        options: list[Any] = [parameter for parameter in self.params if word in parameter.opts]
        return any(not option.is_flag for option in options)


def compare(
    ctx: typer.Context,
    model: Model,
    axes: Axes = None,
    pairs: Annotated[
        int | None,
        typer.Option(
            "--pairs",
            help="So many fresh pairs of processes.",
            metavar="N",
            min=8,
            max=1000,
            show_default="3 to 12, until the answer is settled",
        ),
    ] = None,
    target: Annotated[
        float, percent("--target", "Doubt a side whose interval is wider than ± this many percent.")
    ] = 2.0,
    budget: Annotated[float, seconds("--budget", "Seconds of timed steps for each side, over all pairs.")] = 20.0,
    timeout: Timeout = 900.0,
    wait_until_quiet: WaitUntilQuiet = None,
    store: StorePath = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Compare two setups, A -- B: the ratio of their times per sample with its interval, and a verdict.

    Both run in fresh pairs of processes, in turns: as many pairs as it takes, 3 to 12. A winner is named only when the
    whole interval lies beyond 2 %.
    """
    if SIDE_B not in ctx.meta:
        raise UsageError("compare needs two setups: MODEL A -- B, as in `compare alexnet-owt batch=16 -- layout=nhwc`")
    begin = first_look()
    options = ["--pairs", str(pairs)] if pairs is not None else []
    options += changed(("--target", target, 2.0), ("--budget", budget, 20.0), ("--timeout", timeout, 900.0))
    job_a, job_b = _jobs(model, list(axes or []), list(ctx.meta[SIDE_B]), options, timeout)
    if dry_run:
        print_plan([job_a, job_b], as_json=json)
        return
    from deepstone.measure.effort import Effort

    effort = Effort(target_share=target / 100, budget_s=budget, timeout_s=timeout)
    quiet = quiet_machine(begin, wait_until_quiet)
    answer = _measured(job_a, job_b, effort, pairs, store_folder(store), quiet)
    if json:
        print_json(answer)
    else:
        print_lines(_lines(answer), hang=4)
    if not answer.is_whole:
        raise typer.Exit(1)


def _jobs(model: str, words: list[str], overrides: list[str], options: list[str], timeout_s: float) -> tuple[Job, Job]:
    from deepstone.exchange.load import load_model
    from deepstone.setups.request import complete, parse_words

    given = _single(parse_words(words))
    changed_for_b = _single(parse_words(overrides))
    loaded = load_model(
        model,
        frameworks=[side["framework"] for side in (given, changed_for_b) if "framework" in side],
        timeout_s=timeout_s,
    )
    # Only now what is slow to import: a word that is wrong is told at once.
    from deepstone.runner.job import Machine
    from deepstone.runner.new_job import make_job

    machine = Machine.here()
    command = ("deepstone", "compare", model, *words, *options, "--", *overrides)
    jobs = (
        make_job(loaded, complete(given), machine, command),
        make_job(loaded, complete({**given, **changed_for_b}), machine, command),
    )
    if jobs[0].environment.sha != jobs[1].environment.sha:
        refuse_opaque(loaded.graph, "compare across frameworks")
    return jobs


def _single(choices: Choices) -> dict[str, Value]:
    for name, values in choices.items():
        if len(values) > 1:
            raise UsageError(f"{name}: compare takes one value on each side; put the other after --")
    return {name: values[0] for name, values in choices.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Answer:
    """`ratio` is of times per sample. Where a side, the ratio or the verdict is absent, it says why."""

    a: Record | Absent
    b: Record | Absent
    ratio: Quantity | Absent
    verdict: str | Absent
    pairing: str
    stopped: str | Absent
    checks: Mapping[str, Comparable]

    @property
    def is_whole(self) -> bool:
        return not any(isinstance(part, Absent) for part in (self.a, self.b, self.ratio))

    def to_json(self) -> dict[str, JsonValue]:
        parts = ("a", "b", "ratio", "verdict", "pairing", "stopped")
        return as_json({**{name: getattr(self, name) for name in parts}, "sameness": _sameness(self.checks)})


def _measured(
    job_a: Job, job_b: Job, effort: Effort, pairs: int | None, store_path: Path, quiet: QuietMachine
) -> _Answer:
    """Compare, and store what was measured."""
    from deepstone.runner.compare import compare_jobs, verdict_in_words
    from deepstone.runner.job import title
    from deepstone.store.store import Store

    store = Store.open(store_path)
    store.probe()
    with progress_bar(1) as bar:
        bar.begin(title(job_a))
        quiet.before([job_a, job_b], bar.say)
        checks = _checks(job_a, job_b, effort, bar.tell)
        if not all(check.ok for check in checks.values()):
            return _refused(checks)
        bar.say(_expected(effort, pairs))
        comparison = compare_jobs(
            [job_a, job_b],
            effort,
            groups=pairs,
            on_progress=bar.tell,
            on_group=_left_teller(bar.say, pairs),
            sameness=_sameness(checks),
        )
    sides = [_stored(store, draft) for draft in comparison.sides]
    reason = Absent(
        f"no verdict: {comparison.refusal}" if comparison.refusal else "a side failed, so there is nothing to compare"
    )
    return _Answer(
        a=sides[0],
        b=sides[1],
        ratio=comparison.ratios[0].time_ratio if comparison.ratios else reason,
        verdict=verdict_in_words(comparison.ratios[0]) if comparison.ratios else reason,
        pairing=comparison.pairing,
        stopped=comparison.stopped or reason,
        checks=checks,
    )


def _expected(effort: Effort, pairs: int | None) -> str:
    """Told before anything starts: how long it takes at most, as far as one can know."""
    from deepstone.measure.sequential import LOOKS, MOST_GROUPS

    count, most = (f"{LOOKS[0]} to {MOST_GROUPS}", MOST_GROUPS) if pairs is None else (f"{pairs}", pairs)
    timed = in_seconds(2 * effort.budget_s)
    return (
        f"compares in {count} fresh pairs of processes: at most {timed} of timed steps, as much for warm-up, and the "
        f"start of {2 * most} processes"
    )


def _left_teller(say: Callable[[str], None], pairs: int | None) -> Callable[[float], None]:
    """Tells, after the first pair, how long the others may take."""
    from deepstone.measure.sequential import MOST_GROUPS

    left, told = (pairs or MOST_GROUPS) - 1, list[float]()

    def tell(took_s: float) -> None:
        if not told and left:
            say(f"the first pair took {in_seconds(took_s)}; at most {left} more, {in_seconds(left * took_s)}")
        told.append(took_s)

    return tell


def _stored(store: Store, draft: Draft | None) -> Record | Absent:
    if draft is None:
        return Absent("not measured, because the other side failed")
    try:
        record = store.add(draft)
    except InternalError as error:  # the other side must not go with it
        note(f"deepstone: {error}")
        return Absent(str(error))
    note(f"stored {record.id}")
    return record


def _checks(job_a: Job, job_b: Job, effort: Effort, on_progress: OnProgress) -> dict[str, Comparable]:
    """Across frameworks no speed is compared before both are shown to compute the same. Nothing within one."""
    if job_a.environment.sha == job_b.environment.sha:
        return {}
    from deepstone.checks.comparable import comparable

    return comparable({"a": job_a, "b": job_b}, timeout_s=effort.timeout_s, on_progress=on_progress)


def _sameness(checks: Mapping[str, Comparable]) -> SidesChecked | Absent:
    from deepstone.results.sameness import SidesChecked

    if not checks:
        return Absent("both sides run the same framework")
    return SidesChecked(ok=all(check.ok for check in checks.values()), a=checks["a"], b=checks["b"])


def _refused(checks: Mapping[str, Comparable]) -> _Answer:
    """No winner among things that are not shown to be the same; so they are not measured either."""
    sides = [f"{side.upper()}: {check.why_not()}" for side, check in checks.items() if not check.ok]
    reason = Absent(f"not compared, because they are not shown to compute the same; {'; '.join(sides)}")
    return _Answer(a=reason, b=reason, ratio=reason, verdict=reason, pairing="none", stopped=reason, checks=checks)


def _lines(answer: _Answer) -> Iterator[str]:
    from deepstone.cli.show import record_lines

    if isinstance(answer.ratio, Absent) and answer.a == answer.ratio == answer.b:
        yield answer.ratio.reason
        return
    for name, side in (("A", answer.a), ("B", answer.b)):
        if isinstance(side, Absent):
            yield f"{name}  {side.reason}"
            continue
        for number, line in enumerate(record_lines(side)):
            yield f"{name if number == 0 else ' '}  {line}"
    if answer.checks:
        layers = f"{answer.checks['a'].checked} layers checked against the float64 reference"
        yield f"both compute the same: {layers}; `deepstone verify` tells more"
    if isinstance(answer.ratio, Absent):
        yield answer.ratio.reason
        return
    yield (
        f"time per sample, A over B: {digits(answer.ratio.median)}    {answer.ratio.interval_in_words(digits)} "
        f"({answer.ratio.n} fresh pairs of processes, {answer.pairing}; {answer.stopped})"
    )
    yield f"verdict: {answer.verdict}"
