"""A case is one workload in one setup on one machine, over all rounds, with its measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.measure.doubts import FEWEST_SAMPLES
from deepstone.measure.statistics import median_of_rounds
from deepstone.results.identity import attempt_of, canonical_identity, canonical_json
from deepstone.results.quantity import Quantity
from deepstone.results.record import Record, ShareOfPeak, Summary
from deepstone.results.searched import NO_SEARCHES, InFinals, Round, Searched

ACROSS_ROUNDS: Final = "across rounds in fresh processes"
ACROSS_LAUNCHES: Final = "across launches"
WITHIN_PROCESS: Final = "within one process"
DISTURBANCES: Final = frozenset({"other_load", "background_load", "cpu_steal", "cpu_quota", "gpu_shared"})


class Case(Struct, frozen=True, kw_only=True):
    """`good`: the newest successful run of each round, by round. `failed`: the newest run of rounds without one.
    `rounds`: those of `good`. Looks of a search are in no round: they count where there is nothing else, each by
    itself. `finals`: by search, in whose finals it was.

    `refused`: why a search refused this setup as other training; then it is compared with nothing. `unproven`: why a
    search did not show that it is the same training, if none did; then nobody is told to use it."""

    key: str
    good: tuple[Record, ...]
    failed: tuple[Record, ...]
    rounds: tuple[Round, ...]
    finals: Mapping[str, InFinals]
    refused: str = ""
    unproven: str = ""

    @property
    def record(self) -> Record:
        """Return one record, for the fields that all share."""
        return next(iter((*self.good, *self.failed)))

    @property
    def model(self) -> str:
        return self.record.workload.model

    @property
    def runs(self) -> tuple[str, ...]:
        """Return the runs of its speed; if there is none, the failed runs."""
        return tuple(record.id for record in self.good or self.failed)

    @property
    def doubts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(doubt.code for record in self.good for doubt in record.doubts))

    @property
    def samples_per_s(self) -> Quantity | Absent:
        """Return the speed. With several rounds the interval is across rounds, else the run's own (see `interval`)."""
        rates = [rate_of(record) for record in self.good]
        if not rates:
            return Absent(self.why_not)
        return rates[0] if len(rates) == 1 else median_of_rounds([rate.median for rate in rates])

    @property
    def by_round(self) -> dict[Round, Record]:
        return dict(zip(self.rounds, self.good, strict=True))

    @property
    def is_of_looks(self) -> bool:
        """Whether only looks of searches measured it: they led a search, and decide nothing."""
        return bool(self.rounds) and all(round.is_look for round in self.rounds)

    @property
    def interval(self) -> str:
        """Return what the interval of the speed covers."""
        if len(self.good) > 1:
            return ACROSS_LAUNCHES if self.is_of_looks else ACROSS_ROUNDS
        summary = self.good[0].summary if self.good else None
        across = isinstance(summary, Summary) and summary.interval == "across launches"
        return ACROSS_LAUNCHES if across else WITHIN_PROCESS

    @property
    def is_thin(self) -> bool:
        """Whether its speed has no interval, or an unreliable one: one run of a few samples, or one launch of a search,
        which says nothing about the next one."""
        if len(self.good) != 1:
            return False
        if self.good[0].is_look:
            return True
        rate = rate_of(self.good[0])
        return not rate.has_interval or (self.interval == WITHIN_PROCESS and rate.n < FEWEST_SAMPLES)

    @property
    def is_disturbed(self) -> bool:
        """Whether others used the machine during any of its runs."""
        return bool(DISTURBANCES & set(self.doubts))

    @property
    def why_not(self) -> str:
        """Return why there is no speed: the outcome and its reason."""
        if self.good:
            return ""
        return failure_of(self.failed[0])


def cases(records: Iterable[Record], searched: Searched = NO_SEARCHES) -> list[Case]:
    """Group records into cases, in the order of their first record. `searched`: what searches say about these runs;
    that one of them is other training is true of its whole case."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(case_key(record), []).append(record)
    return [_case(key, runs, searched) for key, runs in found.items()]


def case_key(record: Record) -> str:
    """Return the key of a case: everything that names a job, except the round."""
    return canonical_json({**canonical_identity(record.identity).to_json(), "repetition": 0})


def is_measured(record: Record) -> bool:
    if record.outcome != "ok" or isinstance(record.summary, Absent):
        return False
    rate = record.summary.samples_per_s
    return (rate.low if rate.has_interval else rate.median) > 0


def rate_of(record: Record) -> Quantity:
    """Return the images per second of a measured run."""
    assert not isinstance(record.summary, Absent)
    return record.summary.samples_per_s


def failure_of(record: Record) -> str:
    """Return the outcome and reason of a run without a speed."""
    reason = "no reason was kept" if isinstance(record.failure, Absent) else record.failure.reason
    return f"{record.outcome}: {reason}"


def when(record: Record) -> tuple[str, int]:
    """Return the sort key of runs: by start and, for one job, by attempt."""
    return record.started_at, attempt_of(record.id)


def _case(key: str, runs: Sequence[Record], searched: Searched) -> Case:
    """A repeated round counts once, by its newest attempt, whatever its result: there is no best of several."""
    good: dict[Round, Record] = {}
    failed: dict[Round, Record] = {}
    for record in sorted(runs, key=when):
        (good if is_measured(record) else failed)[searched.round_of(record)] = record
    in_rounds = [round for round in good if not round.is_look]
    counted = sorted(in_rounds) or list(good)
    finals = [searched.finals[record.id] for record in good.values() if record.id in searched.finals]
    is_proven = any(record.id in searched.proven for record in runs)
    return Case(
        key=key,
        good=tuple(good[round] for round in counted),
        failed=tuple(failed[round] for round in sorted(failed.keys() - good.keys())),
        rounds=tuple(counted),
        finals={final.round.search: final for final in finals},
        refused=_first(searched.refused, runs),
        unproven="" if is_proven else _first(searched.unproven, runs),
    )


def _first(reasons: Mapping[str, str], runs: Sequence[Record]) -> str:
    return next((reasons[record.id] for record in runs if record.id in reasons), "")


class Measure(Struct, frozen=True, kw_only=True):
    """A value of a case that a figure can show: its unit, and how to compute it from records."""

    name: str
    label: str
    unit: str
    of: Callable[[Case], Quantity | Absent]


def _step_s(case: Case) -> Quantity | Absent:
    rate = case.samples_per_s
    return rate if isinstance(rate, Absent) else rate.inverse(case.record.workload.batch)


def _flops_per_s(case: Case) -> Quantity | Absent:
    rate, flops = case.samples_per_s, case.record.cost.flops
    if isinstance(rate, Absent):
        return rate
    if isinstance(flops, Absent):
        return flops
    return rate.scaled(flops / case.record.workload.batch)


def _share_of_peak(case: Case) -> Quantity | Absent:
    """Return the share of the matrix product in the records; its own interval is not recorded."""
    rate = _flops_per_s(case)
    peaks = [_peak_of(record) for record in case.good]
    known = [peak for peak in peaks if peak > 0]
    if isinstance(rate, Absent) or not known:
        return rate if isinstance(rate, Absent) else Absent("no ceiling was known when it ran")
    share = rate.scaled(1 / max(known))
    if share.median > 1:
        return Absent("it does more than the known matrix product, which is too low a ceiling, or it leaves out work")
    return below_one(share)


def below_one(share: Quantity) -> Quantity:
    """Return a share of which noise alone lies above 100 %, without what lies there."""
    if not share.has_interval or share.high <= 1:
        return share
    return Quantity.of(median=share.median, low=share.low, high=1.0, n=share.n)


def _peak_of(record: Record) -> float:
    share = record.share_of_peak
    return share.peak_flops_per_s if isinstance(share, ShareOfPeak) else 0.0


def _peak_bytes(case: Case) -> Quantity | Absent:
    values = [value for record in case.good if (value := _bytes_of(record)) is not None]
    if not values:
        return Absent(case.why_not or "memory was not read")
    middle = sorted(values)[len(values) // 2]
    if len(values) == 1:
        return Quantity.without_interval(middle)
    return Quantity.of(median=middle, low=min(values), high=max(values), n=len(values))


def _bytes_of(record: Record) -> float | None:
    known = measured_bytes(record)
    return next((known[name] for name in ("device_allocated_bytes", "host_peak_bytes") if name in known), None)


def measured_bytes(record: Record) -> dict[str, int]:
    """Return every known memory peak."""
    if isinstance(record.memory, Absent):
        return {}
    return {name: value for name, value in record.memory.items() if not isinstance(value, Absent)}


def _phase_s(phase: str) -> Callable[[Case], Quantity | Absent]:
    def of(case: Case) -> Quantity | Absent:
        phases = [dict(record.phases.items()) for record in case.good if not isinstance(record.phases, Absent)]
        known = [time for each in phases if not isinstance(time := each[phase], Absent)]
        if not known:
            return Absent(case.why_not or f"{phase} was not timed apart")
        if len(known) > 1 and all(value.median > 0 for value in known):
            return median_of_rounds([value.median for value in known])
        return known[0]

    return of


_DECLARED = (
    Measure(name="images_per_s", label="images per second", unit="images/s", of=lambda case: case.samples_per_s),
    Measure(name="step_s", label="time of a step", unit="s", of=_step_s),
    Measure(name="forward_s", label="forward", unit="s", of=_phase_s("forward")),
    Measure(name="backward_s", label="backward", unit="s", of=_phase_s("backward")),
    Measure(name="update_s", label="update", unit="s", of=_phase_s("update")),
    Measure(name="data_s", label="data", unit="s", of=_phase_s("data")),
    Measure(name="flops_per_s", label="floating-point operations per second", unit="flop/s", of=_flops_per_s),
    Measure(name="share_of_peak", label="share of the fastest matrix product", unit="share", of=_share_of_peak),
    Measure(name="peak_bytes", label="peak memory", unit="bytes", of=_peak_bytes),
)
_BY_NAME: Final[dict[str, Measure]] = {measure.name: measure for measure in _DECLARED}


def measure_named(name: str) -> Measure:
    """Return a measure that a figure may request, by name."""
    return _BY_NAME[name]


def joules_per_sample(case: Case) -> Quantity | Absent:
    """With several rounds the interval is across rounds; otherwise it is the resolution of the meter."""
    found = [energy for record in case.good if (energy := _joules_per_sample(record)) is not None]
    if not found:
        return Absent("no run has it")
    if len(found) > 1:
        return median_of_rounds([energy.median for energy in found])
    return found[0]


def _joules_per_sample(record: Record) -> Quantity | None:
    energy = record.energy
    if isinstance(energy, Absent) or energy.joules_per_step <= 0:
        return None
    joules, resolution = energy.joules_per_step / record.workload.batch, energy.resolution_share
    return Quantity.of(median=joules, low=joules * max(0.0, 1 - resolution), high=joules * (1 + resolution), n=1)
