"""Whether runs are worse than those of a baseline: for tests that must fail when a program becomes slower.

A job is the same on both sides when its network, workload, request and machine are. Versions may differ, since they are
what is gated; where one side holds several, the newest counts, and of every round the newest run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from deepstone.absent import Absent
from deepstone.analysis.cases import Case, attempt_of, case_key, cases
from deepstone.analysis.contrast import Contrast
from deepstone.analysis.differences import MACHINE, value_of, version_of
from deepstone.analysis.sides import contrast_sides
from deepstone.measure.statistics import Quantity
from deepstone.records.identity import canonical_json
from deepstone.records.schema import Record
from deepstone.setups.axes import AXES

REGRESSION: Final = "regression"
FASTER: Final = "faster"
NO_CHANGE: Final = "no change shown"
WORKS_AGAIN: Final = "works again"
FAILS_AS_BEFORE: Final = "fails as before"
NOT_COMPARABLE: Final = "not comparable"
NEW: Final = "new"
VANISHED: Final = "vanished"
VERDICTS: Final = (REGRESSION, FASTER, NO_CHANGE, WORKS_AGAIN, FAILS_AS_BEFORE, NOT_COMPARABLE, NEW, VANISHED)

TOLERANCE: Final = 0.05

_COMPARED: Final = (REGRESSION, FASTER, NO_CHANGE)
_CALCULATED: Final = "analytic_bytes"  # from the graph, not measured


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryChange:
    """A peak now over that of the baseline. Runs give one peak each, so the ends are those of all runs."""

    kind: str
    ratio: Quantity

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "ratio": self.ratio.to_json()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """One job. `why` tells the reason for the verdict in words; `limit` is how far a ratio had to lie from 1."""

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
        """Speed now over speed in the baseline."""
        return self.contrast.ratio if self.contrast else None

    @property
    def doubts(self) -> tuple[str, ...]:
        return self.contrast.doubts if self.contrast else ()

    def to_json(self) -> dict[str, Any]:
        absent = {"absent": self.why}
        return {
            "title": self.title,
            "verdict": self.verdict,
            "why": self.why,
            "ratio": absent if self.contrast is None else self.contrast.ratio.to_json(),
            "how": absent if self.contrast is None else self.contrast.how,
            "limit": self.limit,
            "memory": [change.to_json() for change in self.memory],
            "versions": list(self.versions),
            "doubts": list(self.doubts),
            "baseline": _side_json(self.baseline, absent),
            "now": _side_json(self.now, absent),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """All jobs of both sides, what matters most first."""

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

    def to_json(self) -> dict[str, Any]:
        return {
            "passed": bool(self.compared) and not self.regressions,
            "tolerance": self.tolerance,
            "counts": {verdict: len(self.of(verdict)) for verdict in VERDICTS},
            "jobs": [judged.to_json() for judged in self.jobs],
        }


def judge(
    baseline: Iterable[Record], now: Iterable[Record], *, tolerance: float = TOLERANCE, memory: bool = False
) -> Gate:
    """Every job of either side with its verdict. A step may take longer by the share `tolerance`, and so may peaks."""
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
    """A job in a few words: model, batch, phase, and every setting that is not the default."""
    requested = record["setup"]["requested"]
    told = {"batch", "phase"}
    more = [
        f"{axis}={requested[axis]}"
        for axis in AXES
        if axis in requested and axis not in told and requested[axis] != AXES[axis].default
    ]
    workload = record["workload"]
    return " · ".join([workload["model"], f"batch {workload['batch']}", workload["phase"], *more])


def _by_job(records: Iterable[Record]) -> dict[str, Case]:
    """The case that counts of every job: the newest run of each round, in the versions that were measured last."""
    newest: dict[tuple[str, int], Record] = {}
    for record in sorted(records, key=_when):
        newest[case_key(record), record["identity"]["repetition"]] = record
    found: dict[str, Case] = {}
    # Cases come in the order of their last runs, so that the last one of a job stays.
    for case in sorted(cases(newest.values()), key=_last_run):
        found[_job_key(case.record)] = case
    return found


def _when(record: Record) -> tuple[str, int]:
    return record["started_at"], attempt_of(record)


def _last_run(case: Case) -> tuple[str, int]:
    return max(_when(record) for record in (*case.good, *case.failed))


def _job_key(record: Record) -> str:
    return canonical_json([_without_machine(record), record["identity"]["machine_sha"]])


def _without_machine(record: Record) -> str:
    """Network, workload and request; of a framework that was asked for by version, the name."""
    identity = record["identity"]
    requested: Mapping[str, object] = identity["requested"]
    asked = {**requested, "framework": str(requested.get("framework", "")).partition("@")[0]}
    return canonical_json([identity["graph_sha"], identity["workload"], asked])


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
        return replace(job, verdict=REGRESSION, why=f"it worked before; now {_failure(after)}")
    if not after.good:
        return replace(job, verdict=FAILS_AS_BEFORE, why=_failure(after))
    if not before.good:
        return replace(job, verdict=WORKS_AGAIN, why=f"before, {_failure(before)}")
    if isinstance(found, Absent):
        return job
    # One process on a side tells little about the next one, so a contrast may ask for more than the tolerance.
    limit = max(tolerance, found.margin)
    changes = _memory_changes(before, after) if memory else ()
    reasons = _reasons(found, limit, changes, tolerance)
    job = replace(job, contrast=found, limit=limit, memory=changes)
    if reasons:
        return replace(job, verdict=REGRESSION, why="; ".join(reasons))
    if found.ratio.low > 1 + limit:
        return replace(job, verdict=FASTER, why=f"over the whole interval, more than {_percent(limit)} faster")
    return replace(job, verdict=NO_CHANGE, why=f"the interval does not lie beyond {_percent(limit)}")


def _contrast(after: Case, before: Case) -> Contrast | Absent:
    names = [str(value_of(case.record, "framework")) for case in (before, after)]
    if names[0] != names[1]:
        return Absent(f"the framework was {names[0]} and is {names[1]}")
    # What `auto` came to may follow from the version, and so is part of what is gated. The machine may not differ.
    return contrast_sides(after, before, never_in={MACHINE})


def _reasons(found: Contrast, limit: float, changes: Sequence[MemoryChange], tolerance: float) -> list[str]:
    reasons: list[str] = []
    if found.ratio.high < 1 / (1 + limit):
        reasons.append(f"slower: over the whole interval, steps take more than {_percent(limit)} longer")
    reasons += [
        f"{change.kind} is larger by more than {_percent(tolerance)}"
        for change in changes
        if change.ratio.low > 1 + tolerance
    ]
    return reasons


def _memory_changes(before: Case, after: Case) -> tuple[MemoryChange, ...]:
    changes: list[MemoryChange] = []
    for kind in _peaks_of(after.good[0]):
        old, new = _peaks(before, kind), _peaks(after, kind)
        if old and new and min(old) > 0:
            ratio = Quantity(
                median=max(new) / max(old), low=min(new) / max(old), high=max(new) / min(old), n=min(len(old), len(new))
            )
            changes.append(MemoryChange(kind=kind, ratio=ratio))
    return tuple(changes)


def _peaks(case: Case, kind: str) -> list[int]:
    return [peaks[kind] for peaks in map(_peaks_of, case.good) if kind in peaks]


def _peaks_of(record: Record) -> dict[str, int]:
    """Every measured peak; none where memory as a whole is absent, since a reason is no number."""
    memory: Mapping[str, Any] = record["memory"]
    return {kind: value for kind, value in memory.items() if kind != _CALCULATED and isinstance(value, int)}


def _failure(case: Case) -> str:
    failed = case.failed[-1]
    failure: Any = failed["failure"]
    return f"{failed['outcome']}: {failure.get('reason', 'no reason was kept')}"


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
    version = record["environment"].get("deepstone", "")
    return version if isinstance(version, str) else ""


def _importance(judged: Judged) -> tuple[int, float]:
    return VERDICTS.index(judged.verdict), judged.ratio.median if judged.ratio else 0.0


def _side_json(case: Case | None, absent: Mapping[str, str]) -> dict[str, Any]:
    if case is None:
        return dict(absent)
    speed = case.images_per_s
    return {
        "job": case.record["job"],
        "runs": list(case.runs),
        "samples_per_s": speed.to_json(),
        "interval": case.interval,
        "framework": version_of(case.record),
        "deepstone": _deepstone(case.record),
    }


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
