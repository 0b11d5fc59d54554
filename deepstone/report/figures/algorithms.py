"""The convolution lab as a heat map: each algorithm's time against the best one for the same layer and pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from string import ascii_lowercase
from typing import Final

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.figures import captions
from deepstone.report.figures.captions import costliest, others_in_words
from deepstone.report.panels import Cell, HeatMap
from deepstone.report.table import Column, Table, TableCell, Unit, Value, name_columns, value_of
from deepstone.report.wording import share, value_words
from deepstone.results.convolutions import ConvolutionLab, ConvolutionRow, ConvolutionShape, Pass, Tried
from deepstone.results.findings import Finding
from deepstone.units import bytes_, seconds

_PASSES: Final[Mapping[Pass, str]] = {"forward": "forward", "data": "data gradient", "weight": "weight gradient"}
_NOT_TRIED: Final = Absent("not tried")
_REFERENCE: Final = Absent("a reference implementation, for counts and error only: its speed says nothing")
_ROWS_AT_MOST: Final = 60
_COLUMNS_AT_MOST: Final = 20
_WORDS: Final = ("layer", "shape", "pass", "algorithm", "picked")
_NUMBERS: Final = (
    Column(heading="time", unit=Unit.SECONDS),
    Column(heading="times the best", unit=Unit.NUMBER),
    Column(heading="workspace", unit=Unit.BYTES),
    Column(heading="GFLOP", unit=Unit.GIGAFLOPS),
    Column(heading="relative error", unit=Unit.RELATIVE_ERROR),
)
_LETTERS: Final = ascii_lowercase[:11]
_ANOTHER: Final = "z"


class _Row(Struct, frozen=True, kw_only=True):
    """One pass of one layer, with its tried algorithms."""

    layer: str
    shape: str
    direction: Pass
    tries: Mapping[str, Tried]

    def time(self, algorithm: str) -> Value | Absent:
        tried = self.tries.get(algorithm)
        if tried is None:
            return _NOT_TRIED
        return _REFERENCE if tried.kind == "reference" else value_of(tried.time_s)

    @property
    def best_s(self) -> float:
        """Return the best time, or 0 if nothing was timed."""
        times = [self.time(algorithm) for algorithm in self.tries]
        return min((time.middle for time in times if isinstance(time, Value) and time.middle > 0), default=0.0)


class _Footnotes(Struct, frozen=True):
    """Reasons for empty cells: a letter in the cell, and its meaning below the figure."""

    letters: Mapping[str, str]

    @staticmethod
    def of(reasons: Iterable[str]) -> _Footnotes:
        """Assign letters to the most frequent reasons."""
        common = [reason for reason, _ in Counter(reasons).most_common(len(_LETTERS))]
        return _Footnotes(dict(zip(common, _LETTERS, strict=False)))

    def letter(self, reason: str) -> str:
        return self.letters.get(reason, _ANOTHER)

    def lines(self) -> tuple[str, ...]:
        notes = tuple(f"{letter}: {reason}" for reason, letter in self.letters.items())
        return (*notes, f"{_ANOTHER}: another reason") if len(notes) == len(_LETTERS) else notes


def algorithms(finding: Finding) -> Figure:
    """Make a figure with one panel for each batch."""
    labs = {batch: _lab(part) for batch, part in captions.parts_by("batches", finding).items()}
    rows = {batch: [row for layer in lab.layers for row in _rows(layer)] for batch, lab in labs.items()}
    if not any(rows.values()):
        raise NothingToDrawError("this result holds no algorithm of any convolution; `deepstone conv MODEL` tries them")
    notes = _Footnotes.of(why for each in rows.values() for row in each for why in _reasons(row, _columns(each)))
    panels: list[HeatMap] = []
    caption_lines: list[str] = []
    for batch, lab in labs.items():
        shown, others = costliest(rows[batch], lambda row: row.best_s, _ROWS_AT_MOST)
        begin = f"batch {batch}: " if batch else ""
        panels += [_panel(begin, shown, notes)] if shown else []
        caption_lines += [f"{begin}{line}" for line in [*others_in_words(shown, others, "rows"), *_gain(lab)]]
    several = () if "" in rows else (Column(heading="batch", unit=Unit.NUMBER),)
    lines = [
        (*((int(batch) if batch.isdecimal() else batch,) if batch else ()), *line)
        for batch in rows
        for row in rows[batch]
        for line in _table_rows(row)
    ]
    return captions.finding_figure(
        finding,
        "algorithms",
        "convolution algorithms",
        panels=panels,
        caption=(*caption_lines, "Each cell: time, and workspace where it is known.", *notes.lines()),
        table=Table(columns=(*several, *name_columns(*_WORDS), *_NUMBERS), rows=tuple(lines)),
    )


def _lab(finding: Finding) -> ConvolutionLab:
    if not isinstance(finding.content, ConvolutionLab):
        raise NothingToDrawError("nothing was measured; `deepstone conv MODEL` tries every algorithm")
    return finding.content


def _columns(rows: Sequence[_Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.tries))[:_COLUMNS_AT_MOST]


def _reasons(row: _Row, columns: Sequence[str]) -> list[str]:
    """Return the reasons for cells of this row without a time."""
    times = [row.time(column) for column in columns]
    return [time.reason for time in times if isinstance(time, Absent)]


def _panel(begin: str, rows: Sequence[_Row], notes: _Footnotes) -> HeatMap:
    columns = _columns(rows)
    return HeatMap(
        title=f"{begin}{'time' if begin else 'Time'} against the best of the row",
        columns=tuple(columns),
        rows=tuple(f"{row.layer} · {_PASSES[row.direction]}" for row in rows),
        cells=tuple(tuple(_cell(row, column, notes) for column in columns) for row in rows),
        ratio_means="times as long as the best",
        marked_means="what the library picks by itself",
    )


def _rows(layer: ConvolutionRow) -> list[_Row]:
    # A row for several equal layers says so.
    name = f"{layer.name} (and {len(layer.equal)} equal)" if layer.equal else layer.name
    directions = {tried.direction for tried in layer.results}
    return [
        _Row(
            layer=name,
            shape=_shape(layer.shape),
            direction=direction,
            tries={tried.algorithm: tried for tried in layer.results if tried.direction == direction},
        )
        for direction in _PASSES
        if direction in directions
    ]


def _shape(shape: ConvolutionShape) -> str:
    sizes = (("input", shape.input), ("output", shape.output), ("kernel", shape.kernel))
    return ", ".join(f"{what} {'×'.join(map(str, numbers))}" for what, numbers in sizes)


def _cell(row: _Row, column: str, notes: _Footnotes) -> Cell:
    tried, time = row.tries.get(column), row.time(column)
    marked = tried is not None and tried.picked
    if isinstance(time, Absent) or tried is None:
        absent = time if isinstance(time, Absent) else _NOT_TRIED
        return Cell(ratio=absent, text=(notes.letter(absent.reason),), marked=marked)
    workspace = () if isinstance(tried.workspace_bytes, Absent) else (bytes_(tried.workspace_bytes),)
    ratio = time.middle / row.best_s if row.best_s else 1.0
    return Cell(ratio=max(1.0, ratio), text=(seconds(time.middle), *workspace), marked=marked)


def _gain(lab: ConvolutionLab) -> list[str]:
    """Return what the best algorithms together would save over those picked."""
    if isinstance(lab.mix, Absent):
        return []
    picked, best, saved = (value_of(each) for each in (lab.mix.picked_s, lab.mix.best_s, lab.mix.saved_share))
    if isinstance(picked, Absent):
        return []
    step = f"All convolutions of a step take {seconds(picked.middle)} as picked"
    if isinstance(saved, Absent):
        return [f"{step}; what the best would save is not known: {saved.reason}."]
    if isinstance(best, Absent):
        return [f"{step}; what the best would save is not known: {best.reason}."]
    if not saved.middle:
        return [f"{step}; no other algorithm is shown to be faster."]
    return [f"{step}, {seconds(best.middle)} at best: {value_words(saved, share)} less."]


def _table_rows(row: _Row) -> list[tuple[TableCell, ...]]:
    times = {algorithm: row.time(algorithm) for algorithm in row.tries}
    return [
        (
            row.layer,
            row.shape,
            _PASSES[row.direction],
            algorithm,
            "yes" if tried.picked else "",
            times[algorithm],
            time.middle / row.best_s if isinstance(time := times[algorithm], Value) and row.best_s else None,
            tried.workspace_bytes,
            None if isinstance(tried.flops, Absent) else tried.flops / 1e9,
            None if isinstance(tried.relative_error, Absent) else tried.relative_error,
        )
        for algorithm, tried in row.tries.items()
    ]
