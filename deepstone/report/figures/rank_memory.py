"""The memory that the steps of each process take, against what the graph says that they need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from deepstone.report import palette
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.figures.captions import first_processes, parallel_part, record_figure
from deepstone.report.panels import Axis, BarChart, BarLabel, BarRow, Segment, Series
from deepstone.report.table import Table, Unit, Value, name_columns, number_columns
from deepstone.results.parallel import Parallel, RankFacts
from deepstone.results.record import Record
from deepstone.units import bytes_

_RANKS_AT_MOST: Final = 32
_SERIES: Final = (
    Series(name="measured", colour=palette.MEASURED),
    Series(name="predicted from the graph", colour=palette.ACTIVATIONS),
)


def rank_memory(record: Record) -> Figure:
    """Make the figure. Raises NothingToDrawError if the record has no memory by rank."""
    parallel = parallel_part(record, "ranks")
    if not any(_known(rank) for rank in parallel.ranks):
        raise NothingToDrawError("this record has no memory by rank; measure it again")
    shown, stages = parallel.ranks[:_RANKS_AT_MOST], _stages(parallel)
    return record_figure(
        record,
        "ranks",
        f"memory of {len(parallel.ranks)} processes",
        about=f"scheme={parallel.scheme}",
        panels=(
            BarChart(
                title="What the steps of each process take",
                axis=Axis(label="memory", unit=Unit.BYTES),
                series=_SERIES,
                rows=tuple(_row(rank, _title(rank, stages)) for rank in shown),
            ),
        ),
        caption=(
            "Measured: what the process grew by since before the network was built, or the memory of its device; that "
            "holds workspaces and what libraries keep. Predicted: parameters, gradients, optimizer state, activations "
            "that are kept for backward, and the arrays in which things are sent.",
            *first_processes(shown, parallel.ranks),
        ),
        table=Table(
            columns=(*name_columns("process"), *number_columns(Unit.BYTES, "measured", "predicted")),
            rows=tuple((_title(rank, stages), rank.step_bytes, rank.predicted_bytes) for rank in shown),
        ),
    )


def _known(rank: RankFacts) -> list[tuple[int, int]]:
    """The bars of a rank: series and bytes."""
    found = enumerate((rank.step_bytes, rank.predicted_bytes))
    return [(at, size) for at, size in found if isinstance(size, int)]


def _row(rank: RankFacts, title: str) -> BarRow:
    bars = _known(rank)
    return BarRow(
        label=title,
        bars=tuple((Segment(series=at, value=Value(middle=float(size))),) for at, size in bars),
        bar_labels=tuple(BarLabel(text=bytes_(size)) for _, size in bars),
    )


def _title(rank: RankFacts, stages: Mapping[int, list[int]]) -> str:
    own = stages.get(rank.rank)
    what = f", stage {' and '.join(map(str, own))}" if own else f", {rank.role}" if rank.role == "server" else ""
    return f"rank {rank.rank}{what}"


def _stages(parallel: Parallel) -> dict[int, list[int]]:
    """By rank, of a pipeline."""
    found: dict[int, list[int]] = {}
    for stage in parallel.stages or ():
        found.setdefault(stage.rank, []).append(stage.stage)
    return found
