"""Shows what `deepstone tune` plans and what it found."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from deepstone.absent import Absent
from deepstone.cli.output import Column, Data, print_json, print_lines, print_table
from deepstone.cli.plans import answers_of
from deepstone.units import bytes_, digits, percent

if TYPE_CHECKING:
    from deepstone.results.record import Workload as RecordedWorkload
    from deepstone.results.tune import AxisRatio, Tuned, TunedSetup, TuneSpace
    from deepstone.setups.axes import Value
    from deepstone.tuner.wanted import Wanted
    from deepstone.tuner.workload import Workload

_BAR: Final = 12  # characters of the longest bar


def show_plan(workload: Workload, wanted: Wanted, command: Sequence[str], *, as_json: bool) -> None:
    from deepstone.tuner.answer import described, words_of
    from deepstone.tuner.shares import Shares
    from deepstone.tuner.starts import starts_of
    from deepstone.tuner.tune import timed_s_on

    space = workload.space
    plan, starts = described(space, Absent("nothing was measured")), starts_of(space, advised=workload.advised)
    timed_s = timed_s_on(space.facts.device)
    each_s = sum(workload.expected_s(point, timed_s) for point in starts) / len(starts)
    # The default must run, since all others are compared with it.
    can_run = answers_of([workload.job(workload.space.default)])[0]
    search_s = Shares(budget_s=wanted.budget_s, device=space.facts.device).search_s
    looks = 1 if space.count == 1 else max(1, round(search_s / each_s))
    if as_json:
        shown_starts: list[Mapping[str, Value]] = [space.given(point) for point in starts]
        data: dict[str, Data] = {"command": shlex.join(command), "space": plan, "starts": shown_starts, "looks": looks}
        print_json({**data, "can_run": can_run})
        return
    columns = [Column(heading="axis"), Column(heading="searched over", wraps=30)]
    print_table(columns, [(axis.name, " ".join(map(str, axis.values))) for axis in plan.axes])
    print_lines(["", _space_line(plan)])
    for excluded in plan.excluded[:8]:
        print_lines([f"  {excluded.setups} excluded: {excluded.reason}"], hang=4)
    print_lines([f"begins with: {'; '.join(words_of(space.given(point)) for point in starts)}"])
    then = f"then about {looks} looks in the search, by the start-up times of the frameworks"
    print_lines([then if space.count > 1 else "then nothing: the space has one setup"])
    fixed: dict[str, list[str]] = {}
    for each in plan.fixed:
        fixed.setdefault(each.why, []).append(each.name)
    print_lines([f"not searched: {', '.join(names)}: {why}" for why, names in fixed.items()])
    print_lines([f"can run: {can_run}"])


def show_tuned(answer: Tuned, workload: RecordedWorkload | None, *, files: Sequence[str] = ()) -> None:
    samples = workload.samples if workload is not None else "samples"
    if workload is not None:
        print_lines([f"model  {workload.model} · batch {workload.batch} · {workload.phase}"])
    print_lines(_lines(answer, samples), hang=7)
    said = answer.nothing_within_limits  # as the answer itself
    print_lines([f"doubt  {doubt}" for doubt in answer.doubts if doubt != said], hang=7)
    if files:
        print_lines([f"files  {' · '.join(files)}"])


def _lines(answer: Tuned, samples: str) -> Iterator[str]:
    from deepstone.tuner.answer import words_of

    launches = f"{answer.budget.launches} launch{'' if answer.budget.launches == 1 else 'es'}"
    noise = answer.space.noise
    of = "" if answer.is_of_speed else f" of {answer.sought}"
    quiet = "" if isinstance(noise, Absent) else f" · noise {percent(noise)}{of}"
    yield f"{_space_line(answer.space)}{quiet} · {launches}"
    rounds = f"{answer.rounds_in_words}, fresh processes"
    if answer.answer != "better":
        best = "none" if answer.why_none else "the default"
        yield f"best   {best}: {_why_default(answer)}"
        default = "the default: " if answer.why_none else ""
        if not isinstance(answer.default.samples_per_s, Absent):  # else the line above has the reason
            yield f"       {default}{_rates(answer.default, samples)}{f'; {rounds}' if answer.finals else ''}"
        for final in answer.finals:
            if answer.is_at_asked_batch(final.setup) and not final.is_default and not isinstance(final.ratio, Absent):
                yield f"       {answer.gain_in_words(final.ratio)}: {words_of(final.setup)}"
        yield from _batch_lines(answer, samples)
        return
    yield f"best   {words_of(answer.best.setup)}"
    gain = answer.ratio.reason if isinstance(answer.ratio, Absent) else answer.gain_in_words(answer.ratio)
    yield f"       {_rates(answer.best, samples)}, {gain}; {rounds}"
    for setup in answer.also_within:
        yield f"       also within 2 %: {words_of(setup)}"
    if not isinstance(answer.same, Absent):
        yield f"same   {answer.same.level}: {_sameness(answer)}"
    yield from _why_lines(answer)
    yield from _bound_lines(answer)
    yield from _batch_lines(answer, samples)


def _batch_lines(answer: Tuned, samples: str) -> Iterator[str]:
    """The winner at any batch, where the batch was searched."""
    from deepstone.tuner.answer import words_of

    free = answer.batch_free
    if not answer.has_free_batch:
        return
    if isinstance(free, Absent):
        yield f"batch  free: {free.reason}"
        return
    gain = "" if isinstance(free.ratio, Absent) else f", {answer.gain_in_words(free.ratio)}"
    yield f"batch  free: {words_of(free.best.setup)} gives {_rates(free.best, samples)}{gain}"
    fewer = f"{digits(free.updates_per_epoch_ratio)} times as many updates per epoch"
    yield f"       but it is other training: {fewer}, and convergence was not measured"


def _sameness(answer: Tuned) -> str:
    same = answer.same
    if isinstance(same, Absent):
        return same.reason
    of_best = next((each for each in same.setups if each.setup == answer.best.setup), None)
    said = "it is the training that was asked for" if of_best is None else of_best.in_words(same.level)
    return f"{said}. Given up: {answer.given_up}" if answer.given_up else said


def _why_default(answer: Tuned) -> str:
    if answer.why_none:
        return answer.why_none
    if answer.nothing_to_search:
        return answer.nothing_to_search
    if answer.budget.launches == 1:
        return "nothing else was tried"
    if answer.answer == "not separable":
        others = "other setups at this batch" if answer.has_free_batch else "other setups"
        return f"{others} may be better, but these finals do not show it; give more time or a quieter machine"
    return f"nothing better was found{' at this batch' if answer.has_free_batch else ''}"


def _rates(setup: TunedSetup, samples: str) -> str:
    speed, energy, peak = setup.samples_per_s, setup.samples_per_j, setup.peak_bytes
    if isinstance(speed, Absent):
        return speed.reason
    parts = [f"{digits(speed.median)} {samples}/s ({speed.span_in_words(digits)})"]
    parts += [] if isinstance(energy, Absent) else [f"{digits(energy.median)} {samples}/J"]
    parts += [] if isinstance(peak, Absent) else [bytes_(peak)]
    return " · ".join(parts)


def _why_lines(answer: Tuned) -> Iterator[str]:
    if not answer.why:
        return
    logs = [math.log(each.contribution.median) for each in answer.why]
    most = max(logs)
    width = max((len(each.axis) for each in answer.why), default=0)
    head = "why    "
    if not answer.is_of_speed:
        better = "; below 1x is less" if answer.objective.name == "memory" else ""
        yield f"{head}ratios of {answer.sought}{better}"
        head = "       "
    for each, log in zip(answer.why, logs, strict=True):
        is_gain = each.contribution.median > 1  # what a slowdown costs is no length of a gain
        drawn = "█" * round(_BAR * log / most) if is_gain else ""
        parts = f"added {_effect(answer, each.added)}, removed {_effect(answer, each.removed)}"
        share = digits(answer.as_told(each.contribution).median)
        yield f"{head}{each.axis:{width}}  {share:>5}x {drawn:{_BAR}}  {parts}"
        head = "       "
    if not isinstance(answer.together, Absent) and len(answer.why) > 1:
        yield f"{head}{'together':{width}}  {digits(answer.as_told(answer.together).median):>5}x"
    no_effect = ", ".join(each.axis for each in answer.no_effect) or "–"
    yield f"       no effect: {no_effect}    not decided: {', '.join(answer.not_decided) or '–'}"


def _bound_lines(answer: Tuned) -> Iterator[str]:
    if isinstance(answer.bound, Absent):
        return
    bound, parts = answer.bound, list[str]()
    if not isinstance(bound.power_limit_share, Absent):
        parts.append(f"power limit held {percent(bound.power_limit_share)} of the time")
    if not isinstance(bound.roofline_share, Absent):
        parts.append(f"{percent(bound.roofline_share)} of the layer-wise roofline")
    if not isinstance(bound.most_lost, Absent):
        parts += [f"most lost: {', '.join(each.in_words() for each in bound.most_lost)}"] if bound.most_lost else []
    elif isinstance(bound.roofline_share, Absent):
        parts.append(bound.roofline_share.reason)
    if parts:
        yield f"bound  {'; '.join(parts)}"


def _effect(answer: Tuned, effect: AxisRatio | Absent) -> str:
    if isinstance(effect, Absent):
        return f"– ({effect.reason})"
    ratio = answer.as_told(effect.ratio)
    return f"{digits(ratio.median)}x ({ratio.span_in_words(digits)}){' estimated' if effect.estimated else ''}"


def _space_line(space: TuneSpace) -> str:
    memory = sum(each.setups for each in space.excluded if "memory" in each.reason)
    rules = sum(each.setups for each in space.excluded) - memory
    parts = [f"{rules} excluded by rules"] if rules else []
    parts += [f"{memory} by memory"] if memory else []
    left = f" ({', '.join(parts)}{' of a sample' if space.is_estimate else ''})" if parts else ""
    return f"space  {space.in_words()}{left}"
