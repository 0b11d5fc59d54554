"""All runs of one case: one workload in one setup on one machine, over rounds, as one speed with one interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deepstone.absent import Absent
from deepstone.measure.doubts import FEWEST_SAMPLES
from deepstone.measure.statistics import Quantity, median_of_rounds
from deepstone.records.identity import canonical_json
from deepstone.records.schema import Record

ACROSS_ROUNDS: Final = "across rounds in fresh processes"
ACROSS_LAUNCHES: Final = "across launches"
WITHIN_PROCESS: Final = "within one process"
DISTURBANCES: Final = frozenset({"other_load", "cpu_steal"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """`good`: the newest run that went well of each round, by round. `failed`: the newest of the rounds without one."""

    key: str
    good: tuple[Record, ...]
    failed: tuple[Record, ...]

    @property
    def record(self) -> Record:
        """One that tells what all of them share."""
        return next(iter((*self.good, *self.failed)))

    @property
    def model(self) -> str:
        return self.record["workload"]["model"]

    @property
    def runs(self) -> tuple[str, ...]:
        """What its speed rests on; where there is none, what failed."""
        return tuple(record["id"] for record in self.good or self.failed)

    @property
    def doubts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(doubt["code"] for record in self.good for doubt in record["doubts"]))

    @property
    def images_per_s(self) -> Quantity | Absent:
        """Over rounds the interval is across them, else the run's own, which `interval` names."""
        rates = [rate_of(record) for record in self.good]
        if not rates:
            return Absent(self.why_not)
        return rates[0] if len(rates) == 1 else median_of_rounds([rate.median for rate in rates])

    @property
    def interval(self) -> str:
        """What the interval of the speed covers."""
        if len(self.good) > 1:
            return ACROSS_ROUNDS
        summary = self.good[0]["summary"] if self.good else {"absent": ""}
        alone = "absent" in summary or summary["interval"] == "within process"
        return WITHIN_PROCESS if alone else ACROSS_LAUNCHES

    @property
    def is_thin(self) -> bool:
        """Whether the interval of its speed is itself a guess: one run of a few samples."""
        return len(self.good) == 1 and self.interval == WITHIN_PROCESS and rate_of(self.good[0]).n < FEWEST_SAMPLES

    @property
    def is_disturbed(self) -> bool:
        """Whether others had part of the machine in any of its runs."""
        return bool(DISTURBANCES & set(self.doubts))

    @property
    def why_not(self) -> str:
        """Why there is no speed: the outcome and its reason."""
        if self.good:
            return ""
        failure: Any = self.failed[0]["failure"]
        return f"{self.failed[0]['outcome']}: {failure.get('reason', 'no reason was kept')}"


def cases(records: Iterable[Record]) -> list[Case]:
    """One for each case, in the order in which they first come."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(case_key(record), []).append(record)
    return [_case(key, runs) for key, runs in found.items()]


def case_key(record: Record) -> str:
    """What all rounds of a case share: everything that names a job but the round."""
    return canonical_json({**record["identity"], "repetition": 0})


def is_measured(record: Record) -> bool:
    summary = record["summary"]
    return record["outcome"] == "ok" and "absent" not in summary and summary["samples_per_s"]["low"] > 0


def rate_of(record: Record) -> Quantity:
    """Images per second of a run that is measured."""
    summary = record["summary"]
    assert "absent" not in summary
    return Quantity(**summary["samples_per_s"])


def attempt_of(record: Record) -> int:
    return int(record["id"].rpartition("-")[2])


def _case(key: str, runs: Sequence[Record]) -> Case:
    """A repeated round counts once, by its newest attempt, whichever way that came out: no best of several."""
    good: dict[int, Record] = {}
    failed: dict[int, Record] = {}
    for record in sorted(runs, key=attempt_of):
        (good if is_measured(record) else failed)[record["identity"]["repetition"]] = record
    return Case(
        key=key,
        good=tuple(good[number] for number in sorted(good)),
        failed=tuple(failed[number] for number in sorted(failed.keys() - good.keys())),
    )
