"""Writes the code of a setup: a short training script that does what Deepstone did, in the framework's own idiom.

The script stands alone: no code of Deepstone. It has the network as plain code (plan.py finds its blocks, body.py
writes what they compute), runs on random data, and prints its losses and its rate. What it cannot do as measured is
refused, never left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.errors import UsageError, nearest, shown
from deepstone.results.quantity import Quantity
from deepstone.results.tune import Tuned
from deepstone.runner.job import Job
from deepstone.setups.axes import JAX, TENSORFLOW, TORCH, Value
from deepstone.tuner.emit.for_jax import jax_script
from deepstone.tuner.emit.for_tensorflow import tensorflow_script
from deepstone.tuner.emit.for_torch import torch_script
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


def chosen_setup(
    answer: Tuned, framework: str, framework_of: Callable[[Mapping[str, Value]], str], samples: str
) -> Chosen:
    """The best setup, if it is in this framework; else the best of those in it that may win the finals, or else of all
    looks, without those that are shown to be other training. Raises UsageError if none of them ran."""
    if framework_of(answer.best.setup) == framework and isinstance(answer.best.samples_per_s, Quantity):
        return Chosen(setup=answer.best.setup, found=_measured(answer.best.samples_per_s, answer.ratio, samples))
    finals = [final for final in answer.finals if framework_of(final.setup) == framework]
    may_win = [final for final in finals if not isinstance(final.ratio, Absent)]
    best = max(may_win, key=lambda final: _rate(final.samples_per_s), default=None)
    if best is not None and isinstance(best.samples_per_s, Quantity):
        ratio = Absent("it is the default") if best.is_default else best.ratio
        return Chosen(setup=best.setup, found=_measured(best.samples_per_s, ratio, samples))
    looks = [look for look in answer.looks if framework_of(look.setup) == framework]
    seen = max(looks, key=lambda look: _rate(look.samples_per_s), default=None)
    if seen is None or isinstance(seen.samples_per_s, Absent):
        raise UsageError(f"--emit {framework}: no setup in {framework} was measured; give it a larger --budget")
    told = (
        f"One look measured {digits(seen.samples_per_s)} {samples}/s; it was not in the finals, and not checked to be"
    )
    return Chosen(setup=seen.setup, found=f"{told} the same training.")


def _measured(speed: Quantity, ratio: Quantity | Absent, samples: str) -> str:
    over = "" if isinstance(ratio, Absent) else f", {digits(ratio.median)}x ({ratio.span_in_words(digits)}) the default"
    return f"Measured: {digits(speed.median)} {samples}/s ({speed.span_in_words(digits)}){over}."


def _rate(rate: Quantity | float | Absent) -> float:
    if isinstance(rate, Absent):
        return 0.0
    return rate.median if isinstance(rate, Quantity) else float(rate)


def emit(job: Job, found: str) -> str:
    """The script of a job. `found`: what was measured, in a sentence. Raises UsageError for what it cannot write."""
    return _WRITERS[check_emitted(job.environment.framework)](job, found)
