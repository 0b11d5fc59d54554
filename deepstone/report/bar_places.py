"""Where each piece of a bar lies, for both drawers: rows count downwards from 0, lengths are values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deepstone.report.figure import BarChart, BarLabel, BarRow, Unit, Value
from deepstone.report.scales import Scale, linear_scale, log_scale, ratio_scale

FILLED: Final = 0.78  # how much of a row's height its bars take


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """`middle` is a height in rows; the piece lies from `start` to `start + value`."""

    row: int
    bar: int
    series: int
    middle: float
    thickness: float
    start: float
    value: Value
    details: tuple[str, ...] = ()

    @property
    def end(self) -> float:
        return self.start + self.value.middle


@dataclass(frozen=True, kw_only=True, slots=True)
class BarLabelPlace:
    """Where the words behind one bar begin."""

    bar_label: BarLabel
    row: int
    middle: float
    start: float


def bars_per_row(bars: BarChart) -> int:
    return max((len(row.bars) for row in bars.rows), default=1) or 1


def pieces(bars: BarChart) -> tuple[Piece, ...]:
    thickness = FILLED / bars_per_row(bars)
    return tuple(piece for at, row in enumerate(bars.rows) for piece in _pieces(at, row, thickness))


def reach(piece: Piece) -> float:
    """How far to the right a piece and its interval go."""
    return max(piece.end, piece.start + (piece.value.high if piece.value.high is not None else piece.value.middle))


def extent(bars: BarChart) -> list[float]:
    """Every place that an axis must hold."""
    found: list[float] = []
    for piece in pieces(bars):
        low = piece.value.low if piece.value.low is not None else piece.value.middle
        found += [piece.start, piece.end, piece.start + low, reach(piece)]
    return found


def row_reach(bars: BarChart) -> list[float]:
    """How far to the right each row goes; 0 for one without bars."""
    reached = [0.0] * len(bars.rows)
    for piece in pieces(bars):
        reached[piece.row] = max(reached[piece.row], reach(piece))
    return reached


def bar_label_places(bars: BarChart) -> tuple[BarLabelPlace, ...]:
    """Behind each bar that has words; where there is no bar, at the beginning of the axis."""
    least = bars_scale(bars).low if bars.axis.log else 0.0
    ends: dict[tuple[int, int], float] = {}
    for piece in pieces(bars):
        key = piece.row, piece.bar
        ends[key] = max(ends.get(key, least), reach(piece))
    thickness = FILLED / bars_per_row(bars)
    return tuple(
        BarLabelPlace(
            bar_label=bar_label, row=at, middle=_middle(at, number, row, thickness), start=ends.get((at, number), least)
        )
        for at, row in enumerate(bars.rows)
        for number, bar_label in enumerate(row.bar_labels)
        if bar_label.text
    )


def bars_scale(bars: BarChart) -> Scale:
    if not bars.axis.log:
        return linear_scale(bars.axis.unit, extent(bars))
    places = [*extent(bars), *([bars.reference] if bars.reference else [])]
    return ratio_scale(places) if bars.axis.unit is Unit.RATIO else log_scale(bars.axis.unit, places)


def _middle(at: int, number: int, row: BarRow, thickness: float) -> float:
    return at + (number - (len(row.bars) - 1) / 2) * thickness


def _pieces(at: int, row: BarRow, thickness: float) -> list[Piece]:
    found: list[Piece] = []
    for number, segments in enumerate(row.bars):
        start = 0.0
        middle = _middle(at, number, row, thickness)
        for segment in segments:
            found.append(
                Piece(
                    row=at,
                    bar=number,
                    series=segment.series,
                    middle=middle,
                    thickness=thickness,
                    start=start,
                    value=segment.value,
                    details=segment.details,
                )
            )
            start += segment.value.middle
    return found
