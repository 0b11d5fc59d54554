"""What makes the answer of a search less sure, in words: launches that were refused, and the doubts of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.errors import StoreError
from deepstone.measure.ratios import LEAST_DIFFERENCE
from deepstone.results.tune import NOT_THE_SAME, Tuned, TuneLog
from deepstone.store.store import Store
from deepstone.tuner.answer import words_of

_TOLD: Final = 3  # refused setups that are named


def with_doubt_of_limits(answer: Tuned) -> Tuned:
    """Where nothing was found within the limits, the doubts say first which limit the default breaks."""
    broken = answer.nothing_within_limits
    return replace(answer, doubts=[broken, *answer.doubts]) if broken else answer


def refused_launches(log: TuneLog) -> list[str]:
    """What the first steps of launches showed, at any level: setups that are refused by it were not searched on."""
    found = {
        words_of(look.setup): look.samples_per_s.reason.removeprefix(NOT_THE_SAME)
        for look in log.looks
        if isinstance(look.samples_per_s, Absent) and look.samples_per_s.reason.startswith(NOT_THE_SAME)
    }
    told = [f"{setup}: {reason}" for setup, reason in found.items()][:_TOLD]
    more = f" ({len(found) - len(told)} more)" if len(found) > len(told) else ""
    return [f"other training by the steps of its own launch, so not chosen{more}: {each}" for each in told]


def beaten_without(answer: Tuned) -> list[str]:
    """Changes without which the best setup looked faster, in looks outside the finals: those do not decide, and do not
    go unsaid."""
    return [
        f"without {why.axis}={why.best} the best setup looked {1 / removed.ratio.median:.3g}x as fast in looks outside "
        f"the finals, which do not decide: compare it with {why.axis}={why.default}"
        for why in answer.why
        if not isinstance(removed := why.removed, Absent)
        and not removed.estimated
        and removed.ratio.median < 1 / (1 + LEAST_DIFFERENCE)
    ]


def doubts_of_runs(store: Store, runs: Sequence[str]) -> list[str]:
    """The doubts about these runs, each once, with how many have it."""
    found: dict[str, list[str]] = {}
    for run in runs:
        with suppress(StoreError):  # it was deleted meanwhile
            for doubt in store.get(run).doubts:
                found.setdefault(doubt.code, []).append(doubt.detail)
    return [f"{code} ({len(details)} of {len(runs)} runs): {details[-1]}" for code, details in found.items()]
