"""Sentences about where the time of a step goes, from what `deepstone layers` found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from deepstone.analysis.statement import Statement
from deepstone.analysis.wording import capital, share
from deepstone.graph.groups import GROUPS
from deepstone.measure.statistics import Quantity
from deepstone.records.schema import is_absent

_LAYERS: Final = 66.0
_PHASES: Final = {"train": "a training step", "forward": "a forward pass", "gradient": "a gradient step"}


def say_layers(findings: Sequence[Mapping[str, Any]]) -> Iterator[Statement]:
    for finding in findings:
        if finding.get("kind") == "layers":
            for report in _reports(finding):
                yield from _where_time_goes(str(finding.get("id", "")), report)


def _reports(finding: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """One of each framework that has timed its layers."""
    several: Any = finding.get("frameworks")
    reports = list(cast(dict[str, Any], several).values()) if isinstance(several, dict) else [finding]
    return [report for report in reports if report.get("outcome") == "ok" and report.get("layers")]


def _where_time_goes(id: str, report: Mapping[str, Any]) -> Iterator[Statement]:
    """The largest group, the second, and the costliest layer; nothing where intervals do not tell which is the largest.

    Shares are of the time in layers; each was measured.
    """
    times = _times(report)
    shares = {name: _share_of([time for time in times if time.op in ops], times) for name, ops in GROUPS.items()}
    (name, largest), *others = sorted(shares.items(), key=lambda item: -item[1].median)
    if largest.low <= others[0][1].high:
        return
    second = f", {others[0][0]} {share(others[0][1])}" if others[0][1].median else ""
    workload = report["workload"]
    step = f"{_PHASES[workload['phase']]} of {report['model']} (batch {workload['batch']}, {_framework(report)})"
    yield Statement(
        text=f"{capital(name)} take {share(largest)} of the time in layers of {step}{second}.{_costliest(times)}",
        rank=_LAYERS,
        findings=[id] if id else [],
        how=f"{report.get('method', 'layers timed')}; bounds from the 95 % intervals of all layers",
    )


def _costliest(times: Sequence[_Time]) -> str:
    """The one layer that takes most, where it is certain which."""
    first, second = sorted(times, key=lambda time: -time.median_s)[:2] if len(times) > 1 else (None, None)
    if first is None or second is None or first.low_s <= second.high_s:
        return ""
    return f" The costliest layer is {first.name} with {share(_share_of([first], times))}."


def _framework(report: Mapping[str, Any]) -> str:
    setup = report["setup"]
    effect: Any = setup.get("effective", {}).get("framework", {"value": setup["requested"]["framework"]})
    return str(effect["value"]).replace("@", " ")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Time:
    """Both passes of a layer."""

    name: str
    op: str
    median_s: float
    low_s: float
    high_s: float


def _times(report: Mapping[str, Any]) -> list[_Time]:
    """All in place where that was timed, otherwise all by themselves: the two are never mixed."""
    in_place = not is_absent(report.get("sum_s", {"absent": ""}))
    times: list[_Time] = []
    for layer in cast(list[dict[str, Any]], report["layers"]):
        source: Mapping[str, Any] = layer if in_place else layer.get("isolated", {})
        found = [source.get(part) for part in ("forward_s", "backward_s")]
        passes = [Quantity(**each) for each in found if each is not None and not is_absent(each)]
        times.append(
            _Time(
                name=layer["name"],
                op=layer["op"],
                median_s=sum(each.median for each in passes),
                low_s=sum(each.low for each in passes),
                high_s=sum(each.high for each in passes),
            )
        )
    return times


def _share_of(members: Sequence[_Time], times: Sequence[_Time]) -> Quantity:
    """Lowest where these were as fast as they may be and the others as slow, and the other way round."""
    others = [time for time in times if not any(time is member for member in members)]

    def part(inside_s: float, outside_s: float) -> float:
        return inside_s / (inside_s + outside_s) if inside_s + outside_s > 0 else 0.0

    return Quantity(
        median=part(sum(time.median_s for time in members), sum(time.median_s for time in others)),
        low=part(sum(time.low_s for time in members), sum(time.high_s for time in others)),
        high=part(sum(time.high_s for time in members), sum(time.low_s for time in others)),
        n=len(members),
    )
