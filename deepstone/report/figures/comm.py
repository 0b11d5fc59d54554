"""Communication between processes: bandwidth and time over the size of a message, and a model's own buckets.

Results of several networks can share a figure: each then names its curves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.figures.captions import doubt_words, finding_figure, missing_whiskers
from deepstone.report.palette import hue
from deepstone.report.panels import (
    Axis,
    BarChart,
    BarLabel,
    BarRow,
    Line,
    LineChart,
    Marker,
    Panel,
    Point,
    PointGroup,
    ScatterPlot,
    Segment,
    Series,
)
from deepstone.report.table import Column, Table, Unit, Value, name_columns, number_columns, value_of
from deepstone.report.wording import SHOWN
from deepstone.results.comm import CommCurve, CommCurves, CommFit, CommPoint
from deepstone.results.findings import Finding
from deepstone.results.quantity import Quantity
from deepstone.setups.transfers import TRANSFERS
from deepstone.units import bytes_, digits

NETWORKS: Final = "networks"  # by which several results are put together
_FITS_IN_WORDS: Final = 4
_PER_OCTAVE: Final = 2  # points of a fitted line
_SIZE: Final = Axis(label="size of the message", unit=Unit.BYTES, log=True)
_BANDWIDTH: Final = Axis(label="bus bandwidth", unit=Unit.BYTES_PER_S, log=True)
_TIME: Final = Axis(label="time", unit=Unit.SECONDS, log=True)
_STEP: Final = Axis(label="all buckets of a step, one after the other", unit=Unit.SECONDS)


class _Named(Struct, frozen=True, kw_only=True):
    """A curve, with the name of its network if there are several, and its series in every panel."""

    network: str
    curve: CommCurve
    series: Series


def bandwidth(finding: Finding) -> Figure:
    """Bus bandwidth over sizes; of a model first what a step's buckets take."""
    curves = _curves(finding)
    panels: list[Panel] = [*_buckets(curves), *_panels(curves, _bandwidth_panel)]
    return _figure(finding, "bandwidth", "how fast processes send each other data", panels, curves)


def time(finding: Finding) -> Figure:
    curves = _curves(finding)
    panels = list(_panels(curves, _time_panel))
    return _figure(finding, "time", "how long processes take to send each other data", panels, curves)


def together(findings: Mapping[str, Finding]) -> Finding:
    """Results of several networks as one, by name."""
    first = next(iter(findings.values()))
    return Finding(schema=1, kind=first.kind, outcome="ok", model="", parts=dict(findings), parts_by=NETWORKS)


def _parts(finding: Finding) -> dict[str, CommCurves]:
    parts = finding.parts if finding.parts is not None and finding.parts_by == NETWORKS else {"": finding}
    return {name: part.content for name, part in parts.items() if isinstance(part.content, CommCurves)}


def _curves(finding: Finding) -> list[_Named]:
    contents = _parts(finding)
    measured = [
        (network, curve)
        for network, content in contents.items()
        for curve in content.curves
        if any(point.seconds for point in curve.points)
    ]
    if not measured:
        raise NothingToDrawError("no transfer was measured; `deepstone comm` measures them")
    names = list(dict.fromkeys(_name(network, curve, measured) for network, curve in measured))
    series = {name: Series(name=name, colour=hue(at), marker=_marker(at)) for at, name in enumerate(names)}
    return [
        _Named(network=network, curve=curve, series=series[_name(network, curve, measured)])
        for network, curve in measured
    ]


def _marker(position: int) -> Marker:
    """Once all colours are taken, another shape."""
    return "diamond" if position >= 6 else "circle"


def _name(network: str, curve: CommCurve, among: Sequence[tuple[str, CommCurve]]) -> str:
    """What tells it from the others: network, transport, processes; the transport if nothing does."""
    several = {
        "network": len({name for name, _ in among}) > 1,
        "transport": len({each.transport for _, each in among}) > 1,
        "processes": len({(each.processes, each.nodes) for _, each in among}) > 1,
    }
    words = [network] if several["network"] else []
    if several["transport"] or not any(several.values()):
        words.append(curve.transport)
    if several["processes"]:
        words.append(f"{curve.processes} processes" + (f" on {curve.nodes} nodes" if curve.nodes > 1 else ""))
    return ", ".join(words)


def _panels(curves: Sequence[_Named], make: Callable[[str, Sequence[_Named]], Panel]) -> Iterator[Panel]:
    for operation in dict.fromkeys(each.curve.operation for each in curves):
        yield make(operation, [each for each in curves if each.curve.operation == operation])


def _title(operation: str) -> str:
    title = TRANSFERS[operation].title if operation in TRANSFERS else operation
    return title[:1].upper() + title[1:]


def _points(each: _Named, of: Callable[[CommPoint], Quantity | Absent]) -> PointGroup:
    """Those that were measured; a wrong result is a gap with its reason."""
    points = [
        Point(x=point.bytes, y=value, details=(bytes_(point.bytes),))
        for point in each.curve.points
        if not isinstance(value := value_of(of(point)), Absent) and value.middle > 0
    ]
    gaps = [(point.bytes, point.time_s.reason) for point in each.curve.points if isinstance(point.time_s, Absent)]
    return PointGroup(series=each.series, points=tuple(points), gaps=tuple(gaps))


def _bandwidth_panel(operation: str, curves: Sequence[_Named]) -> LineChart:
    groups = tuple(_points(each, lambda point: point.busbw) for each in curves)
    return LineChart(title=_title(operation), x=_SIZE, y=_BANDWIDTH, curves=groups)


def _time_panel(operation: str, curves: Sequence[_Named]) -> ScatterPlot:
    return ScatterPlot(
        title=_title(operation),
        x=_SIZE,
        y=_TIME,
        lines=tuple(line for each in curves for line in _fitted(each.curve)),
        groups=tuple(_points(each, lambda point: point.time_s) for each in curves),
    )


def _fitted(curve: CommCurve) -> Iterator[Line]:
    """One line for each segment, bent as a straight one is on logarithmic axes."""
    fit = curve.fit
    if isinstance(fit, Absent):
        return
    for segment in fit.segments:
        span = segment.to_bytes / segment.from_bytes
        count = 2 + math.ceil(_PER_OCTAVE * math.log2(span))
        sizes = [segment.from_bytes * span ** (at / (count - 1)) for at in range(count)]
        points = tuple((size, segment.alpha_s + segment.beta_s_per_byte * size) for size in sizes)
        yield Line(label="", points=tuple(point for point in points if point[1] > 0))


def _buckets(curves: Sequence[_Named]) -> Iterator[BarChart]:
    """One bar for each transport and number of processes, with a segment for each bucket."""
    own = [each for each in curves if each.curve.buckets is not None]
    for operation in dict.fromkeys(each.curve.operation for each in own):
        rows = [_bucket_row(each) for each in own if each.curve.operation == operation]
        most = max(len(bar) for row in rows for bar in row.bars)
        series = tuple(Series(name=f"bucket {at + 1}", colour=hue(at)) for at in range(most))
        yield BarChart(title=f"{_title(operation)} of a step's gradients", axis=_STEP, series=series, rows=tuple(rows))


def _bucket_row(each: _Named) -> BarRow:
    buckets = each.curve.buckets
    assert buckets is not None
    times = {point.bytes: point.time_s for point in each.curve.points}
    segments: list[Segment] = []
    for at, size in enumerate(buckets.bytes):
        time_s = value_of(times.get(size))
        if not isinstance(time_s, Absent):
            segments.append(Segment(series=at, value=Value(middle=time_s.middle), details=(bytes_(size),)))
    total = value_of(buckets.sum_s)
    words = total.reason if isinstance(total, Absent) else _span(total)
    label = BarLabel(text=words, gap=isinstance(total, Absent))
    return BarRow(label=each.series.name, bars=(tuple(segments),), bar_labels=(label,))


def _span(value: Value) -> str:
    shown = SHOWN[Unit.SECONDS]
    if value.low is None or value.high is None:
        return shown(value.middle)
    return f"{shown(value.middle)} ({shown(value.low)} – {shown(value.high)})"


def _figure(finding: Finding, name: str, title: str, panels: Sequence[Panel], curves: Sequence[_Named]) -> Figure:
    contents = _parts(finding)
    doubts = [doubt_words(doubt, network) for network, content in contents.items() for doubt in content.doubts]
    failed = [
        f"{each.transport}, {each.processes} processes: {each.reason}"
        for content in contents.values()
        for each in content.failed
    ]
    caption = (*_caption(name, curves), *missing_whiskers(panels), *failed)
    return finding_figure(
        finding,
        name,
        title,
        panels=panels,
        caption=caption,
        table=_table(curves),
        about=_subtitle(curves),
        doubted=doubts,
    )


def _subtitle(curves: Sequence[_Named]) -> str:
    """What all curves share."""
    shared = [
        {
            f"{each.curve.processes} processes" + (f" on {each.curve.nodes} nodes" if each.curve.nodes > 1 else "")
            for each in curves
        },
        {each.curve.device for each in curves},
        {each.curve.library for each in curves if each.curve.library},
    ]
    return " · ".join(next(iter(words)) for words in shared if len(words) == 1)


def _caption(name: str, curves: Sequence[_Named]) -> Iterator[str]:
    if name == "time":
        yield "Lines are fits: time = alpha + beta × bytes, in as many segments as the points call for."
        for each in curves if len(curves) <= _FITS_IN_WORDS else ():
            if not isinstance(each.curve.fit, Absent):
                yield f"{each.series.name}, {each.curve.operation}: {_fit_words(each.curve.fit)}."
    else:
        yield "Bus bandwidth: bytes over time, times the factor of nccl-tests, so that operations can be compared."
    yield "Every result was checked. Times are those of the slowest process."
    for each in curves:
        if each.curve.left_out:
            yield f"{each.series.name}, {each.curve.operation}: left out {each.curve.left_out}."


def _fit_words(fit: CommFit) -> str:
    pieces = [
        f"{SHOWN[Unit.SECONDS](each.alpha_s)} + {digits(each.beta_s_per_byte * 1e9)} ns/byte up to "
        f"{bytes_(each.to_bytes)}"
        for each in fit.segments
    ]
    return f"{'; '.join(pieces)} (residual {digits(100 * fit.residual, 2)} %)"


def _table(curves: Sequence[_Named]) -> Table:
    several = len({each.series.name for each in curves}) > 1
    rows = [
        (
            *((each.series.name,) if several else ()),
            each.curve.operation,
            point.bytes,
            value_of(point.time_s),
            value_of(point.algbw),
            value_of(point.busbw),
            "yes" if point.checked else "no",
        )
        for each in curves
        for point in each.curve.points
    ]
    columns = (
        *(name_columns("curve") if several else ()),
        *name_columns("operation"),
        *number_columns(Unit.BYTES, "size"),
        *number_columns(Unit.SECONDS, "time"),
        *number_columns(Unit.BYTES_PER_S, "algbw", "busbw"),
        Column(heading="checked"),
    )
    return Table(columns=columns, rows=tuple(rows))
