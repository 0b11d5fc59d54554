"""One step of several processes: a lane for each rank with what it computes, reduces and waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from deepstone.absent import Absent
from deepstone.report import palette
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.figures.captions import first_processes, parallel_part, record_figure
from deepstone.report.panels import Axis, BarChart, BarLabel, BarRow, Lane, LaneChart, Segment, Series, TimeSpan
from deepstone.report.table import Table, Unit, name_columns, number_columns, value_of
from deepstone.report.wording import SHOWN
from deepstone.results.parallel import Account, Bubbles, Parallel, Span, Timeline
from deepstone.results.parallel import Lane as RankLane
from deepstone.results.quantity import Quantity
from deepstone.results.record import Record
from deepstone.units import bytes_, percent, seconds

_LANES_AT_MOST: Final = 32
_VISIBLE_SHARE: Final = 5e-4  # of the step; what is shorter is only in the table
_SERIES: Final = (
    Series(name="data", colour=palette.DATA),
    Series(name="buffers from rank 0", colour=palette.BUFFERS),
    Series(name="forward", colour=palette.FORWARD),
    Series(name="backward", colour=palette.BACKWARD),
    Series(name="packing", colour=palette.PACKING),
    Series(name="update", colour=palette.UPDATE),
    Series(name="reduction in flight", colour=palette.REDUCTION),
    Series(name="other", colour=palette.TOTAL),
    Series(name="waiting for others", colour=palette.WAITING),  # above the others: it may be inside one of them
)
_SERIES_OF: Final = {
    "data": 0,
    "buffers": 1,
    "forward": 2,
    "backward": 3,
    "pack": 4,
    "unpack": 4,
    "update": 5,
    "reduce": 6,
    "waiting": 8,
}
_OTHER: Final = 7
_PARTS: Final = (
    Series(name="several processes add to a step", colour=palette.TOTAL),
    Series(name="a part of it", colour=palette.REDUCTION),
    Series(name="not explained", colour=palette.VERMILLION),
)


def timeline(record: Record) -> Figure:
    """Make the figure. Raises NothingToDrawError if no step of the run was traced."""
    parallel = parallel_part(record, "timeline")
    if isinstance(parallel.timeline, Absent):
        raise NothingToDrawError(f"no step was traced: {parallel.timeline.reason}")
    found, account = parallel.timeline, _account(parallel)
    lanes = found.lanes[:_LANES_AT_MOST]
    return record_figure(
        record,
        "timeline",
        f"one step of {parallel.world} processes",
        about=f"traced step {seconds(found.step_s)}",
        panels=(_lanes(found, lanes), *(() if account is None else (_bars(account),))),
        caption=(
            "A traced step, the one whose time is in the middle of all of them. Traced steps follow the timed ones and "
            "are never reported as speed.",
            *first_processes(lanes, found.lanes),
            *_account_caption(parallel),
        ),
        table=_table(found, account),
    )


def _lanes(found: Timeline, lanes: Sequence[RankLane]) -> LaneChart:
    visible_s = found.step_s * _VISIBLE_SHARE
    return LaneChart(
        title="A step, process by process",
        axis=Axis(label="time since the step began", unit=Unit.SECONDS),
        series=_SERIES,
        lanes=tuple(
            Lane(label=f"rank {lane.rank}{_stages(lane)}", tracks=tuple(_tracks(lane, visible_s))) for lane in lanes
        ),
    )


def _stages(lane: RankLane) -> str:
    """Those of a pipeline that a process has."""
    found = sorted({span.stage for span in lane.spans if span.stage is not None})
    return f", stage {' and '.join(map(str, found))}" if found else ""


def _tracks(lane: RankLane, visible_s: float) -> Iterator[tuple[TimeSpan, ...]]:
    """Computing, then reductions: a bucket takes the first track that is free."""
    computing = (span for span in lane.spans if span.kind != "reduce" and span.end_s - span.begin_s >= visible_s)
    yield tuple(_span(span, _name(span)) for span in computing)
    tracks: list[list[TimeSpan]] = []
    buckets = sorted((span for span in lane.spans if span.kind == "reduce"), key=lambda span: span.begin_s)
    for number, bucket in enumerate(buckets, start=1):
        free = next((track for track in tracks if track[-1].end <= bucket.begin_s), None)
        if free is None:
            tracks.append(free := [])
        free.append(_span(bucket, f"bucket {number}", bytes_(bucket.bytes)))
    yield from map(tuple, tracks)


def _name(span: Span) -> str:
    """`F2`: forward of microbatch 2, in a pipeline."""
    return span.kind if span.microbatch is None else f"{span.kind[0].upper()}{span.microbatch}"


def _span(span: Span, name: str, *details: str) -> TimeSpan:
    when = f"{seconds(span.end_s - span.begin_s)}, from {seconds(span.begin_s)} to {seconds(span.end_s)}"
    return TimeSpan(
        series=_SERIES_OF.get(span.kind, _OTHER),
        start=float(span.begin_s),
        end=float(span.end_s),
        label=name,
        details=(f"{name}: {when}", *details),
    )


def _account(parallel: Parallel) -> Account | None:
    communication = parallel.communication
    if isinstance(communication, Absent) or isinstance(communication.account, Absent):
        return None
    return communication.account


def _account_caption(parallel: Parallel) -> Iterator[str]:
    communication, bubbles = parallel.communication, parallel.bubbles
    if isinstance(bubbles, Bubbles):
        yield (
            f"F0 is forward of microbatch 0, B0 its backward. Where nothing is drawn, a process waits: "
            f"{_percent(bubbles.share)} of a step in the mean, {_percent(bubbles.replayed_share)} if the same passes "
            f"needed no communication, {percent(bubbles.ideal_share)} if all stages were equal too. Time 0 is when the "
            "last process has ended the step before; the first stage may begin before that, which is not drawn."
        )
    elif isinstance(communication, Absent):
        yield f"Communication: {communication.reason}."
    elif isinstance(communication.account, Absent):
        yield f"What communication adds to a step is not known: {communication.account.reason}."
    else:
        yield (
            "The lower panel is the mean over processes, and over the steps of the middle half: waiting, another "
            "process still computes; tail, all are done with computing and gradients are still being reduced; "
            "slowdown, computing takes longer beside reductions; packing, gradients are copied into buffers and back."
        )


def _percent(share: Quantity) -> str:
    return f"{percent(share.median)} ({share.span_in_words(percent)})" if share.has_interval else percent(share.median)


def _bars(account: Account) -> BarChart:
    parts = [("total", account.total_s), *account.parts.items()]
    rows: list[BarRow] = []
    for name, quantity in parts:
        value = value_of(quantity)
        if isinstance(value, Absent):
            continue
        series = 0 if name == "total" else 2 if name == "residual" else 1
        text = (
            quantity.time_in_words() if quantity.is_resolved else f"{SHOWN[Unit.SECONDS](value.middle)}, not resolved"
        )
        segment = Segment(series=series, value=value)
        rows.append(BarRow(label=name, bars=((segment,),), bar_labels=(BarLabel(text=text),)))
    return BarChart(
        title="What several processes add to a step",
        axis=Axis(label="time", unit=Unit.SECONDS),
        series=_PARTS,
        rows=tuple(rows),
    )


def _table(found: Timeline, account: Account | None) -> Table:
    rows = [
        (f"rank {lane.rank}", _name(span), float(span.begin_s), float(span.end_s), float(span.end_s - span.begin_s))
        for lane in found.lanes[:_LANES_AT_MOST]
        for span in lane.spans
    ]
    parts = {} if account is None else {"total": account.total_s, **account.parts}
    return Table(
        columns=(*name_columns("process", "part"), *number_columns(Unit.SECONDS, "begins", "ends", "takes")),
        rows=(*rows, *(("mean of all", name, None, None, value_of(part)) for name, part in parts.items())),
    )
