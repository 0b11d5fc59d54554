"""`deepstone compare`: setups interleaved in one run, and a verdict only where the interval supports one."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from msgspec import Struct

from deepstone.absent import Absent, as_json
from deepstone.cli.declare import examples, percent, seconds
from deepstone.cli.help import HelpfulCommand
from deepstone.cli.jobs import image_size, image_words, noise_at_start, quiet_machine, refuse_opaque
from deepstone.cli.options import Axes, Image, MeasuringOptions, Model, OutputOptions
from deepstone.cli.output import note, print_json, print_lines
from deepstone.cli.plans import Planned, expected_s, print_setups
from deepstone.cli.progress import progress_bar
from deepstone.cli.stopped import Stopped
from deepstone.cli.stores import store_folder
from deepstone.errors import InternalError, UsageError
from deepstone.setups.request import changed, expand_files
from deepstone.units import digits
from deepstone.units import seconds as in_seconds

if TYPE_CHECKING:
    from deepstone.measure.effort import Effort
    from deepstone.measure.sequential import SidesRatio
    from deepstone.results.parts import Json as JsonValue
    from deepstone.results.quantity import Quantity
    from deepstone.results.record import Draft, Record
    from deepstone.results.sameness import AllSidesChecked, Comparable, SidesChecked
    from deepstone.runner.job import Job
    from deepstone.runner.measurement import OnProgress
    from deepstone.runner.quiet import QuietMachine
    from deepstone.setups.axes import Value
    from deepstone.setups.request import Choices
    from deepstone.store.store import Store

EXAMPLES = examples(
    "deepstone compare alexnet-owt batch=16 engine=onednn -- engine=native",
    "deepstone compare cifarnet batch=32 -- layout=nhwc --json",
    "deepstone compare cifarnet batch=32 -- batch=64 -- batch=128",
    before="Before the first -- stands A, which holds for all sides; what follows overrides it for B, C, and so on.",
)

OTHER_SIDES = "deepstone.compare.others"
_WORK: Final = ("device", "batch", "phase", "seed", "dropout", "input_grad", "input")
_NAMES: Final = string.ascii_uppercase  # of sides
_WIDE: Final = "wider than a factor of two; use a quieter machine, or more --pairs"


class SidesCommand(HelpfulCommand):
    """Keeps the setups that follow each `--` apart; options may stand on any side of it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            split = args.index("--")
            setups, options = self._sorted(args[split + 1 :])
            ctx.meta[OTHER_SIDES] = setups
            args = args[:split] + options
        return super().parse_args(ctx, args)

    def _sorted(self, words: Sequence[str]) -> tuple[list[list[str]], list[str]]:
        """What are the setups, and what are options with their values."""
        setups: list[list[str]] = [[]]
        options: list[str] = []
        rest = iter(words)
        for word in rest:
            if word == "--":
                setups.append([])
            elif not word.startswith("-"):
                setups[-1].append(word)
            else:
                options.append(word)
                if self._takes_value(word):
                    options += [value for value in (next(rest, None),) if value is not None]
        return setups, options

    def _takes_value(self, word: str) -> bool:
        options: list[Any] = [parameter for parameter in self.params if word in parameter.opts]
        return any(not option.is_flag for option in options)


def compare(
    ctx: typer.Context,
    model: Model,
    axes: Axes = None,
    image: Image = None,
    pairs: Annotated[
        int | None,
        typer.Option(
            "--pairs",
            help="So many fresh pairs of processes, or groups of more than two.",
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
    *,
    measuring: MeasuringOptions,
    out: OutputOptions,
) -> None:
    """Compare setups, A -- B: the ratio of their times per sample with its interval, and a verdict. Of more than two,
    A -- B -- C, their ranking.

    All run in fresh groups of processes, in turns: as many groups as it takes, 3 to 12. A winner is named only when the
    whole interval lies beyond 2 %.
    """
    words, others = _with_work_of_files(list(axes or []), _other_sides(ctx))
    begin = noise_at_start()
    options = ["--pairs", str(pairs)] if pairs is not None else []
    options += changed(("--target", target, 2.0), ("--budget", budget, 20.0), ("--timeout", measuring.timeout, 900.0))
    jobs = _jobs(model, words, others, [*image_words(image), *options], measuring.timeout, image_size(image))
    from deepstone.measure.effort import Effort

    effort = Effort(target_share=target / 100, budget_s=budget, timeout_s=measuring.timeout)
    if out.dry_run:
        sides = [Planned(name=name, jobs=[job]) for name, job in zip(_NAMES, jobs, strict=False)]
        print_setups(sides, "side", _expected(jobs, effort, pairs), as_json=out.json)
        return
    quiet = quiet_machine(begin, measuring.wait_until_quiet)
    answer = _measured(jobs, effort, pairs, store_folder(out.store), quiet)
    if out.json:
        print_json(answer)
    elif len(jobs) == 2 or not answer.is_whole:
        print_lines(_lines(answer), hang=4)
    else:
        _show_ranking(answer)
    if not answer.is_whole:
        raise typer.Exit(1)


def _other_sides(ctx: typer.Context) -> list[list[str]]:
    """The words of B, C and so on."""
    others: list[list[str]] = ctx.meta.get(OTHER_SIDES, [])
    if not others:
        raise UsageError("compare needs two setups: MODEL A -- B, as in `compare alexnet-owt batch=16 -- layout=nhwc`")
    if not all(others):
        raise UsageError("nothing follows a --; say what is different there, as in `-- layout=nhwc`")
    if len(others) >= len(_NAMES):
        raise UsageError(f"compare takes at most {len(_NAMES)} setups, and {len(others) + 1} are given")
    return others


def _with_work_of_files(words: list[str], others: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """The words of A and of the other sides, without files. All sides do the work that a file asks for, so that a setup
    of `tune`, which has the batch that it was found at, is compared with the default at the same batch. What stands
    before the first -- replaces it; what follows beside the file holds for its side alone."""
    given, expanded = list(words), list[list[str]]()
    for side in others:
        named = {word.partition("=")[0] for word in side if not word.startswith("@")}
        known = {word.partition("=")[0] for word in given}
        of_files = [word for word in side if word.startswith("@")]
        work = [word for word in expand_files(of_files) if _is_work(word) and word.partition("=")[0] not in named]
        shared = [word for word in work if word.partition("=")[0] not in known]
        given += shared
        if shared:
            note(f"all sides have {' '.join(shared)}, as {' '.join(of_files)} says")
        expanded.append([word for word in expand_files(side) if word not in work] or shared)
    return given, expanded


def _is_work(word: str) -> bool:
    """Whether it says what is trained, and not how; of optimizers, the fused update is a way to run."""
    name, _, value = word.partition("=")
    return name in _WORK or (name == "optimizer" and not value.endswith("-fused"))


def _jobs(
    model: str,
    words: list[str],
    others: Sequence[list[str]],
    options: list[str],
    timeout_s: float,
    image: tuple[int, int, int] | None,
) -> list[Job]:
    from deepstone.exchange.load import load_model
    from deepstone.setups.request import complete, parse_words

    given = _single(parse_words(words))
    sides = [given, *({**given, **_single(parse_words(other))} for other in others)]
    frameworks = [side["framework"] for side in sides if "framework" in side]
    loaded = load_model(model, frameworks=frameworks, timeout_s=timeout_s, image=image)
    # Only now what is slow to import: a word that is wrong is told at once.
    from deepstone.runner.job import Machine
    from deepstone.runner.new_job import make_job

    machine = Machine.here()
    command = ("deepstone", "compare", model, *words, *options, *(word for other in others for word in ("--", *other)))
    jobs = [make_job(loaded, complete(side), machine, command) for side in sides]
    if not _is_one_framework(jobs):
        refuse_opaque(loaded.graph, "compare across frameworks")
    return jobs


def _is_one_framework(jobs: Sequence[Job]) -> bool:
    return len({job.environment.sha for job in jobs}) == 1


def _single(choices: Choices) -> dict[str, Value]:
    for name, values in choices.items():
        if len(values) > 1:
            raise UsageError(f"{name}: compare takes one value on each side; put the other after --")
    return {name: values[0] for name, values in choices.items()}


class _Answer(Struct, frozen=True, kw_only=True):
    """`ratios` are of times per sample, of every two sides. Where a side or the ratios are absent, they say why."""

    sides: Sequence[Record | Absent]
    ratios: Sequence[SidesRatio] | Absent
    ranks: Sequence[Sequence[int]] = ()
    pairing: str
    stopped: str | Absent
    checks: Sequence[Comparable]
    established: str = ""  # of the sameness of a module of one's own

    @property
    def is_whole(self) -> bool:
        return not any(isinstance(part, Absent) for part in (*self.sides, self.ratios))

    def to_json(self) -> dict[str, JsonValue]:
        """Two sides are `a` and `b` with one `ratio`; more are a list, with a ratio of every two."""
        how = {"pairing": self.pairing, "stopped": self.stopped}
        if len(self.sides) > 2:
            ratios = self.ratios if isinstance(self.ratios, Absent) else [_ratio_json(ratio) for ratio in self.ratios]
            ranks = [[_NAMES[side].lower() for side in rank] for rank in self.ranks]
            return as_json({"sides": self.sides, "ratios": ratios, "ranks": ranks, **how, "sameness": self._sameness()})
        a, b = self.sides
        ratio, verdict = self.ratios, self.ratios
        if not isinstance(self.ratios, Absent):
            ratio, verdict = self.ratios[0].time_ratio, self.ratios[0].verdict
        return as_json({"a": a, "b": b, "ratio": ratio, "verdict": verdict, **how, "sameness": self._sameness()})

    def _sameness(self) -> SidesChecked | AllSidesChecked | Absent:
        from deepstone.results.sameness import AllSidesChecked, SidesChecked

        if not self.checks:
            return Absent(
                self.established or f"{'both' if len(self.sides) == 2 else 'all'} sides run the same framework"
            )
        ok = all(check.ok for check in self.checks)
        if len(self.checks) > 2:
            return AllSidesChecked(ok=ok, sides=list(self.checks))
        return SidesChecked(ok=ok, a=self.checks[0], b=self.checks[1])


def _ratio_json(ratio: SidesRatio) -> dict[str, JsonValue]:
    a, b = _NAMES[ratio.a].lower(), _NAMES[ratio.b].lower()
    return {"a": a, "b": b, **ratio.time_ratio.to_json(), "verdict": ratio.verdict}


def _measured(jobs: Sequence[Job], effort: Effort, pairs: int | None, store_path: Path, quiet: QuietMachine) -> _Answer:
    """Compare, and store what was measured."""
    from deepstone.runner.compare import compare_jobs
    from deepstone.runner.job import title
    from deepstone.store.store import Store

    store = Store.open(store_path)
    store.probe()
    with progress_bar(1) as bar:
        bar.begin(title(jobs[0]))
        quiet.before(jobs, bar.say)
        checks = _checks(jobs, effort, bar.advance)
        wrong = {name: each.why_not() for name, each in zip(_NAMES, checks, strict=False) if not each.ok}
        wrong |= _wrong_in_parallel(jobs, effort, bar.advance)
        if wrong:
            return _refused(len(jobs), wrong, checks)
        bar.say(_expected(jobs, effort, pairs))
        kept: list[Record] = []
        try:
            comparison = compare_jobs(
                jobs,
                effort,
                groups=pairs,
                on_progress=bar.advance,
                on_group=_left_teller(bar.say, pairs, "pair" if len(jobs) == 2 else "group"),
                checks=checks,
                on_cut_off=lambda drafts: kept.extend(map(store.add, drafts)),
            )
        except Stopped as stopped:
            stopped.kept = "what was measured is stored, without a verdict" if kept else "nothing was measured yet"
            raise
    sides = [_stored(store, draft) for draft in comparison.sides]
    reason = Absent(
        f"no verdict: {comparison.refusal}" if comparison.refusal else "a side failed, so there is nothing to compare"
    )
    return _Answer(
        sides=sides,
        ratios=comparison.ratios or reason,
        ranks=comparison.ranks,
        pairing=comparison.pairing,
        stopped=comparison.stopped or reason,
        checks=checks,
        established=comparison.established,
    )


def _expected(jobs: Sequence[Job], effort: Effort, pairs: int | None) -> str:
    """Told before anything starts: how long it takes at most, as far as one can know."""
    from deepstone.measure.sequential import LOOKS, MOST_GROUPS
    from deepstone.studies.durations import duration

    sides = len(jobs)
    count, most = (f"{LOOKS[0]} to {MOST_GROUPS}", MOST_GROUPS) if pairs is None else (f"{pairs}", pairs)
    groups = "pairs of processes" if sides == 2 else f"groups of {sides} processes"
    timed = in_seconds(sides * effort.budget_s)
    most_s = sum(effort.budget_s + most * expected_s(job, effort.budget_s / most) for job in jobs)
    return (
        f"compares in {count} fresh {groups}: at most {sides * most} launches, {timed} of timed steps and as much for "
        f"warm-up, in all about {duration(most_s)}"
    )


def _left_teller(say: Callable[[str], None], pairs: int | None, group: str) -> Callable[[float], None]:
    """Tells, after the first pair, how long the others may take."""
    from deepstone.measure.sequential import MOST_GROUPS

    left, told = (pairs or MOST_GROUPS) - 1, list[float]()

    def tell(took_s: float) -> None:
        if not told and left:
            say(f"the first {group} took {in_seconds(took_s)}; at most {left} more, {in_seconds(left * took_s)}")
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


def _checks(jobs: Sequence[Job], effort: Effort, on_progress: OnProgress) -> list[Comparable]:
    """Across frameworks no speed is compared before all are shown to compute the same. Nothing within one."""
    if _is_one_framework(jobs):
        return []
    from deepstone.checks.comparable import comparable

    found = comparable(dict(zip(_NAMES, jobs, strict=False)), timeout_s=effort.timeout_s, on_progress=on_progress)
    return list(found.values())


def _wrong_in_parallel(jobs: Sequence[Job], effort: Effort, on_progress: OnProgress) -> dict[str, str]:
    """Of the sides with several processes, those that are not shown to train as one process does, and why not."""
    from deepstone.checks.parallel import as_checked, check_scheme
    from deepstone.setups.axes import FAKE
    from deepstone.setups.world import World

    found: dict[str, str] = {}
    for name, job in zip(_NAMES, jobs, strict=False):
        if World.of(job.request).is_parallel and not job.broken_rule and job.environment.framework != FAKE:
            on_progress(f"does {name} train as one process does?", 0.0)
            scheme = check_scheme(as_checked(job), timeout_s=effort.timeout_s, beside=False)
            found |= {name: scheme.why_not()} if scheme.is_wrong else {}
    return found


def _refused(sides: int, wrong: Mapping[str, str], checks: Sequence[Comparable]) -> _Answer:
    """No winner among things that are not shown to be the same; so they are not measured either."""
    told = "; ".join(f"{name}: {why}" for name, why in wrong.items())
    reason = Absent(f"not compared, because they are not shown to compute the same; {told}")
    return _Answer(sides=[reason] * sides, ratios=reason, pairing="none", stopped=reason, checks=checks)


def _lines(answer: _Answer) -> Iterator[str]:
    """Side by side, and the verdict on two."""
    from deepstone.cli.show import record_lines

    if isinstance(answer.ratios, Absent) and all(side == answer.ratios for side in answer.sides):
        yield answer.ratios.reason
        return
    for name, side in zip(_NAMES, answer.sides, strict=False):
        if isinstance(side, Absent):
            yield f"{name}  {side.reason}"
            continue
        for number, line in enumerate(record_lines(side)):
            yield f"{name if number == 0 else ' '}  {line}"
    yield from _checked_in_words(answer)
    if isinstance(answer.ratios, Absent):
        yield answer.ratios.reason
        return
    ratio = answer.ratios[0].time_ratio
    yield (
        f"time per sample, A over B: {digits(ratio.median)}    {ratio.interval_in_words(digits)} "
        f"({ratio.n} fresh pairs of processes, {answer.pairing}; {answer.stopped})"
    )
    yield f"verdict: {answer.ratios[0].verdict}"
    if _is_known_in_direction(answer.ratios[0]):
        yield f"which side is faster is known, not by how much: the interval is {_WIDE}"


def _checked_in_words(answer: _Answer) -> Iterator[str]:
    checks = answer.checks
    if answer.established:
        yield f"sameness: {answer.established}"
    if checks:
        who = "both" if len(checks) == 2 else "all"
        layers = f"{checks[0].checked} layers checked against the float64 reference"
        yield f"{who} compute the same: {layers}; `deepstone verify` tells more"


def _show_ranking(answer: _Answer) -> None:
    """A line for every side, the fastest first, with its time over that of the fastest."""
    from deepstone.cli.show import show_table

    assert not isinstance(answer.ratios, Absent)
    first = answer.ranks[0][0]
    ranked = [(place, side) for place, rank in enumerate(answer.ranks, start=1) for side in rank]
    records = {side: record for _, side in ranked if not isinstance(record := answer.sides[side], Absent)}
    ratios = {side: _over(first, side, answer.ratios) for _, side in ranked if side != first}
    show_table(
        list(records.values()),
        first=("rank", {records[side].id: f"{place}. {_NAMES[side]}" for place, side in ranked}),
        extra=(
            f"time per sample\nover {_NAMES[first]}'s",
            {records[side].id: _with_interval(ratios[side]) if side in ratios else "1" for _, side in ranked},
        ),
    )
    print_lines(["", *_ranking_lines(answer)])


def _is_known_in_direction(ratio: SidesRatio) -> bool:
    """And not in size."""
    return ratio.winner is not None and ratio.is_wide


def _over(first: int, side: int, ratios: Sequence[SidesRatio]) -> Quantity:
    """Time of a side over that of the fastest."""
    found = next(ratio for ratio in ratios if {ratio.a, ratio.b} == {first, side})
    return found.time_ratio if found.a == side else found.time_ratio.inverse(1)


def _with_interval(ratio: Quantity) -> str:
    return f"{digits(ratio.median)} ({digits(ratio.low)} – {digits(ratio.high)})" if ratio.has_interval else "–"


def _ranking_lines(answer: _Answer) -> Iterator[str]:
    yield from _checked_in_words(answer)
    assert not isinstance(answer.ratios, Absent)
    groups = answer.ratios[0].time_ratio.n
    yield f"{groups} fresh groups of processes, {answer.pairing}; {answer.stopped}"
    ranks = [" and ".join(_NAMES[side] for side in rank) for rank in answer.ranks]
    yield f"verdict: {ranks[0]} fastest{''.join(f', then {rank}' for rank in ranks[1:])}"
    if any(len(rank) > 1 for rank in answer.ranks):
        yield "no difference is shown between the first of a rank and the others of that rank"
    if wide := [f"{_NAMES[each.a]} over {_NAMES[each.b]}" for each in answer.ratios if _is_known_in_direction(each)]:
        yield f"which side is faster is known, not by how much, of {', '.join(wide)}: the interval is {_WIDE}"
