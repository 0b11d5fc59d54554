"""Where a setup loses its time: what its layers take in whole steps beyond what the machine's ceilings allow them.

    lost = (forward + backward, as `deepstone layers` times them in place) - bound, by kind of layer

A kind that is faster than its bound, because its data stayed in a cache or its work went into another kernel, loses
nothing. The time between layers is lost altogether.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from deepstone.absent import Absent
from deepstone.results.findings import Finding
from deepstone.results.layers import GROUPS, LayerRow, LayerTable, known_s
from deepstone.results.tune import LostTime

_MOST: Final = 3
_MATTERS: Final = 0.005  # of a step; less is not told
_KIND_OF: Final = {op: kind for kind, ops in GROUPS.items() for op in ops}


def most_lost(finding: Finding) -> list[LostTime] | Absent:
    """The kinds of layers that lose most, the worst first. Absent with the reason if layers or ceilings are not
    known."""
    table = finding.content
    if not isinstance(table, LayerTable):
        why = finding.failure.reason if finding.failure is not None else "they were not timed"
        return Absent(f"its layers are not known: {why}")
    if isinstance(table.sum_s, Absent):
        return table.sum_s
    if isinstance(table.peaks, Absent):
        return table.peaks
    found = sorted([*_by_kind(table), *_between_layers(table)], key=lambda each: -each.lost_s)
    return [each for each in found if each.lost_s > _MATTERS * table.step_s.median][:_MOST]


def _by_kind(table: LayerTable) -> Iterator[LostTime]:
    kinds: dict[str, list[tuple[float, LayerRow]]] = {}
    for row in table.layers:
        lost_s = _lost_s(row)
        if lost_s is not None:
            kinds.setdefault(_KIND_OF.get(row.op, row.op), []).append((lost_s, row))
    for kind, rows in kinds.items():
        worst_s, worst = max(rows, key=lambda each: each[0])
        yield LostTime(
            what=kind,
            lost_s=math.fsum(lost_s for lost_s, _ in rows),
            taken_s=math.fsum(_taken_s(row) for _, row in rows),
            layer=worst.name,
            layer_lost_s=worst_s,
        )


def _between_layers(table: LayerTable) -> Iterator[LostTime]:
    if not isinstance(table.gaps_s, Absent):
        yield LostTime(what="between layers", lost_s=table.gaps_s.median, taken_s=table.gaps_s.median)


def _lost_s(row: LayerRow) -> float | None:
    """None if the layer has no time of its own, since others' kernels do its work, or no bound."""
    taken_s = _taken_s(row)
    if taken_s == 0 or isinstance(row.bound, Absent):
        return None
    return taken_s - row.bound.forward_s - row.bound.backward_s


def _taken_s(row: LayerRow) -> float:
    return known_s(row.forward_s) + known_s(row.backward_s)
