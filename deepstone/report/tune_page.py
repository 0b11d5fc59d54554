"""The content of the page about a search: the answer in a sentence, the proof, the reasons, and what is not known.

Everything here is text or figures, made from the finding. The template only puts it in its place.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.report.figures import Drawable, make_figures
from deepstone.report.figures.captions import commands
from deepstone.report.figures.tune import content, setup_words
from deepstone.report.machines import MachineFacts, machines_of
from deepstone.report.search import rates, samples_of, search_of, times
from deepstone.results.findings import Finding
from deepstone.results.parts import Value
from deepstone.results.quantity import Quantity
from deepstone.results.tune import AxisRatio, SameLevel, SameSetup, Tuned
from deepstone.units import bytes_, digits, percent, seconds


class SameRow(Struct, frozen=True, kw_only=True):
    """One checked setup in the table of the proof."""

    setup: str
    verdict: str
    cells: tuple[str, ...]  # gradient, update, loss
    note: str


class TunePage(Struct, frozen=True, kw_only=True):
    """`ratio`: the gain in a few signs, empty where there is none; `ratio_of`: of what, empty where it is speed.
    `facts`: what stands under the answer, with labels. `best_file`: its lines, as `@FILE` reads it; none where the
    default stays. `compare`: the command that checks it."""

    title: str
    model: str
    ratio: str
    ratio_of: str
    answer: str
    advice: str
    how: str
    same_lead: str
    same: tuple[SameRow, ...]
    why: tuple[str, ...]
    no_effect: tuple[str, ...]
    not_decided: tuple[str, ...]
    bound: tuple[tuple[str, str], ...]
    batch_free: str
    facts: tuple[tuple[str, str], ...]
    drawable: Drawable
    machines: tuple[MachineFacts, ...]
    doubts: tuple[str, ...]
    commands: tuple[str, ...]
    best_file: tuple[str, ...]
    compare: str


def tune_page(finding: Finding) -> TunePage:
    found, search = content(finding), search_of(finding)
    samples = samples_of(finding)
    return TunePage(
        title=f"{search.model or 'model'}: the best setup",
        model=search.model,
        ratio=search.times,
        ratio_of="" if found.is_of_speed else f"the {found.sought}",
        answer=search.answer,
        advice=search.advice,
        how=_how(found),
        same_lead=search.same,
        same=_same_rows(found),
        why=tuple(_why(found)),
        no_effect=tuple(_no_effect(found)),
        not_decided=tuple(found.not_decided),
        bound=tuple(_bound(found)),
        batch_free=_batch_free(found, samples),
        facts=tuple(_facts(found, samples)),
        drawable=make_figures(finding, None),
        machines=machines_of((), {}, [finding]),
        doubts=tuple(found.doubts),
        commands=commands(finding),
        best_file=_best_file(found.best.setup) if found.is_better else (),
        compare=_compare(finding),
    )


def _compare(finding: Finding) -> str:
    """The command that compares the best setup with the default: with the model as the user gave it, which may be a
    file, and the size of its images."""
    given = list(finding.command or ())
    model = given[2] if given[1:2] == ["tune"] and len(given) > 2 else finding.model or ""
    image = given[given.index("--input") :][:2] if "--input" in given else []
    return f"{shlex.join(['deepstone', 'compare', model, *image])} -- @best.toml"


def _how(found: Tuned) -> str:
    rounds = f"finals in fresh processes, in random order: {found.rounds_in_words}" if found.finals else "no finals"
    of = "" if found.is_of_speed else f" in {found.sought}"
    noise = (
        ""
        if isinstance(found.space.noise, Absent)
        else f"; launches of one setup differ by {percent(found.space.noise)}{of}"
    )
    return f"{rounds}{noise}"


def _same_rows(found: Tuned) -> tuple[SameRow, ...]:
    same = found.same
    if isinstance(same, Absent):
        return ()
    told = next((each.rounding for each in same.setups if each.setup == found.best.setup), None)
    return tuple(_same_row(each, same.level, told) for each in same.setups)


def _same_row(each: SameSetup, level: SameLevel, told_rounding: float | None) -> SameRow:
    """`told_rounding`: what rounding does, as the text above the table says it."""
    measures = (each.gradient, each.update, each.loss)
    cells = tuple("" if isinstance(measure, Absent) else measure.in_words(level) for measure in measures)
    # What the cells say is not said again.
    shown = [cell for cell in cells if cell]
    notes = [part for part in each.why_not.split("; ") if part and not any(cell in part for cell in shown)]
    notes += [f"given up: {each.given_up}"] if each.given_up else []
    if each.rounding is not None and each.rounding != told_rounding:
        notes.append(f"rounding the default's weights alone changes gradients by {percent(each.rounding)} of that")
    if each.batch is not None and each.steps is not None:
        notes.append(f"for want of time {each.reduced}" if each.reduced else f"{each.steps} steps, batch {each.batch}")
    return SameRow(setup=setup_words(each.setup), verdict=each.verdict, cells=cells, note="; ".join(notes))


def _why(found: Tuned) -> Iterator[str]:
    of = "" if found.is_of_speed else f" the {found.sought}"
    for each in found.why:
        yield (
            f"{each.axis}={each.best} instead of {each.default}: {times(found, each.contribution)}{of}; "
            f"added to the default {_effect(found, each.added)}, removed from the best {_effect(found, each.removed)}."
        )
    if len(found.why) > 1 and isinstance(found.together, Quantity):
        yield f"Together, beyond these parts: {times(found, found.together)}{of}."


def _effect(found: Tuned, effect: AxisRatio | Absent) -> str:
    if isinstance(effect, Absent):
        return f"not known ({effect.reason})"
    return f"{times(found, effect.ratio)}{', estimated' if effect.estimated else ''}"


def _no_effect(found: Tuned) -> Iterator[str]:
    for each in found.no_effect:
        ratio = each.ratio.reason if isinstance(each.ratio, Absent) else times(found, each.ratio)
        yield f"{each.axis}={each.value}: the best of its other values gives {ratio}"


def _bound(found: Tuned) -> Iterator[tuple[str, str]]:
    bound = found.bound
    if isinstance(bound, Absent):
        return
    share = bound.roofline_share
    of = "of what its layers allow at most (roofline)"
    yield "speed reached", share.reason if isinstance(share, Absent) else f"{percent(share)} {of}"
    if not isinstance(bound.power_limit_share, Absent):  # else it is a CPU, or nothing tells
        held = f"{percent(bound.power_limit_share)} of the time, since the GPU was at its power limit"
        yield "held back by power", held
    lost, label = bound.most_lost, "most time lost in"
    if isinstance(lost, Absent):
        if lost != share:  # one reason is told once
            yield label, lost.reason
    elif lost:
        more = "" if bound.layers is None else f"; `deepstone results show {bound.layers}` has all layers"
        yield label, f"{', '.join(each.in_words() for each in lost)}; beyond what the ceilings allow{more}"


def _batch_free(found: Tuned, samples: str) -> str:
    free = found.batch_free
    if isinstance(free, Absent):
        return f"With a free batch: {free.reason}." if found.has_free_batch else ""
    gain = "" if isinstance(free.ratio, Absent) else f", {found.gain_in_words(free.ratio)}"
    return (
        f"With a free batch, {setup_words(free.best.setup)} gives {rates(free.best, samples)}{gain}. But it is other "
        f"training: {digits(free.updates_per_epoch_ratio)} times as many updates for as many samples, and convergence "
        "was not measured."
    )


def _facts(found: Tuned, samples: str) -> Iterator[tuple[str, str]]:
    space, budget = found.space, found.budget
    yield "looked for", _sought(found, samples)
    yield (
        "searched",
        f"{space.in_words()}: {', '.join(axis.name for axis in space.axes)}",
    )
    if space.excluded:
        most = sorted(space.excluded, key=lambda each: -each.setups)[:3]
        yield "left out", "; ".join(f"{each.setups:,}: {each.reason}" for each in most)
    calls = f" in {budget.calls} calls" if budget.calls > 1 else ""
    yield "time", f"{seconds(budget.spent_s)} of {seconds(budget.asked_s)} asked for{calls}, {budget.launches} launches"
    for limit in found.limits:
        most = bytes_(int(limit.most)) if limit.name == "memory" else f"{limit.most:g} W"
        yield f"{limit.name} allowed", f"{most} at most"


def _sought(found: Tuned, samples: str) -> str:
    what = {
        "throughput": f"the most {samples} per second",
        "energy": f"the most {samples} per joule",
        "memory": "the least memory",
    }[found.objective.name]
    slowdown = found.objective.slowdown
    return what if slowdown is None else f"{what}, at most {slowdown:g} times slower than the fastest"


def _best_file(setup: Mapping[str, Value]) -> tuple[str, ...]:
    lines = [f"{name} = {value}" if isinstance(value, int) else f'{name} = "{value}"' for name, value in setup.items()]
    return ("[setup]", *lines)
