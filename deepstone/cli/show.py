"""Prints records: one in a few lines, several in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from deepstone.absent import Absent
from deepstone.cli.output import Column, print_lines, print_table
from deepstone.cli.progress import progress_bar
from deepstone.results.record import Record
from deepstone.results.view import counted, headline, label, rate, words
from deepstone.setups.axes import AUTO, AXES
from deepstone.setups.effective import LEFT_TO_FRAMEWORKS
from deepstone.units import digits

if TYPE_CHECKING:
    from deepstone.results.sameness import Comparable
    from deepstone.runner.job import Job

_PHASES = ("phase_forward_s", "phase_backward_s", "phase_update_s")


def show_records(records: Sequence[Record]) -> None:
    if len(records) == 1:
        show_record(records[0])
    else:
        show_table(records)


def show_record(record: Record) -> None:
    """Print one record: speed first, then its evidence."""
    print_lines(record_lines(record), hang=4)


def record_lines(record: Record) -> list[str]:
    origin = f", {record.origin} where it was measured" if record.origin else ""
    return [headline(record), *(f"  {line}" for line in _result_lines(record)), f"  run {record.id}{origin}"]


def _result_lines(record: Record) -> list[str]:
    lines = [] if record.outcome == "ok" else _failure_lines(record)
    summary, measured = record.summary, not isinstance(record.summary, Absent)
    if not isinstance(summary, Absent):
        warm_up = f"after {counted(record.samples.warmup_steps, 'step')} of warm-up"
        operations = words(record, "cost")
        rate = f"{record.workload.samples}/s"
        lines += [
            f"{words(record, 'samples_per_s')} {rate}    {summary.samples_per_s.interval_in_words(digits)} "
            f"({summary.interval}, {counted(summary.step_s.n, 'sample')} {warm_up}; {summary.stopped})",
            *([units] if (units := words(record, "units")) else []),
            f"step {words(record, 'step_s')}    {words(record, 'phases')}",
            f"sustained {words(record, 'sustained_samples_per_s')} {rate}{'    ' if operations else ''}{operations}",
        ]
    together = ("parallel", "communication", "account", "pipeline", "ranks", "rank_memory")
    parts = (*together, "startup", "memory", "energy") if measured else (*together[:1], "startup", "memory")
    lines += [f"{label(name)}: {text}" for name in parts if (text := words(record, name))]
    unread = _not_read_back(record)
    if unread and record.outcome == "ok":
        lines.append(f"not read back: {unread}; the framework does not tell whether it did so")
    return lines + [f"doubt: {doubt.code}: {doubt.detail}" for doubt in record.doubts]


def _not_read_back(record: Record) -> str:
    """Return requested settings that the framework accepted but that cannot be read back."""
    requested, effective = record.setup.requested, record.setup.effective
    chosen = [axis for axis in LEFT_TO_FRAMEWORKS if requested.get(axis, AUTO) != AUTO and axis in effective]
    return ", ".join(f"{axis}={requested[axis]}" for axis in chosen if effective[axis].source == "set")


def _failure_lines(record: Record) -> list[str]:
    if isinstance(record.failure, Absent):
        return []
    tail = record.failure.stderr_tail.strip().splitlines()[-8:]
    return [words(record, "failure"), *(f"| {line}" for line in tail)]


def field_column(name: str, *, right: bool = False, rank: int = 0, wraps: int = 0, below: bool = False) -> Column:
    return Column(heading=label(name), right=right, rank=rank, wraps=wraps, below=below)


def show_table(
    records: Sequence[Record],
    *,
    first: tuple[str, Mapping[str, str]] | None = None,
    extra: tuple[str, Mapping[str, str]] | None = None,
) -> None:
    """Print one line per run, with a column for every axis in which runs differ, and the further columns."""
    varying = [axis for axis in AXES if len({str(record.setup.requested.get(axis)) for record in records}) > 1]
    models = {record.workload.model for record in records}
    named = len({record.workload.things for record in records}) > 1
    columns = [Column(heading=first[0])] if first else []
    columns += [field_column("model")] if len(models) > 1 else []
    columns += [Column(heading=axis) for axis in varying]
    columns += [
        Column(heading=_rate_label(records), right=True),
        field_column("span", right=True),
        *([Column(heading=extra[0], right=True)] if extra else []),
        field_column("outcome", rank=1),
        field_column("doubts", rank=2, wraps=20, below=True),
        field_column("step_s", right=True, rank=3),
        *(field_column(name, right=True, rank=5) for name in _PHASES),
        Column(heading=label("peak").replace(" ", "\n"), right=True, rank=4),
        field_column("id", rank=6),
    ]
    if len(models) == 1:
        print_lines([_common_in_words(records), ""])
    rows = [
        [
            *([first[1][record.id]] if first else []),
            *([record.workload.model] if len(models) > 1 else []),
            *(str(record.setup.requested.get(axis, "")) for axis in varying),
            *_rate_cells(record, named),
            *([extra[1][record.id]] if extra else []),
            *(words(record, name) for name in ("outcome", "doubts")),
            words(record, "step_s") or "–",
            *(words(record, name) for name in (*_PHASES, "peak", "id")),
        ]
        for record in records
    ]
    print_table(columns, rows)


def _rate_label(records: Sequence[Record]) -> str:
    """Return the unit of the rates if all runs share it."""
    kinds = {record.workload.things for record in records}
    return f"{kinds.pop()}/s" if len(kinds) == 1 else "speed"


def _rate_cells(record: Record, named: bool) -> list[str]:
    """Return the rate and its interval; `named`: with the unit, because the heading has none."""
    known = rate(record)
    if known is None:
        return ["–", "–"]
    things = f" {record.workload.things}/s" if named else ""
    return [f"{digits(known.median)}{things}", known.span_in_words(digits)]


def _common_in_words(records: Sequence[Record]) -> str:
    """Return the requested settings that all records share."""
    first = records[0].setup.requested
    same = [
        f"{axis}={first[axis]}"
        for axis in AXES
        if axis in first
        and first[axis] != AXES[axis].default
        and all(record.setup.requested.get(axis) == first[axis] for record in records)
    ]
    return " · ".join([records[0].workload.model, *same])


def show_with_ratios(records: Sequence[Record], jobs: Sequence[Job], *, timeout_s: float) -> None:
    """Print the ratios to the first framework. Raises MissingError only after everything is measured and stored."""
    checks = _checks(records, jobs, timeout_s)
    base = str(records[0].setup.requested["framework"])
    ratios = {record.id: _ratio(record, _counterpart(record, records, base), checks) for record in records}
    show_table(records, extra=(f"{_rate_label(records)}\nagainst {base}", ratios))
    print_lines(["", *_remarks(checks), *_training_remarks(records, base)], hang=4)


def _checks(records: Sequence[Record], jobs: Sequence[Job], timeout_s: float) -> dict[str, Comparable]:
    """Return the sameness checks of all successful runs, by job."""
    from deepstone.checks.comparable import comparable

    measured = {record.job for record in records if not isinstance(record.summary, Absent)}
    wanted = {job.id: job for job in jobs if job.id in measured}
    with progress_bar(1) as bar:
        bar.begin("do they compute the same?")
        return comparable(wanted, timeout_s=timeout_s, on_progress=bar.advance)


def _counterpart(record: Record, records: Sequence[Record], base: str) -> Record | None:
    """Return the first framework's run that differs only in the framework."""
    wanted = {**record.setup.requested, "framework": base}
    return next((other for other in records if other.setup.requested == wanted), None)


def _ratio(record: Record, base: Record | None, checks: Mapping[str, Comparable]) -> str:
    from deepstone.analysis.contrast import not_the_same_training
    from deepstone.measure.statistics import ratio_of_bounds

    if base is None or isinstance(record.summary, Absent) or isinstance(base.summary, Absent):
        return "–"
    if not (checks[record.job].ok and checks[base.job].ok) or not_the_same_training([record], [base]):
        return "not the same"
    if record is base:
        return "1"
    # The intervals are independent, so their ends give conservative bounds.
    ratio = ratio_of_bounds(record.summary.samples_per_s, base.summary.samples_per_s)
    return f"{digits(ratio.median)} ({ratio.span_in_words(digits)})"


def _training_remarks(records: Sequence[Record], base: str) -> list[str]:
    """Return the reasons why the timed steps of two runs are not the same training."""
    from deepstone.analysis.contrast import not_the_same_training

    measured = [record for record in records if not isinstance(record.summary, Absent)]
    pairs = [(record, _counterpart(record, measured, base)) for record in measured]
    found = [not_the_same_training([record], [other]) for record, other in pairs if other is not None]
    return sorted({f"not compared: {reason}" for reason in found if reason})


def _remarks(checks: Mapping[str, Comparable]) -> list[str]:
    remarks = {f"not compared: {check.why_not()}" for check in checks.values() if not check.ok}
    if any(check.ok for check in checks.values()):
        remarks.add(
            "Ratios are of runs measured apart, one after the other; `deepstone compare` interleaves two of them and "
            "gives a verdict. Every layer and a whole step were checked to compute the same."
        )
    return sorted(remarks)
