"""Writes the code of a setup: a short training script that does what Deepstone did, in the framework's own idiom.

The script stands alone: no code of Deepstone. It has the network as plain code (plan.py finds its blocks, body.py
writes what they compute), runs on random data, and prints its losses and its rate. What it cannot do as measured is
refused, never left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Final

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.errors import DeepstoneError, UsageError, nearest, shown
from deepstone.results.quantity import Quantity
from deepstone.results.tune import Finalist, Look, Tuned
from deepstone.runner.job import Job
from deepstone.setups.axes import JAX, TENSORFLOW, TORCH, Value
from deepstone.tuner.answer import words_of
from deepstone.tuner.emit.for_jax import jax_script
from deepstone.tuner.emit.for_tensorflow import tensorflow_script
from deepstone.tuner.emit.for_torch import torch_script
from deepstone.tuner.wanted import Wanted
from deepstone.units import digits

_WRITERS: Final[Mapping[str, Callable[[Job, str], str]]] = {
    TORCH: torch_script,
    JAX: jax_script,
    TENSORFLOW: tensorflow_script,
}
EMITTED: Final = tuple(_WRITERS)


def check_emitted(framework: str) -> str:
    """Return the framework, or raise UsageError if there is no script for it."""
    if framework.lower() not in _WRITERS:
        raise UsageError(f"--emit {shown(framework)}: no code for it; {nearest(framework, EMITTED)}")
    return framework.lower()


class Chosen(Struct, frozen=True, kw_only=True):
    """The setup whose code is written, and what is known of it, in a sentence."""

    setup: Mapping[str, Value]
    found: str


class _Seen(Struct, frozen=True, kw_only=True):
    """What is known of a setup. `value`: the middle of what is sought, larger is better; `speed`: of speed; both by its
    finals, if it has any. `final`: its place in the finals, if it was measured there."""

    setup: Mapping[str, Value]
    value: float
    speed: float
    looks: int
    final: Finalist | None

    @property
    def rank(self) -> tuple[int, float]:
        """The finals say more than a look, which may be the luckiest of many, and a proof says more than none."""
        if self.final is None:
            return 0, self.value
        return (1, self.value) if isinstance(self.final.ratio, Absent) else (2, self.final.ratio.median)


def chosen_setup(
    answer: Tuned, framework: str, framework_of: Callable[[Mapping[str, Value]], str], samples: str
) -> Chosen:
    """The best setup, if it is in this framework; else the best of those in it that may win the finals, of the other
    finalists, or of all looks; at the batch that was asked for, within the limits, and none that is shown to be other
    training. Raises UsageError if none of them ran, DeepstoneError if the answer is that nothing keeps the limits."""
    if answer.nothing_within_limits:
        raise DeepstoneError(answer.nothing_within_limits)
    best, speed = answer.best.setup, answer.best.samples_per_s
    if framework_of(best) == framework and isinstance(speed, Quantity):
        return Chosen(setup=best, found=_measured(answer, speed, answer.ratio, samples))
    there = [seen for seen in _within_limits(answer) if framework_of(seen.setup) == framework]
    if not there:
        within = " within the limits" if answer.limits else ""
        raise UsageError(f"--emit {framework}: no setup in {framework} was measured{within}; give it a larger --budget")
    chosen = max(there, key=lambda seen: seen.rank)
    return Chosen(setup=chosen.setup, found=_said(answer, chosen, samples))


def _within_limits(answer: Tuned) -> list[_Seen]:
    """What ran at the batch that was asked for."""
    wanted = Wanted(objective=answer.objective, limits=tuple(answer.limits))
    finals = {words_of(final.setup): final for final in answer.finals if isinstance(final.samples_per_s, Quantity)}
    by_setup: dict[str, list[Look]] = {}
    for look in answer.looks:
        if answer.is_at_asked_batch(look.setup):
            by_setup.setdefault(words_of(look.setup), []).append(look)
    found: list[_Seen] = []
    for words, looks in by_setup.items():
        good = [look for look in looks if wanted.value(look) is not None]
        good = [look for look in good if look.kind == "final"] or good
        values = [value for look in good if (value := wanted.value(look)) is not None]
        speeds = [look.samples_per_s for look in good if not isinstance(look.samples_per_s, Absent)]
        if values and not any(wanted.broken_limit(look) for look in looks):
            setup, value, speed, final = looks[0].setup, median(values), median(speeds), finals.get(words)
            found.append(_Seen(setup=setup, value=value, speed=speed, looks=len(values), final=final))
    slowdown = answer.objective.slowdown
    least = 0.0 if slowdown is None else max((seen.speed for seen in found), default=0.0) / slowdown
    return [seen for seen in found if seen.speed >= least]


def _said(answer: Tuned, seen: _Seen, samples: str) -> str:
    checked = [] if isinstance(answer.same, Absent) else answer.same.setups
    same = next((each for each in checked if each.setup == seen.setup), None)
    if seen.final is None or isinstance(seen.final.samples_per_s, Absent):
        looks = "One look" if seen.looks == 1 else f"The middle of {seen.looks} looks"
        was_in = any(final.setup == seen.setup for final in answer.finals)
        place = "the finals have no number of it" if was_in else "it was not in the finals"
        told = f"{looks} measured {digits(seen.speed)} {samples}/s; {place}"
        return f"{told}. It is {'' if same is not None and same.ok else 'not shown to be '}the same training."
    ratio = Absent("it is the default") if seen.final.is_default else seen.final.ratio
    told = _measured(answer, seen.final.samples_per_s, ratio, samples)
    if seen.final.is_default or isinstance(ratio, Quantity):
        return told
    why = f" ({same.why_not})" if same is not None and same.why_not else ""
    return f"{told} It was in the finals, but could not win: {ratio.reason}{why}."


def _measured(answer: Tuned, speed: Quantity, ratio: Quantity | Absent, samples: str) -> str:
    over = "" if isinstance(ratio, Absent) else f", {answer.gain_in_words(ratio)}"
    return f"Measured: {digits(speed.median)} {samples}/s ({speed.span_in_words(digits)}){over}."


def emit(job: Job, found: str) -> str:
    """The script of a job. `found`: what was measured, in a sentence. Raises UsageError for what it cannot write."""
    return _WRITERS[check_emitted(job.environment.framework)](job, found)
