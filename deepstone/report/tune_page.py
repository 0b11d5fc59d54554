"""The content of the page about a search: the answer in a sentence, the proof, the reasons, and what is not known.

Everything here is text or figures, made from the finding. The template only puts it in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from deepstone.absent import Absent
from deepstone.report.figures import Drawable, make_figures
from deepstone.report.figures.captions import commands
from deepstone.report.figures.tune import content, setup_words
from deepstone.report.machines import MachineFacts, machines_of
from deepstone.results.findings import Finding
from deepstone.results.parts import Value
from deepstone.results.quantity import Quantity
from deepstone.results.tune import AxisRatio, SameSetup, Tuned, TunedSetup
from deepstone.units import bytes_, digits, percent, seconds

_MEANS: Final = {
    "exact": "only the order of operations may change",
    "close": "rounding may change too, by no more than a tenth of what other data change",
    "any": "anything may change; what was given up is told",
}
_WHAT: Final = {"throughput": "speed", "energy": "samples per joule", "memory": "memory saved"}


@dataclass(frozen=True, kw_only=True, slots=True)
class SameRow:
    """One checked setup in the table of the proof."""

    setup: str
    verdict: str
    cells: tuple[str, ...]  # gradient, update, loss
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TunePage:
    """`ratio`: the gain in a few signs, empty where there is none. `facts`: what stands under the answer, with labels.
    `best_file`: its lines, as `@FILE` reads it."""

    title: str
    model: str
    ratio: str
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


def tune_page(finding: Finding) -> TunePage:
    found = content(finding)
    samples = finding.workload.samples if finding.workload is not None else "images"
    return TunePage(
        title=f"{finding.model or 'model'}: the best setup",
        model=finding.model or "",
        ratio=_gain(found),
        answer=_answer(found, samples),
        advice=_advice(found, samples),
        how=_how(found),
        same_lead=_same_lead(found),
        same=() if isinstance(found.same, Absent) else tuple(_same_row(each) for each in found.same.setups),
        why=tuple(_why(found)),
        no_effect=tuple(_no_effect(found)),
        not_decided=tuple(found.not_decided),
        bound=tuple(_bound(found)),
        batch_free=_batch_free(found, samples),
        facts=tuple(_facts(found)),
        drawable=make_figures(finding, None),
        machines=machines_of((), {}, [finding]),
        doubts=tuple(found.doubts),
        commands=commands(finding),
        best_file=_best_file(found.best.setup),
    )


def _gain(found: Tuned) -> str:
    if not found.is_better or isinstance(found.ratio, Absent):
        return ""
    ratio = found.ratio.median
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def _times(ratio: Quantity) -> str:
    return f"{digits(ratio.median)}x ({ratio.span_in_words(digits)})"


def rates(setup: TunedSetup, samples: str) -> str:
    """Format what the finals measured of a setup."""
    speed, energy, peak = setup.samples_per_s, setup.samples_per_j, setup.peak_bytes
    parts = [speed.reason] if isinstance(speed, Absent) else [f"{digits(speed.median)} {samples}/s"]
    parts[0] += "" if isinstance(speed, Absent) else f" ({speed.span_in_words(digits)})"
    parts += [] if isinstance(energy, Absent) else [f"{digits(energy.median)} {samples}/J"]
    parts += [] if isinstance(peak, Absent) else [f"{bytes_(peak)} at most"]
    return ", ".join(parts)


def _answer(found: Tuned, samples: str) -> str:
    """The one sentence with which the page opens."""
    if not found.is_better or isinstance(found.ratio, Absent):
        stay = f"Stay with the default, {setup_words(found.default.setup)}: {rates(found.default, samples)}."
        if found.answer == "not separable":
            return f"{stay} Other setups may be better, but these finals do not show it."
        return f"{stay} Nothing better was shown."
    what = "" if found.objective.name == "throughput" else f" in {_WHAT[found.objective.name]}"
    gain = f"{_times(found.ratio)} the default{what}"
    given_up = f" Given up: {found.given_up}." if found.given_up else " Nothing was given up."
    return f"Use {setup_words(found.best.setup)}: {rates(found.best, samples)}, {gain}.{given_up}"


def _advice(found: Tuned, samples: str) -> str:
    if not found.is_better:
        return "More time or a quieter machine may decide it." if found.answer == "not separable" else ""
    within = [setup_words(setup) for setup in found.also_within]
    also = f" Within 2 % of it: {'; '.join(within)}." if within else ""
    return f"The default, {setup_words(found.default.setup)}, gives {rates(found.default, samples)}.{also}"


def _how(found: Tuned) -> str:
    rounds = f"{found.rounds} rounds of finals in fresh processes, in random order" if found.rounds else "no finals"
    noise = (
        ""
        if isinstance(found.space.noise, Absent)
        else f"; launches of one setup differ by {percent(found.space.noise)}"
    )
    return f"{rounds}{noise}"


def _same_lead(found: Tuned) -> str:
    same = found.same
    if isinstance(same, Absent):
        return same.reason[0].upper() + same.reason[1:] + "."
    best = next((each for each in same.setups if each.setup == found.best.setup), None)
    level = f"Level {same.level}: {_MEANS[same.level]}."
    if best is None:
        return f"{level} The best setup was not compared with the default."
    return f"{level} The best setup: {best.in_words()}."


def _same_row(each: SameSetup) -> SameRow:
    measures = (each.gradient, each.update, each.loss)
    cells = tuple("" if isinstance(measure, Absent) else measure.in_words() for measure in measures)
    # What the cells say is not said again.
    shown = [cell for cell in cells if cell]
    notes = [part for part in each.why_not.split("; ") if part and not any(cell in part for cell in shown)]
    notes += [f"given up: {each.given_up}"] if each.given_up else []
    if each.rounding is not None:
        notes.append(f"rounding the default's weights alone changes gradients by {percent(each.rounding)} of that")
    if each.batch is not None and each.steps is not None:
        notes.append(f"{each.steps} steps, batch {each.batch}")
    return SameRow(setup=setup_words(each.setup), verdict=each.verdict, cells=cells, note="; ".join(notes))


def _why(found: Tuned) -> Iterator[str]:
    for each in found.why:
        yield (
            f"{each.axis}={each.best} instead of {each.default}: {_times(each.contribution)}; "
            f"added to the default {_effect(each.added)}, removed from the best {_effect(each.removed)}."
        )
    if found.why and isinstance(found.together, Quantity):
        yield f"Together, beyond these parts: {_times(found.together)}."


def _effect(effect: AxisRatio | Absent) -> str:
    if isinstance(effect, Absent):
        return f"not known ({effect.reason})"
    return f"{_times(effect.ratio)}{', estimated' if effect.estimated else ''}"


def _no_effect(found: Tuned) -> Iterator[str]:
    for each in found.no_effect:
        ratio = each.ratio.reason if isinstance(each.ratio, Absent) else _times(each.ratio)
        yield f"{each.axis}={each.value}: the best of its other values gives {ratio}"


def _bound(found: Tuned) -> Iterator[tuple[str, str]]:
    bound = found.bound
    if isinstance(bound, Absent):
        return
    for label, share in (
        ("share of the roofline", bound.roofline_share),
        ("share of the power limit", bound.power_limit_share),
    ):
        yield label, share.reason if isinstance(share, Absent) else percent(share)
    lost = bound.most_lost
    if isinstance(lost, Absent):
        yield "lost beyond the bound", lost.reason
    elif lost:
        yield "lost beyond the bound", ", ".join(f"{each.what} {seconds(each.lost_s)}" for each in lost)


def _batch_free(found: Tuned, samples: str) -> str:
    free = found.batch_free
    if isinstance(free, Absent):
        return ""
    gain = "" if isinstance(free.ratio, Absent) else f", {_times(free.ratio)} the default"
    return (
        f"With a free batch, {setup_words(free.best.setup)} gives {rates(free.best, samples)}{gain}. But it is other "
        f"training: {digits(free.updates_per_epoch_ratio)} times as many updates for as many samples, and convergence "
        "was not measured."
    )


def _facts(found: Tuned) -> Iterator[tuple[str, str]]:
    space, budget = found.space, found.budget
    about = "about " if space.is_estimate else ""
    yield (
        "space",
        f"{about}{space.setups:,} setups of {len(space.axes)} axes: {', '.join(axis.name for axis in space.axes)}",
    )
    if space.excluded:
        most = sorted(space.excluded, key=lambda each: -each.setups)[:3]
        yield "excluded", "; ".join(f"{each.setups:,}: {each.reason}" for each in most)
    calls = f" in {budget.calls} calls" if budget.calls > 1 else ""
    yield "time", f"{seconds(budget.spent_s)} of {seconds(budget.asked_s)} asked for{calls}, {budget.launches} launches"
    yield "objective", _WHAT[found.objective.name] if found.objective.slowdown is None else _limited(found)
    for limit in found.limits:
        yield f"limit of {limit.name}", bytes_(int(limit.most)) if limit.name == "memory" else f"{limit.most:g} W"


def _limited(found: Tuned) -> str:
    return f"{_WHAT[found.objective.name]}, at most {found.objective.slowdown:g} times slower than the fastest"


def _best_file(setup: Mapping[str, Value]) -> tuple[str, ...]:
    lines = [f"{name} = {value}" if isinstance(value, int) else f'{name} = "{value}"' for name, value in setup.items()]
    return ("[setup]", *lines)
