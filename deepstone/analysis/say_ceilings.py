"""Sentences about what the machine can do at best, and how much of it training reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from deepstone.absent import Absent
from deepstone.analysis.differences import value_of
from deepstone.analysis.measures import measure_named
from deepstone.analysis.one_factor import Star
from deepstone.analysis.statement import Statement
from deepstone.analysis.wording import base_words, capital, counted, doing, listed, share, span
from deepstone.measure.roofline import product_precision
from deepstone.measure.statistics import Quantity
from deepstone.records.schema import is_absent
from deepstone.units import count

_CEILINGS, _SHARE = 62.0, 61.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Ceilings:
    """The best that any framework reached on one device of one machine, with so many threads (0 on a GPU)."""

    machine_sha: str
    device: str
    threads: int
    flops_per_s: Mapping[str, Quantity]
    bytes_per_s: Quantity | None
    findings: tuple[str, ...]


def say_ceilings(found: Sequence[Star], findings: Sequence[Mapping[str, Any]]) -> Iterator[Statement]:
    known = ceilings(findings)
    yield from (_best(each) for each in known if each.flops_per_s)
    for star in found:
        if star.is_main:
            yield from _share(star, known)


def ceilings(findings: Sequence[Mapping[str, Any]]) -> list[Ceilings]:
    """One for each machine, device and number of threads that peaks were measured with."""
    entries: dict[tuple[str, str, int], list[tuple[str, Mapping[str, Any]]]] = {}
    for finding in findings:
        if finding.get("kind") != "peaks":
            continue
        machine = str(finding.get("identity", {}).get("machine_sha", ""))
        for entry in cast(list[dict[str, Any]], finding.get("peaks", [])):
            if not is_absent(entry):
                threads = entry.get("threads")
                place = machine, str(entry["device"]), threads if isinstance(threads, int) else 0
                entries.setdefault(place, []).append((str(finding.get("id", "")), entry))
    return [_joined(place, several) for place, several in entries.items()]


def _joined(place: tuple[str, str, int], entries: Sequence[tuple[str, Mapping[str, Any]]]) -> Ceilings:
    products: dict[str, Quantity] = {}
    copies: list[Quantity] = []
    for _, entry in entries:
        for precision, rate in cast(dict[str, Any], entry.get("flops_per_s", {})).items():
            if not is_absent(rate):
                products[precision] = _higher(products.get(precision), Quantity(**rate))
        copy = entry.get("bytes_per_s", {}).get("copy", {"absent": ""})
        copies += [] if is_absent(copy) else [Quantity(**copy)]
    return Ceilings(
        machine_sha=place[0],
        device=place[1],
        threads=place[2],
        flops_per_s=products,
        bytes_per_s=max(copies, key=lambda rate: rate.median, default=None),
        findings=tuple(dict.fromkeys(id for id, _ in entries if id)),  # what a command printed has none
    )


def _higher(known: Quantity | None, other: Quantity) -> Quantity:
    return other if known is None or other.median > known.median else known


def _best(found: Ceilings) -> Statement:
    where = found.device if not found.threads else f"{found.device} with {counted(found.threads, 'thread')}"
    words = [
        f"{count(rate.median, 'FLOP/s')} in {precision} ({_counts(rate)})"
        for precision, rate in found.flops_per_s.items()
    ]
    copy = found.bytes_per_s
    copied = f"; the fastest copy {count(copy.median, 'B/s')} ({_counts(copy)}), read and written" if copy else ""
    return Statement(
        text=f"The ceilings of {where}: the fastest matrix product reaches {listed(words)}{copied}.",
        rank=_CEILINGS,
        findings=found.findings,
        how="the best of several sizes and of every framework; 95 % intervals within one process",
    )


def _counts(value: Quantity) -> str:
    return span(value, count)


def _share(star: Star, known: Sequence[Ceilings]) -> Iterator[Statement]:
    """Of the product in the precision of the step, with both intervals where the ceiling has one."""
    reached = measure_named("flops_per_s").of(star.base)
    if isinstance(reached, Absent) or star.base.is_thin:
        return
    precision = product_precision(str(value_of(star.base.record, "precision")))
    ceiling = next((each for each in known if _holds_for(each, star) and precision in each.flops_per_s), None)
    if ceiling is not None:
        peak = ceiling.flops_per_s[precision]
        low, high = reached.low / peak.high, reached.high / peak.low
        reached_share = Quantity(median=reached.median / peak.median, low=low, high=high, n=reached.n)
        how = "FLOPs of convolutions and dense layers over time, over the ceiling; bounds from both intervals"
    else:
        of_record = measure_named("share_of_peak").of(star.base)
        if isinstance(of_record, Absent):
            return
        reached_share, how = (
            of_record,
            "FLOPs of convolutions and dense layers over time, over the ceiling known to the run",
        )
    yield Statement(
        text=f"{capital(doing(star))} with {base_words(star)} reaches {share(reached_share)} of the fastest "
        f"{precision} matrix product.",
        rank=_SHARE,
        runs=star.base.runs,
        findings=() if ceiling is None else ceiling.findings,
        how=how,
    )


def _holds_for(ceiling: Ceilings, star: Star) -> bool:
    record = star.base.record
    device = str(value_of(record, "device"))
    if ceiling.machine_sha != record["identity"]["machine_sha"] or ceiling.device != device:
        return False
    return device != "cpu" or ceiling.threads == value_of(record, "threads")
