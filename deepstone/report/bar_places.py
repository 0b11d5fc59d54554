"""Positions of bars and their parts, for both renderers: rows count downwards from 0, lengths are values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from msgspec import Struct

from deepstone.report.panels import BarChart, BarRow, Segment
from deepstone.report.scales import Scale, axis_scale

_Length = TypeVar("_Length", int, float)

_FILLED: Final = 0.78  # share of a row's height for its bars
_WITHIN: Final = 0.86  # share of a bar's thickness for its whiskers
_BESIDE: Final = 0.006  # of the axis: distance between whiskers in one line, for their caps


class Piece(Struct, frozen=True, kw_only=True):
    """A part of a bar, from `start` to `end`; `middle` is its height in rows."""

    row: int
    bar: int
    middle: float
    thickness: float
    start: float
    segment: Segment

    @property
    def end(self) -> float:
        return self.start + self.segment.value.middle

    @property
    def reach(self) -> float:
        """Return the right end of the piece with its interval."""
        high = self.segment.value.high
        return self.end if high is None else max(self.end, self.start + high)


class Whisker(Struct, frozen=True, kw_only=True):
    """The interval of a piece, from `low` to `high` along the axis; `middle` is its height in rows."""

    piece: Piece
    low: float
    high: float
    middle: float


class Words(Struct, frozen=True, kw_only=True):
    """Text behind a bar or a row, with its start. `details` are shown when the pointer is on a gap."""

    text: str
    row: int
    middle: float
    start: float
    gap: bool = False
    details: tuple[str, ...] = ()


class RowSize(Struct, Generic[_Length], frozen=True, kw_only=True):
    """The height of a row's parts, in pixels or inches; a single bar is thicker than one of several."""

    bar: _Length
    single_bar: _Length
    between_rows: _Length

    def of_row(self, bars: BarChart) -> _Length:
        in_row = _bars_per_row(bars)
        return (self.single_bar if in_row == 1 else self.bar * in_row) + self.between_rows


def _bars_per_row(bars: BarChart) -> int:
    return max((len(row.bars) for row in bars.rows), default=1) or 1


def pieces(bars: BarChart) -> tuple[Piece, ...]:
    thickness = _thickness(bars)
    return tuple(
        Piece(
            row=at,
            bar=number,
            middle=_middle(at, number, row, thickness),
            thickness=thickness,
            start=sum((before.value.middle for before in segments[:place]), 0.0),
            segment=segment,
        )
        for at, row in enumerate(bars.rows)
        for number, segments in enumerate(row.bars)
        for place, segment in enumerate(segments)
    )


def whiskers(bars: BarChart) -> list[Whisker]:
    """Return the intervals of all pieces that have one, cut at the lower end of the axis.

    Overlapping intervals of one stacked bar lie side by side within its thickness.
    """
    scale = bars_scale(bars)
    beside = _BESIDE * (scale.high - scale.low)
    by_bar: dict[tuple[int, int], list[tuple[Piece, float, float]]] = {}
    for piece in pieces(bars):
        value = piece.segment.value
        if value.low is None or value.high is None:
            continue
        low, high = piece.start + value.low, piece.start + value.high
        low = max(scale.low, low) if scale.log else low
        by_bar.setdefault((piece.row, piece.bar), []).append((piece, low, high))
    found: list[Whisker] = []
    for known in by_bar.values():
        lanes = _lanes([(low, high) for _, low, high in known], beside)
        count = max(lanes) + 1
        for (piece, low, high), lane in zip(known, lanes, strict=True):
            middle = piece.middle + ((lane + 0.5) / count - 0.5) * piece.thickness * _WITHIN
            found.append(Whisker(piece=piece, low=low, high=high, middle=middle))
    return found


def _lanes(spans: Sequence[tuple[float, float]], beside: float) -> list[int]:
    """Return for each span the first lane in which it overlaps no earlier one."""
    taken: list[list[tuple[float, float]]] = []
    lanes: list[int] = []
    for low, high in spans:
        free = (
            at
            for at, others in enumerate(taken)
            if all(low > end + beside or high < start - beside for start, end in others)
        )
        lane = next(free, len(taken))
        if lane == len(taken):
            taken.append([])
        taken[lane].append((low, high))
        lanes.append(lane)
    return lanes


def words_behind(bars: BarChart) -> list[Words]:
    """Return the notes of rows, then the labels of bars; without a bar they start at the origin of the axis."""
    least = bars_scale(bars).low if bars.axis.log else 0.0
    reached: dict[tuple[int, int | None], float] = {}
    for piece in pieces(bars):
        for key in ((piece.row, piece.bar), (piece.row, None)):
            reached[key] = max(reached.get(key, least), piece.reach)
    notes = [
        Words(text=row.note, row=at, middle=at, start=reached.get((at, None), least))
        for at, row in enumerate(bars.rows)
        if row.note
    ]
    labels = [
        Words(
            text=label.text,
            row=at,
            middle=_middle(at, number, row, _thickness(bars)),
            start=reached.get((at, number), least),
            gap=label.gap,
            details=label.details,
        )
        for at, row in enumerate(bars.rows)
        for number, label in enumerate(row.bar_labels)
        if label.text
    ]
    return [*notes, *labels]


def bars_scale(bars: BarChart) -> Scale:
    places = [bars.reference] if bars.reference and bars.axis.log else []
    for piece in pieces(bars):
        low = piece.segment.value.low
        places += [piece.start, piece.end, piece.end if low is None else piece.start + low, piece.reach]
    return axis_scale(bars.axis, places)


def _thickness(bars: BarChart) -> float:
    return _FILLED / _bars_per_row(bars)


def _middle(at: int, number: int, row: BarRow, thickness: float) -> float:
    return at + (number - (len(row.bars) - 1) / 2) * thickness
