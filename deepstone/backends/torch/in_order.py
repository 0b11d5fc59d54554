"""The calls of a compiled program and what was seen to run, one list against the other.

A program's calls are always the same and in the same order. Those that show themselves by name are found by it; what
ran between two of them, under other names, came from the calls between the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelCall:
    """One call in a compiled program: the name it shows itself by, and how many elements it makes for each layer."""

    name: str
    layers: Mapping[str, int]


def match_by_name(names: Sequence[str], calls: Sequence[KernelCall]) -> list[int | None]:
    """For each of the names that ran, which call it was; None where it was none."""
    found: list[int | None] = []
    next_call = 0
    for name in names:
        ahead = next((number for number in range(next_call, len(calls)) if calls[number].name == name), None)
        if ahead is not None:
            next_call = ahead + 1
        found.append(ahead)
    return found


def match_in_order(names: Sequence[str], calls: Sequence[KernelCall]) -> list[Mapping[str, int] | None]:
    """For each of the names that ran, the layers it worked for: by its name, or else by what lies around it."""
    found: list[Mapping[str, int] | None] = [None] * len(names)
    next_call = next_name = 0
    for number, call in enumerate([*match_by_name(names, calls), len(calls)]):
        if call is None:
            continue
        if call > next_call:
            found[next_name:number] = [_together(calls[next_call:call])] * (number - next_name)
        if call < len(calls):
            found[number] = calls[call].layers
        next_call, next_name = call + 1, number + 1
    return found


def _together(calls: Sequence[KernelCall]) -> Mapping[str, int]:
    layers: dict[str, int] = {}
    for call in calls:
        for layer, elements in call.layers.items():
            layers[layer] = layers.get(layer, 0) + elements
    return layers
