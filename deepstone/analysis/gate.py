"""Compares runs with a baseline, for tests that must fail if a program becomes slower.

A job is the same on both sides if its network, workload, request and machine are. Versions may differ, since the gate
compares them; if one side has several, the newest counts, and of every round the newest run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.analysis.cases import Case, case_key, cases, failure_of, measured_bytes, when
from deepstone.analysis.contrast import Contrast, contrast_sides
from deepstone.analysis.facts import MACHINE, value_of, version_of
from deepstone.measure.ratios import is_above, is_below
from deepstone.results.identity import canonical_identity, canonical_json
from deepstone.results.parts import Json
from deepstone.results.quantity import Quantity
from deepstone.results.record import Record
from deepstone.setups.axes import AXES

VERDICTS: Final = (
    *("regression", "faster", "no change shown", "works again"),
    *("fails as before", "not comparable", "new", "vanished"),
)
REGRESSION, FASTER, NO_CHANGE, WORKS_AGAIN, FAILS_AS_BEFORE, NOT_COMPARABLE, NEW, VANISHED = VERDICTS

TOLERANCE: Final = 0.05

_COMPARED: Final = (REGRESSION, FASTER, NO_CHANGE)
_CALCULATED: Final = "analytic_bytes"  # from the graph, not measured


class MemoryChange(Struct, frozen=True, kw_only=True):
    """The peak now over that of the baseline. Each run has one peak, so the interval is the range over all runs; one
    run on each side has no interval."""

    kind: str
    ratio: Quantity

    @property
    def least(self) -> float:
        """Return the lower end. A peak hardly varies, so one run on each side is enough."""
        return self.ratio.low if self.ratio.has_interval else self.ratio.median

    def to_json(self) -> dict[str, Json]:
        return {"kind": self.kind, "ratio": self.ratio.to_json()}


class Judged(Struct, frozen=True, kw_only=True):
    """One job. `why` is the reason for the verdict; `limit` is the required distance of a ratio from 1."""

    title: str
    verdict: str
    why: str
    baseline: Case | None = None
    now: Case | None = None
    contrast: Contrast | None = None
    limit: float = 0.0
    memory: tuple[MemoryChange, ...] = ()
    versions: tuple[str, ...] = ()  # what changed between the sides, as in "torch 2.10.0 → 2.11.0"

    @property
    def ratio(self) -> Quantity | None:
        """Return the speed now over the speed in the baseline."""
        return self.contrast.speed_ratio if self.contrast else None

    @property
    def doubts(self) -> tuple[str, ...]:
        return self.contrast.doubts if self.contrast else ()

    def to_json(self) -> dict[str, Json]:
        absent: dict[str, Json] = {"absent": self.why}
        return {
            "title": self.title,
            "verdict": self.verdict,
            "why": self.why,
            "ratio": absent if self.contrast is None else self.contrast.speed_ratio.to_json(),
            "how": absent if self.contrast is None else self.contrast.how,
            "limit": self.limit,
            "memory": [change.to_json() for change in self.memory],
            "versions": list(self.versions),
            "doubts": list(self.doubts),
            "baseline": _side_json(self.baseline, absent),
            "now": _side_json(self.now, absent),
        }


class Gate(Struct, frozen=True, kw_only=True):
    """All jobs of both sides, the most important first."""

    jobs: tuple[Judged, ...]
    tolerance: float

    def of(self, *verdicts: str) -> tuple[Judged, ...]:
        return tuple(judged for judged in self.jobs if judged.verdict in verdicts)

    @property
    def regressions(self) -> tuple[Judged, ...]:
        return self.of(REGRESSION)

    @property
    def compared(self) -> tuple[Judged, ...]:
        return self.of(*_COMPARED)

    def to_json(self) -> dict[str, Json]:
        return {
            "passed": bool(self.compared) and not self.regressions,
            "tolerance": self.tolerance,
            "counts": {verdict: len(self.of(verdict)) for verdict in VERDICTS},
            "jobs": [judged.to_json() for judged in self.jobs],
        }


def judge(
    baseline: Iterable[Record], now: Iterable[Record], *, tolerance: float = TOLERANCE, memory: bool = False
) -> Gate:
    """Judge every job of either side. A step may take longer by the share `tolerance`, and peaks may grow by it."""
    before, after = _by_job(baseline), _by_job(now)
    elsewhere = {_without_machine(case.record) for case in before.values()}
    judged: list[Judged] = []
    for key, case in after.items():
        if key in before:
            judged.append(_judged(before[key], case, tolerance, memory=memory))
        else:
            other_machine = _without_machine(case.record) in elsewhere
            why = "the baseline has it from another machine only" if other_machine else "the baseline has no such job"
            verdict = NOT_COMPARABLE if other_machine else NEW
            judged.append(Judged(title=title_of(case.record), verdict=verdict, why=why, now=case))
    for key, case in before.items():
        if key not in after:
            why = "the baseline has it, and it was not measured now"
            judged.append(Judged(title=title_of(case.record), verdict=VANISHED, why=why, baseline=case))
    return Gate(jobs=tuple(sorted(judged, key=_importance)), tolerance=tolerance)


def title_of(record: Record) -> str:
    """Describe a job: model, batch, phase, and every setting that is not the default."""
    requested = record.setup.requested
    included = {"batch", "phase"}
    more = [
        f"{axis}={requested[axis]}"
        for axis in AXES
        if axis in requested and axis not in included and requested[axis] != AXES[axis].default
    ]
    workload = record.workload
    return " · ".join([workload.model, f"batch {workload.batch}", workload.phase, *more])


def _by_job(records: Iterable[Record]) -> dict[str, Case]:
    """Return one case of every job: the newest run of each round, in the versions that were measured last."""
    newest: dict[tuple[str, int], Record] = {}
    for record in sorted(records, key=when):
        newest[case_key(record), record.identity.repetition] = record
    found: dict[str, Case] = {}
    # Cases are sorted by their last runs, so the last one of a job wins.
    for case in sorted(cases(newest.values()), key=_last_run):
        found[_job_key(case.record)] = case
    return found


def _last_run(case: Case) -> tuple[str, int]:
    return max(when(record) for record in (*case.good, *case.failed))


def _job_key(record: Record) -> str:
    return canonical_json([_without_machine(record), record.identity.machine_sha])


def _without_machine(record: Record) -> str:
    """Return a key from network, workload and request, with the framework without its version."""
    identity = canonical_identity(record.identity)
    request = {**identity.requested, "framework": str(identity.requested.get("framework", "")).partition("@")[0]}
    return canonical_json([identity.graph_sha, identity.workload.to_json(), request])


def _judged(before: Case, after: Case, tolerance: float, *, memory: bool) -> Judged:
    found = _contrast(after, before)
    job = Judged(
        title=title_of(after.record),
        verdict=NOT_COMPARABLE,
        why=found.reason if isinstance(found, Absent) else "",
        baseline=before,
        now=after,
        versions=_versions(before, after),
    )
    if after.failed and not before.failed:
        return replace(job, verdict=REGRESSION, why=f"it worked before; now {failure_of(after.failed[-1])}")
    if not after.good:
        return replace(job, verdict=FAILS_AS_BEFORE, why=failure_of(after.failed[-1]))
    if not before.good:
        return replace(job, verdict=WORKS_AGAIN, why=f"before, {failure_of(before.failed[-1])}")
    if isinstance(found, Absent):
        return job
    # One process on a side says little about the next one, so a contrast may need more than the tolerance.
    limit = max(tolerance, found.margin)
    changes = _memory_changes(before, after) if memory else ()
    reasons = _reasons(found, limit, changes, tolerance)
    job = replace(job, contrast=found, limit=limit, memory=changes)
    if reasons:
        return replace(job, verdict=REGRESSION, why="; ".join(reasons))
    if is_above(found.speed_ratio, limit):
        return replace(job, verdict=FASTER, why=f"over the whole interval, more than {_percent(limit)} faster")
    return replace(job, verdict=NO_CHANGE, why=f"the interval does not lie beyond {_percent(limit)}")


def _contrast(after: Case, before: Case) -> Contrast | Absent:
    names = [str(value_of(case.record, "framework")) for case in (before, after)]
    if names[0] != names[1]:
        return Absent(f"the framework was {names[0]} and is {names[1]}")
    # The effective value of `auto` may depend on the version, so it may differ. The machine may not.
    return contrast_sides(after, before, never_in={MACHINE})


def _reasons(found: Contrast, limit: float, changes: Sequence[MemoryChange], tolerance: float) -> list[str]:
    reasons: list[str] = []
    if is_below(found.speed_ratio, limit):
        reasons.append(f"slower: over the whole interval, steps take more than {_percent(limit)} longer")
    reasons += [
        f"{change.kind} is larger by more than {_percent(tolerance)}"
        for change in changes
        if change.least > 1 + tolerance
    ]
    return reasons


def _memory_changes(before: Case, after: Case) -> tuple[MemoryChange, ...]:
    changes: list[MemoryChange] = []
    for kind in _peaks_of(after.good[0]):
        old, new = _peaks(before, kind), _peaks(after, kind)
        if old and new and min(old) > 0:
            median, low, high = max(new) / max(old), min(new) / max(old), max(new) / min(old)
            ratio = Quantity.of(median=median, low=low, high=high, n=min(len(old), len(new)))
            if len(old) == len(new) == 1:
                ratio = Quantity.without_interval(median, why="one run on each side has no interval")
            changes.append(MemoryChange(kind=kind, ratio=ratio))
    return tuple(changes)


def _peaks(case: Case, kind: str) -> list[int]:
    return [peaks[kind] for peaks in map(_peaks_of, case.good) if kind in peaks]


def _peaks_of(record: Record) -> dict[str, int]:
    """Return every measured peak; none if the memory is absent."""
    return {kind: value for kind, value in measured_bytes(record).items() if kind != _CALCULATED}


def _versions(before: Case, after: Case) -> tuple[str, ...]:
    changes: list[str] = []
    name = str(value_of(after.record, "framework"))
    for what, old, new in (
        (name, version_of(before.record), version_of(after.record)),
        ("deepstone", _deepstone(before.record), _deepstone(after.record)),
    ):
        if old and new and old != new:
            changes.append(f"{what} {old} → {new}")
    return tuple(changes)


def _deepstone(record: Record) -> str:
    version = record.environment.deepstone
    return version if isinstance(version, str) else ""


def _importance(judged: Judged) -> tuple[int, float]:
    return VERDICTS.index(judged.verdict), judged.ratio.median if judged.ratio else 0.0


def _side_json(case: Case | None, absent: Mapping[str, Json]) -> dict[str, Json]:
    if case is None:
        return dict(absent)
    speed = case.samples_per_s
    return {
        "job": case.record.job,
        "runs": list(case.runs),
        "samples_per_s": {"absent": speed.reason} if isinstance(speed, Absent) else speed.to_json(),
        "interval": case.interval,
        "framework": version_of(case.record),
        "deepstone": _deepstone(case.record),
    }


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
