"""What makes the answer of a search less sure, in words: launches that were refused, and the doubts of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from deepstone.absent import Absent
from deepstone.errors import StoreError
from deepstone.results.tune import NOT_THE_SAME, TuneLog
from deepstone.store.store import Store
from deepstone.tuner.answer import words_of

_TOLD: Final = 3  # refused setups that are named


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


def doubts_of_runs(store: Store, runs: Sequence[str]) -> list[str]:
    """The doubts about these runs, each once, with how many have it."""
    found: dict[str, list[str]] = {}
    for run in runs:
        with suppress(StoreError):  # it was deleted meanwhile
            for doubt in store.get(run).doubts:
                found.setdefault(doubt.code, []).append(doubt.detail)
    return [f"{code} ({len(details)} of {len(runs)} runs): {details[-1]}" for code, details in found.items()]
