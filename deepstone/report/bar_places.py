"""Where each piece of a bar lies, for both drawers: rows count downwards from 0, lengths are values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from deepstone.report.figure import BarChart, BarRow, Segment
from deepstone.report.scales import Scale, axis_scale

_FILLED: Final = 0.78  # how much of a row's height its bars take


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """`middle` is a height in rows; the piece of a bar lies from `start` to `end`."""

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
        """How far to the right it and its interval go."""
        high = self.segment.value.high
        return self.end if high is None else max(self.end, self.start + high)


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """What stands behind a bar or a row, and where it begins. `details` are for who points at a gap."""

    text: str
    row: int
    middle: float
    start: float
    gap: bool = False
    details: tuple[str, ...] = ()


def bars_per_row(bars: BarChart) -> int:
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


def measured(found: Sequence[Piece], least: float | None) -> list[tuple[Piece, float, float]]:
    """Those with an interval, and how far it reaches below and above; not below the least that an axis can show."""
    known = [(piece, piece.segment.value) for piece in found]
    return [
        (piece, value.middle - (value.low if least is None else max(least, value.low)), value.high - value.middle)
        for piece, value in known
        if value.low is not None and value.high is not None
    ]


def words_behind(bars: BarChart) -> list[Words]:
    """The notes of rows, then the labels of bars; where there is no bar, at the beginning of the axis."""
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
    return _FILLED / bars_per_row(bars)


def _middle(at: int, number: int, row: BarRow, thickness: float) -> float:
    return at + (number - (len(row.bars) - 1) / 2) * thickness
