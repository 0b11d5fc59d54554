"""The convolution lab as a heat map: each algorithm's time against the best one for the same layer and pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from deepstone.absent import Absent
from deepstone.records.shape import as_list, refuse_because
from deepstone.report.figure import Cell, Figure, HeatMap, NothingToDrawError, Table, Value
from deepstone.report.figures import heading
from deepstone.report.figures.costliest import costliest, others_in_words
from deepstone.report.figures.footnotes import Footnotes, footnotes
from deepstone.report.figures.numbers import bytes_cell, share, time_cell
from deepstone.report.reading import Node
from deepstone.units import bytes_, digits, seconds

_PASSES: Final = {"forward": "forward", "data": "data gradient", "weight": "weight gradient"}
_NOT_TRIED: Final = Absent("not tried")
_REFERENCE: Final = Absent("a reference implementation, for counts and error only: its speed says nothing")
_ROWS_AT_MOST: Final = 60
_COLUMNS_AT_MOST: Final = 20
_BATCHES_AT_MOST: Final = 12
_WORDS: Final = ("layer", "shape", "pass", "algorithm", "picked")
_NUMBERS: Final = ("time", "times the best", "workspace", "GFLOP", "relative error")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Try:
    """One algorithm on one pass of one layer."""

    algorithm: str
    time: Value | Absent
    workspace: float | Absent
    error: Value | Absent
    flops: float | Absent
    picked: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    layer: str
    shape: str
    part: str
    tries: Mapping[str, _Try]

    @property
    def best_s(self) -> float:
        """0 where nothing was timed."""
        times = [each.time.middle for each in self.tries.values() if isinstance(each.time, Value)]
        return min((time for time in times if time > 0), default=0.0)


def algorithms(result: Node) -> Figure:
    """One panel for each batch."""
    rows = {
        batch: [row for layer in part.nodes("layers") for row in _rows(layer)]
        for batch, part in _by_batch(result).items()
    }
    if not any(rows.values()):
        raise NothingToDrawError("this result holds no algorithm of any convolution; `deepstone conv MODEL` tries them")
    notes = footnotes(why for each in rows.values() for row in each for why in _reasons(row, _columns(each)))
    panels: list[HeatMap] = []
    told: list[str] = []
    for batch, part in _by_batch(result).items():
        shown, others = costliest(rows[batch], lambda row: row.best_s, _ROWS_AT_MOST)
        begin = f"batch {batch}: " if batch else ""
        panels += [_panel(begin, shown, notes)] if shown else []
        told += [f"{begin}{line}" for line in [*others_in_words(shown, others, "rows"), *_gain(part)]]
    head = _WORDS if "" in rows else ("batch", *_WORDS)
    lines = [
        (*((batch,) if batch else ()), *line) for batch in rows for row in rows[batch] for line in _table_rows(row)
    ]
    return Figure(
        name="algorithms",
        model=result.text("model"),
        title="convolution algorithms",
        subtitle=heading.subtitle(result),
        panels=tuple(panels),
        caption=(*told, "Each cell: time, and workspace where it is known.", *notes.lines()),
        table=Table(headings=(*head, *_NUMBERS), rows=tuple(lines), words=len(head)),
        commands=heading.commands(result),
        doubts=heading.doubts(result),
    )


def _by_batch(result: Node) -> Mapping[str, Node]:
    if not result.has("batches"):
        return {"": result}
    found = result.named_nodes("batches")
    if not 1 <= len(found) <= _BATCHES_AT_MOST:
        refuse_because((None, "batches"), f"must hold 1 to {_BATCHES_AT_MOST} batches, not {len(found)}")
    return found


def _columns(rows: Sequence[_Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.tries))[:_COLUMNS_AT_MOST]


def _reasons(row: _Row, columns: Sequence[str]) -> list[str]:
    """Why cells of this row have no time."""
    times = [row.tries[column].time if column in row.tries else _NOT_TRIED for column in columns]
    return [time.reason for time in times if isinstance(time, Absent)]


def _panel(begin: str, rows: Sequence[_Row], notes: Footnotes) -> HeatMap:
    columns = _columns(rows)
    return HeatMap(
        title=f"{begin}{'time' if begin else 'Time'} against the best of the row",
        columns=tuple(columns),
        rows=tuple(f"{row.layer} · {_PASSES[row.part]}" for row in rows),
        cells=tuple(tuple(_cell(row, column, notes) for column in columns) for row in rows),
        ratio_means="times as long as the best",
        marked_means="what the library picks by itself",
    )


def _rows(layer: Node) -> list[_Row]:
    results = layer.nodes("results")
    parts = dict.fromkeys(result.text("pass") for result in results)
    return [
        _Row(
            layer=_name(layer),
            shape=_shape(layer),
            part=part,
            tries={each.text("algorithm"): _try(each) for each in results if each.text("pass") == part},
        )
        for part in _PASSES
        if part in parts
    ]


def _name(layer: Node) -> str:
    """One that stands for several equal layers says so."""
    equal = len(layer.texts("equal"))
    return f"{layer.text('name')} (and {equal} equal)" if equal else layer.text("name")


def _try(result: Node) -> _Try:
    time = result.value("time_s")
    return _Try(
        algorithm=result.text("algorithm"),
        time=_REFERENCE if result.text("kind", "timed") == "reference" else time,
        workspace=result.amount("workspace_bytes"),
        error=result.value("relative_error"),
        flops=result.amount("flops"),
        picked=result.yes("picked"),
    )


def _shape(layer: Node) -> str:
    if not layer.has("shape"):
        return ""
    shape = layer.node("shape")
    sizes = [f"{what} {'×'.join(_numbers(shape, what))}" for what in ("input", "output", "kernel") if shape.has(what)]
    return ", ".join(sizes)


def _numbers(shape: Node, key: str) -> Sequence[str]:
    """A list of whole numbers, as text."""
    place = (shape.where, key)
    return [str(each) for each in as_list(shape.items[key], place) if isinstance(each, int)]


def _cell(row: _Row, column: str, notes: Footnotes) -> Cell:
    tried = row.tries.get(column)
    time = _NOT_TRIED if tried is None else tried.time
    marked = tried is not None and tried.picked
    if isinstance(time, Absent):
        return Cell(ratio=time, text=(notes.letter(time.reason),), marked=marked)
    assert tried is not None
    workspace = (bytes_(tried.workspace),) if isinstance(tried.workspace, float) else ()
    ratio = time.middle / row.best_s if row.best_s else 1.0
    return Cell(ratio=max(1.0, ratio), text=(seconds(time.middle), *workspace), marked=marked)


def _gain(result: Node) -> list[str]:
    """What the best algorithms together would save over those picked."""
    if not result.has("mix"):
        return []
    mix = result.node("mix")
    picked, best, saved = (mix.amount(key) for key in ("picked_s", "best_s", "saved_share"))
    if isinstance(picked, Absent) or isinstance(best, Absent) or isinstance(saved, Absent):
        return []
    return [
        f"All convolutions of a step take {seconds(picked)} as picked, {seconds(best)} at best: {share(saved)} less."
    ]


def _table_rows(row: _Row) -> list[tuple[str, ...]]:
    return [
        (
            row.layer,
            row.shape,
            _PASSES[row.part],
            tried.algorithm,
            "yes" if tried.picked else "",
            time_cell(tried.time),
            digits(tried.time.middle / row.best_s) if isinstance(tried.time, Value) and row.best_s else "",
            bytes_cell(tried.workspace),
            digits(tried.flops / 1e9) if isinstance(tried.flops, float) else "",
            f"{tried.error.middle:.1e}" if isinstance(tried.error, Value) else "",
        )
        for tried in row.tries.values()
    ]
