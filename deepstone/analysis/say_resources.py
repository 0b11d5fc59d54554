"""Sentences about the machine's ceilings, the time of layers in a step, and the energy of a sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.analysis.cases import below_one, joules_per_sample, measure_named
from deepstone.analysis.facts import value_of
from deepstone.analysis.one_factor import Star
from deepstone.analysis.wording import base_words, capital, counted, doing, listed, share, span, statement
from deepstone.measure.roofline import product_precision
from deepstone.measure.statistics import ratio_of_bounds, why_no_interval
from deepstone.results.ceilings import Ceiling, Ceilings
from deepstone.results.claim import Statement
from deepstone.results.findings import Finding
from deepstone.results.layers import GROUPS, LayerTable
from deepstone.results.quantity import Quantity
from deepstone.results.record import Record, ShareOfPeak
from deepstone.units import count, digits

_CEILINGS, _SHARE, _LAYERS, _ENERGY, _NO_ENERGY = 62.0, 61.0, 66.0, 38.0, 10.0
_PHASES: Final = {"train": "a training step", "forward": "a forward pass", "gradient": "a gradient step"}


class DeviceCeiling(Struct, frozen=True, kw_only=True):
    """The best of all frameworks on one device of one machine, with `threads` threads (0 on a GPU)."""

    machine_sha: str
    device: str
    threads: int
    flops_per_s: Mapping[str, Quantity]
    bytes_per_s: Quantity | None
    findings: tuple[str, ...]


def say_ceilings(found: Sequence[Star], findings: Sequence[Finding]) -> Iterator[Statement]:
    known = _ceilings(findings)
    yield from (_ceiling_words(each) for each in known if each.flops_per_s)
    for star in found:
        if star.is_main:
            yield from _share_of_ceiling(star, known)


def _ceilings(findings: Sequence[Finding]) -> list[DeviceCeiling]:
    """Return one ceiling for each machine, device and number of threads."""
    entries: dict[tuple[str, str, int], list[tuple[str, Ceiling]]] = {}
    for finding in findings:
        if not isinstance(finding.content, Ceilings):
            continue
        machine = "" if finding.identity is None else finding.identity.machine_sha
        for entry in finding.content.peaks:
            if entry.absent is None:
                place = machine, entry.device, entry.threads if isinstance(entry.threads, int) else 0
                entries.setdefault(place, []).append((finding.id or "", entry))
    return [_joined(place, several) for place, several in entries.items()]


def _joined(place: tuple[str, str, int], entries: Sequence[tuple[str, Ceiling]]) -> DeviceCeiling:
    products: dict[str, Quantity] = {}
    copies: list[Quantity] = []
    for _, entry in entries:
        for precision, rate in (entry.flops_per_s or {}).items():
            if not isinstance(rate, Absent):
                products[precision] = _higher(products.get(precision), rate)
        copy = (entry.bytes_per_s or {}).get("copy")
        copies += [copy] if isinstance(copy, Quantity) else []
    return DeviceCeiling(
        machine_sha=place[0],
        device=place[1],
        threads=place[2],
        flops_per_s=products,
        bytes_per_s=max(copies, key=lambda rate: rate.median, default=None),
        findings=tuple(dict.fromkeys(id for id, _ in entries if id)),  # a printed finding has no id
    )


def _higher(known: Quantity | None, other: Quantity) -> Quantity:
    return other if known is None or other.median > known.median else known


def _ceiling_words(found: DeviceCeiling) -> Statement:
    where = found.device if not found.threads else f"{found.device} with {counted(found.threads, 'thread')}"
    words = [
        f"{count(rate.median, 'FLOP/s')} in {precision} ({_counts_span(rate)})"
        for precision, rate in found.flops_per_s.items()
    ]
    copy = found.bytes_per_s
    copied = f"; the fastest copy {count(copy.median, 'B/s')} ({_counts_span(copy)}), read and written" if copy else ""
    return statement(
        f"The ceilings of {where}: the fastest matrix product reaches {listed(words)}{copied}.",
        rank=_CEILINGS,
        findings=found.findings,
        how="the best of several sizes and of every framework; 95 % intervals within one process",
    )


def _counts_span(value: Quantity) -> str:
    return span(value, count)


def _share_of_ceiling(star: Star, known: Sequence[DeviceCeiling]) -> Iterator[Statement]:
    """Give the share of the product in the step's precision, including the ceiling's interval if it has one."""
    reached = measure_named("flops_per_s").of(star.base)
    if isinstance(reached, Absent) or star.base.is_thin:
        return
    precision = product_precision(str(value_of(star.base.record, "precision")))
    ceiling = next((each for each in known if _holds_for(each, star) and precision in each.flops_per_s), None)
    of_runs = [
        Quantity.without_interval(peak.peak_flops_per_s)
        for record in star.base.good
        if isinstance(peak := record.share_of_peak, ShareOfPeak)
    ]
    peaks = of_runs if ceiling is None else [ceiling.flops_per_s[precision], *of_runs]
    if not peaks:
        return
    peak = max(peaks, key=lambda each: each.median)
    in_report = ceiling is not None and peak is ceiling.flops_per_s[precision]
    reached_share = ratio_of_bounds(reached, peak) if peak.has_interval else reached.scaled(1 / peak.median)
    is_low = reached_share.median > 1
    what = f"{capital(doing(star))} with {base_words(star)}"
    yield statement(
        f"{what} does {count(reached.median, 'FLOP/s')}, more than the fastest {precision} matrix product that was "
        f"measured ({count(peak.median, 'FLOP/s')}), which is too low a ceiling; `deepstone doctor --peaks` measures "
        "it again."
        if is_low
        else f"{what} reaches {share(below_one(reached_share))} of the fastest {precision} matrix product.",
        rank=_SHARE,
        runs=star.base.runs,
        findings=ceiling.findings if ceiling is not None and in_report else (),
        how="FLOPs of convolutions and dense layers over time, over the ceiling; bounds from both intervals"
        if in_report
        else "FLOPs of convolutions and dense layers over time, over the ceiling known to the run",
    )


def _holds_for(ceiling: DeviceCeiling, star: Star) -> bool:
    record = star.base.record
    device = str(value_of(record, "device"))
    if ceiling.machine_sha != record.identity.machine_sha or ceiling.device != device:
        return False
    return device != "cpu" or ceiling.threads == value_of(record, "threads")


def say_layers(findings: Sequence[Finding]) -> Iterator[Statement]:
    for finding in findings:
        for part in finding.leaves():
            table = part.content
            if isinstance(table, LayerTable) and part.outcome == "ok" and table.layers:
                yield from _where_time_goes(finding.id or "", part, table)


def _where_time_goes(id: str, finding: Finding, table: LayerTable) -> Iterator[Statement]:
    """Name the largest group, the second, and the costliest layer; nothing if the intervals do not show the largest.

    Shares are of the time in layers; each was measured.
    """
    times = _times(table)
    shares = {name: _share_of_time([time for time in times if time.op in ops], times) for name, ops in GROUPS.items()}
    (name, largest), *others = sorted(shares.items(), key=lambda item: -item[1].median)
    workload, setup = finding.workload, finding.setup
    if largest.low <= others[0][1].high or workload is None or setup is None:
        return
    second = f", {others[0][0]} {share(others[0][1])}" if others[0][1].median else ""
    framework = setup.value("framework").replace("@", " ")
    step = f"{_PHASES[workload.phase]} of {finding.model} (batch {workload.batch}, {framework})"
    yield statement(
        f"{capital(name)} take {share(largest)} of the time in layers of {step}{second}.{_costliest(times)}",
        rank=_LAYERS,
        findings=[id] if id else [],
        how=f"{table.method}; bounds from the 95 % intervals of all layers",
    )


def _costliest(times: Sequence[_Time]) -> str:
    """Name the layer that takes most time, if the intervals show which one."""
    first, second = sorted(times, key=lambda time: -time.median_s)[:2] if len(times) > 1 else (None, None)
    if first is None or second is None or first.low_s <= second.high_s:
        return ""
    return f" The costliest layer is {first.name} with {share(_share_of_time([first], times))}."


class _Time(Struct, frozen=True, kw_only=True):
    """The time of both passes of a layer."""

    name: str
    op: str
    median_s: float
    low_s: float
    high_s: float
    no_interval: str


def _times(table: LayerTable) -> list[_Time]:
    """Return all times in place, or else all isolated ones: the two are never mixed."""
    in_place = not isinstance(table.sum_s, Absent)
    times: list[_Time] = []
    for layer in table.layers:
        source = layer if in_place else layer.isolated
        found = () if isinstance(source, Absent) else (source.forward_s, source.backward_s)
        passes = [each for each in found if not isinstance(each, Absent)]
        times.append(
            _Time(
                name=layer.name,
                op=layer.op,
                median_s=sum(each.median for each in passes),
                low_s=sum(each.low for each in passes),
                high_s=sum(each.high for each in passes),
                no_interval=why_no_interval(passes),
            )
        )
    return times


def _share_of_time(members: Sequence[_Time], times: Sequence[_Time]) -> Quantity:
    """The lower end takes the lower ends of these and the upper ends of the others; the upper end the reverse."""
    others = [time for time in times if not any(time is member for member in members)]

    def part(inside_s: float, outside_s: float) -> float:
        return inside_s / (inside_s + outside_s) if inside_s + outside_s > 0 else 0.0

    median = part(sum(time.median_s for time in members), sum(time.median_s for time in others))
    why = next((time.no_interval for time in times if time.no_interval), "")
    if why:
        return Quantity.without_interval(median, n=len(members), why=why)
    return Quantity.of(
        median=median,
        low=part(sum(time.low_s for time in members), sum(time.high_s for time in others)),
        high=part(sum(time.high_s for time in members), sum(time.low_s for time in others)),
        n=len(members),
    )


def say_energy(found: Sequence[Star]) -> Iterator[Statement]:
    mains = [star for star in found if star.is_main and star.base.good]
    measured = [(star, energy) for star in mains if not isinstance(energy := joules_per_sample(star.base), Absent)]
    for star, energy in measured:
        yield statement(
            f"Training {star.model} with {base_words(star)} takes {digits(energy.median)} J an image "
            f"({span(energy)}){_covered(star.base.record)}.",
            rank=_ENERGY,
            runs=star.base.runs,
            how="across rounds" if len(star.base.good) > 1 else "one window; bounds from the resolution of the meter",
        )
    if mains and not measured:
        reasons = dict.fromkeys(_why_no_energy(record) for star in mains for record in star.base.good)
        yield statement(
            f"Energy was not measured: {'; '.join(reasons)}.",
            rank=_NO_ENERGY,
            runs=[run for star in mains for run in star.base.runs],
        )


def _covered(record: Record) -> str:
    meters = () if isinstance(record.energy, Absent) else record.energy.meters
    covers = [meter.covers.split(",")[-1].strip() for meter in meters]
    return f", {' and '.join(dict.fromkeys(covers))}" if covers else ""


def _why_no_energy(record: Record) -> str:
    energy = record.energy
    return energy.reason if isinstance(energy, Absent) else "the counter did not move"
