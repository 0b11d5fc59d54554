"""What searches say about the runs that they made: which are rounds of finals, which are other training.

A record does not tell. The launches of a search are numbered by setup, and the search chose them by what it had seen,
so equal numbers are no round, and the best of many looks is too good to be true. Only its finals are rounds: a finding
and a log have their number, and a finding the ratio that the search itself made of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct, field

from deepstone.absent import Absent
from deepstone.results.parts import Value
from deepstone.results.quantity import Quantity
from deepstone.results.record import Record
from deepstone.results.tune import (
    NOT_SHOWN,
    Finalist,
    SameSetup,
    SameTraining,
    Tuned,
    TuneLog,
    at_any_batch,
    refused_runs,
)

_NO_SEARCH: Final = ""
_NO_NUMBER: Final = 0


class Round(Struct, frozen=True, kw_only=True, order=True):
    """Runs of one round were made in turns. `search`: by its first run; empty for rounds of a study. A look of a search
    is in no round: it has its own run in place of the search, and no number."""

    search: str = _NO_SEARCH
    number: int

    @property
    def is_look(self) -> bool:
        return self.number == _NO_NUMBER

    @staticmethod
    def of_look(run: str) -> Round:
        return Round(search=run, number=_NO_NUMBER)


class InFinals(Struct, frozen=True, kw_only=True):
    """A launch of finals. `gain`: the speed of its setup over that of the search's default, as the search reports it;
    1 for the default itself, None where it reports none."""

    round: Round
    is_default: bool = False
    gain: Quantity | None = None


class Searched(Struct, frozen=True, kw_only=True):
    """By run. `refused`: why its setup is other training. `unproven`: why its setup is not shown to be the same
    training. `proven`: runs of setups that are shown to be."""

    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    unproven: Mapping[str, str] = field(default_factory=dict[str, str])
    proven: frozenset[str] = frozenset()
    finals: Mapping[str, InFinals] = field(default_factory=dict[str, InFinals])

    @staticmethod
    def of(searches: Iterable[Tuned | TuneLog]) -> Searched:
        # A finding knows more than the log of the same search, so it has the last word.
        all_of_them = sorted(searches, key=lambda each: isinstance(each, Tuned))
        unproven: dict[str, str] = {}
        proven: set[str] = set()
        finals: dict[str, InFinals] = {}
        for each in all_of_them:
            verdicts = {at_any_batch(same.setup): same for same in _checked(each)}
            not_shown = {
                at_any_batch(final.setup): NOT_SHOWN for final in _finalists(each) if final.ratio == Absent(NOT_SHOWN)
            }
            for look in each.looks:
                if look.run is None:
                    continue
                same = verdicts.get(at_any_batch(look.setup))
                if same is not None and same.ok:
                    proven.add(look.run)
                elif same is not None and not same.is_other_training:
                    unproven[look.run] = same.why_not
                elif reason := not_shown.get(at_any_batch(look.setup)):
                    unproven.setdefault(look.run, reason)
            finals |= _finals_of(each)
        return Searched(refused=refused_runs(all_of_them), unproven=unproven, proven=frozenset(proven), finals=finals)

    def and_of(self, other: Searched) -> Searched:
        return Searched(
            refused={**self.refused, **other.refused},
            unproven={**self.unproven, **other.unproven},
            proven=self.proven | other.proven,
            finals={**self.finals, **other.finals},
        )

    def round_of(self, record: Record) -> Round:
        if record.id in self.finals:
            return self.finals[record.id].round
        return Round.of_look(record.id) if record.is_look else Round(number=record.identity.repetition)


NO_SEARCHES: Final = Searched()


def _checked(search: Tuned | TuneLog) -> Iterable[SameSetup]:
    if isinstance(search.same, SameTraining):
        return search.same.setups
    return () if isinstance(search.same, Absent) else search.same


def _finalists(search: Tuned | TuneLog) -> Iterable[Finalist]:
    return search.finals if isinstance(search, Tuned) else ()


def _finals_of(search: Tuned | TuneLog) -> dict[str, InFinals]:
    """A gain is that of speeds only where speed was sought."""
    name = next((look.run for look in search.looks if look.run is not None), None)
    if name is None:
        return {}
    finalists = {_exactly(each.setup): each for each in _finalists(search)}
    seeks_speed = isinstance(search, Tuned) and search.objective.name == "throughput"
    found: dict[str, InFinals] = {}
    for look in search.looks:
        if look.kind != "final" or look.run is None or look.round is None:
            continue
        finalist = finalists.get(_exactly(look.setup))
        gain = finalist.ratio if finalist is not None and seeks_speed else None
        found[look.run] = InFinals(
            round=Round(search=name, number=look.round),
            is_default=finalist is not None and finalist.is_default,
            gain=None if isinstance(gain, Absent) else gain,
        )
    return found


def _exactly(setup: Mapping[str, Value]) -> frozenset[tuple[str, Value]]:
    return frozenset(setup.items())
