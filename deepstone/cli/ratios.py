"""Runs of several frameworks in one table, with the speed of each against the first, where they compute the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from deepstone.checks.cache import comparable
from deepstone.checks.comparable import Comparable
from deepstone.cli.output import print_lines
from deepstone.cli.progress import progress_bar
from deepstone.cli.show import show_table
from deepstone.records.schema import Record, is_absent
from deepstone.runner.job import Job
from deepstone.units import digits


def show_with_ratios(records: Sequence[Record], jobs: Sequence[Job], *, timeout_s: float) -> None:
    """Raises MissingError, but then everything is measured and stored already."""
    checks = _checks(records, jobs, timeout_s)
    base = str(records[0]["setup"]["requested"]["framework"])
    ratios = {record["id"]: _ratio(record, _counterpart(record, records, base), checks) for record in records}
    show_table(records, extra=(f"images/s\nagainst {base}", ratios))
    print_lines(["", *_remarks(checks)], hang=4)


def _checks(records: Sequence[Record], jobs: Sequence[Job], timeout_s: float) -> dict[str, Comparable]:
    """What shows that they compute the same, of every run that went well, by job."""
    measured = {record["job"] for record in records if not is_absent(record["summary"])}
    wanted = {job.id: job for job in jobs if job.id in measured}
    with progress_bar(1) as bar:
        bar.begin("do they compute the same?")
        return comparable(wanted, timeout_s=timeout_s, tell=bar.tell)


def _counterpart(record: Record, records: Sequence[Record], base: str) -> Record | None:
    """The run of the first framework with everything else the same."""
    wanted = {**record["setup"]["requested"], "framework": base}
    return next((other for other in records if other["setup"]["requested"] == wanted), None)


def _ratio(record: Record, base: Record | None, checks: Mapping[str, Comparable]) -> str:
    if base is None or is_absent(record["summary"]) or is_absent(base["summary"]):
        return "–"
    if not (checks[record["job"]].ok and checks[base["job"]].ok):
        return "not the same"
    if record is base:
        return "1"
    ours, theirs = (cast(dict[str, Any], each["summary"])["samples_per_s"] for each in (record, base))
    # The intervals are independent, so the ends of both give bounds that are wide enough.
    low, high = ours["low"] / theirs["high"], ours["high"] / theirs["low"]
    return f"{digits(ours['median'] / theirs['median'])} ({digits(low)} – {digits(high)})"


def _remarks(checks: Mapping[str, Comparable]) -> list[str]:
    remarks = {f"not compared: {check.why_not()}" for check in checks.values() if not check.ok}
    if any(check.ok for check in checks.values()):
        remarks.add(
            "Ratios are of runs measured apart, one after the other; `deepstone compare` interleaves two of them and "
            "gives a verdict. Every layer and a whole step were checked to compute the same."
        )
    return sorted(remarks)
