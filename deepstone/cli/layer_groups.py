"""Groups the layers of a user's own module: by class, by block, and by the class that contains them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deepstone.absent import Absent
from deepstone.cli.output import Column, print_lines, print_table
from deepstone.units import count, percent, seconds

if TYPE_CHECKING:
    from deepstone.results.layers import LayerGroup, LayerTable

_MOST_CLASSES = 12
_MOST_BLOCKS = 40
_SHOWS = 0.0005  # of the layers' time; smaller classes share one row


def show_groups(table: LayerTable) -> None:
    """Print the groups. Shares are of the time of all layers."""
    _show("class", "parts", table.groups, _MOST_CLASSES)
    _show("block", "parts", table.blocks or [], _MOST_BLOCKS)
    _show("class, with all inside", "modules", table.classes or [], _MOST_CLASSES)
    print_lines([""])


def _show(heading: str, counted: str, groups: Sequence[LayerGroup], most: int) -> None:
    """Print groups in their order. Groups beyond `most`, and those with a tiny share, become one row."""
    if not groups:
        return
    ranked = sorted((group for group in groups if group.share >= _SHOWS), key=lambda group: -group.share)
    chosen = {group.name for group in ranked[:most]}
    shown = [group for group in groups if group.name in chosen]
    rest = [group for group in groups if group.name not in chosen]
    rows = [[group.name, f"{group.layers:,}", *_times([group]), _rate(group)] for group in shown]
    nested = heading != "class" and heading != "block"
    if rest and not nested:  # nested groups have no sum
        name = rest[0].name if len(rest) == 1 else f"{len(rest)} others"
        rows.append([name, f"{sum(group.layers for group in rest):,}", *_times(rest), ""])
    columns = [
        Column(heading=heading),
        Column(heading=counted, right=True, rank=3),
        Column(heading="forward", right=True),
        Column(heading="backward", right=True),
        Column(heading="share", right=True),
        Column(heading="FLOP/s", right=True, rank=2),
    ]
    print_lines([""])
    print_table(columns, rows)


def _times(groups: Sequence[LayerGroup]) -> list[str]:
    return [
        seconds(sum(group.forward_s for group in groups)),
        seconds(sum(group.backward_s for group in groups)),
        percent(sum(group.share for group in groups)),
    ]


def _rate(group: LayerGroup) -> str:
    """Return the rate of both passes together, or nothing if FLOPs are unknown or zero."""
    flops, taken_s = group.flops, group.forward_s + group.backward_s
    if flops is None or isinstance(flops, Absent) or taken_s <= 0:
        return ""
    return count((flops.forward + flops.backward) / taken_s) if flops.forward + flops.backward else ""
