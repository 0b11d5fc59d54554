"""Kernel, stride and pad of convolutions and pools: one number for both sides, one per side, or a list."""

from __future__ import annotations

from deepstone.graph.ops import Pad, Pair
from deepstone.models.caffe.fields import Fields


def pair(fields: Fields, name: str, *, default: int | None, sided: str = "", listed: bool = False) -> Pair:
    """From `name`, or from `sided`_h and `sided`_w. `listed`: `name` may be repeated, (height, width).

    Without a default one of them must be there.
    """
    least = 0 if default == 0 else 1
    both = fields.wholes(name, least=least)
    if sided and (fields.has(f"{sided}_h") or fields.has(f"{sided}_w")):
        if both:
            fields.complain(f"give {name}, or {sided}_h and {sided}_w, not both", fields.line_of(name))
        return _one_per_side(fields, sided, least)
    if len(both) > (2 if listed else 1):
        fields.complain(f"{name} is given {len(both)} times", fields.line_of(name))
    if not both:
        if default is None:
            fields.complain(f"needs {name}, or {sided}_h and {sided}_w")
        both = [1 if default is None else default]
    return both[0], both[-1]


def _one_per_side(fields: Fields, sided: str, least: int) -> Pair:
    for here, other in (("h", "w"), ("w", "h")):
        if not fields.has(f"{sided}_{other}"):
            fields.complain(f"{sided}_{here} needs {sided}_{other} beside it", fields.line_of(f"{sided}_{here}"))
    return fields.whole(f"{sided}_h", 1, least=least), fields.whole(f"{sided}_w", 1, least=least)


def padding(sides: Pair) -> Pad:
    high, wide = sides
    return high, high, wide, wide
