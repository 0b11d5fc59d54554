"""Runs of several machines in one figure: the machine is an axis."""

from __future__ import annotations

import shlex
from collections import Counter

from deepstone.absent import Absent
from deepstone.analysis.cases import Case, measure_named
from deepstone.analysis.facts import asked_framework, value_of
from deepstone.papers.evidence import Evidence
from deepstone.papers.figures.chart import ChartDraft, SomeNetworks
from deepstone.papers.place import Place
from deepstone.results.chart import ChartAxis
from deepstone.results.quantity import Quantity


class PhasesByMachine(SomeNetworks, frozen=True, kw_only=True):
    """Forward and backward time of one network on every machine, at the batch that most of them have."""

    precision: str

    def chart(self, evidence: Evidence) -> ChartDraft:
        chart = ChartDraft(
            form="bars",
            x=ChartAxis(label="machine", scale="category"),
            y=ChartAxis(label="time", scale="log", unit="s"),
        )
        entries = self._entries(evidence)
        if not entries:
            return chart
        model, batch = entries[0][1].model, entries[0][1].record.workload.batch
        chart.subtitle = f"{model}, batch {batch}"
        for place, case in entries:
            framework = asked_framework(case.record).replace("@", " ")
            x = f"{place.name}, {framework} {value_of(case.record, 'precision')} {value_of(case.record, 'layout')}"
            chart.commands.append(shlex.join(case.record.command))
            for part in ("forward", "backward"):
                time = measure_named(f"{part}_s").of(case)
                if isinstance(time, Absent):
                    chart.gap(part, x, "not timed apart")
                else:
                    chart.point(part, x, time, runs=case.runs, doubts=case.doubts)
        return chart

    def _entries(self, evidence: Evidence) -> list[tuple[Place, Case]]:
        for model in self.models:
            cases = _trained(model, evidence, self.precision)
            if cases:
                places = Counter(
                    batch for batch, _ in {(case.record.workload.batch, place.key) for place, case in cases}
                )
                batch = max(places, key=lambda size: (places[size], size))
                return _fastest([entry for entry in cases if entry[1].record.workload.batch == batch])
        return []


class SetupsByMachine(SomeNetworks, frozen=True, kw_only=True):
    """Time of a training step of one network on every machine, one series for each value of an axis."""

    precision: str
    axis: str
    values: dict[str, str]  # of the axis, to the name of the series

    def chart(self, evidence: Evidence) -> ChartDraft:
        chart = ChartDraft(
            form="bars",
            x=ChartAxis(label="machine", scale="category"),
            y=ChartAxis(label="time of a step", scale="log", unit="s"),
        )
        for model in self.models:
            entries = _trained(model, evidence, self.precision)
            cases = _fastest(
                [(place, case) for place, case in entries if str(value_of(case.record, self.axis)) in self.values],
                apart_by=self.axis,
            )
            frameworks = {asked_framework(case.record) for _, case in cases}
            for place, case in cases:
                rate = case.samples_per_s
                if not isinstance(rate, Quantity):
                    continue
                workload = case.record.workload
                framework = f"{asked_framework(case.record).replace('@', ' ')}, " if len(frameworks) > 1 else ""
                x = f"{place.name}, {framework}batch {workload.batch}"
                chart.subtitle = f"{model}, {workload.phase}"
                chart.commands.append(shlex.join(case.record.command))
                chart.point(
                    self.values[str(value_of(case.record, self.axis))],
                    x,
                    rate.inverse(workload.batch),
                    runs=case.runs,
                    doubts=case.doubts,
                )
            if cases:
                break
        return chart


def _trained(model: str, evidence: Evidence, precision: str) -> list[tuple[Place, Case]]:
    return [
        (place, case)
        for place, case in evidence.cases
        if case.model == model
        and case.good
        and case.record.workload.phase == "train"
        and value_of(case.record, "precision") == precision
    ]


def _fastest(entries: list[tuple[Place, Case]], *, apart_by: str = "framework") -> list[tuple[Place, Case]]:
    """Return the fastest run of each framework, batch, machine and value of the axis: the paper compares optimized
    setups."""
    best: dict[object, tuple[Place, Case]] = {}
    for place, case in entries:
        batch = case.record.workload.batch
        key = place.key, asked_framework(case.record), batch, value_of(case.record, apart_by)
        if key not in best or _rate(case) > _rate(best[key][1]):
            best[key] = place, case
    return list(best.values())


def _rate(case: Case) -> float:
    rate = case.samples_per_s
    return rate.median if isinstance(rate, Quantity) else 0.0
