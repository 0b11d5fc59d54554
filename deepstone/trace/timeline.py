"""Turns spans of a trace into seconds per owner, and the time in which nothing ran.

If several spans run at once, each gets an equal part of that time, so that the parts add up to the elapsed time. A span
of several owners (a fused kernel) is divided by their weights.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

Owner = TypeVar("Owner", bound=Hashable)


@dataclass(frozen=True, kw_only=True, slots=True)
class Span(Generic[Owner]):
    """A span from `start_s` to `end_s`. Weights need not add up to 1."""

    start_s: float
    end_s: float
    owners: Mapping[Owner, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Account(Generic[Owner]):
    """Seconds by owner, and seconds in which no span ran. Together they are the whole window."""

    owned_s: dict[Owner, float]
    idle_s: float


def account(spans: Iterable[Span[Owner]], *, start_s: float, end_s: float) -> Account[Owner]:
    """Divide the time between `start_s` and `end_s` among the owners; spans are cut at both ends."""
    inside = [
        (max(span.start_s, start_s), min(span.end_s, end_s), span)
        for span in spans
        if span.end_s > start_s and span.start_s < end_s and span.end_s > span.start_s
    ]
    edges = sorted(
        [(start, 1, number) for number, (start, _, _) in enumerate(inside)]
        + [(end, 0, number) for number, (_, end, _) in enumerate(inside)]
    )
    shares = [0.0] * len(inside)
    active: set[int] = set()
    idle_s, before = 0.0, start_s
    for moment, begins, number in edges:
        passed = moment - before
        if active:
            part = passed / len(active)
            for running in active:
                shares[running] += part
        else:
            idle_s += passed
        before = moment
        if begins:
            active.add(number)
        else:
            active.discard(number)
    idle_s += end_s - before
    owned_s: dict[Owner, float] = {}
    for share, (_, _, span) in zip(shares, inside, strict=True):
        whole = sum(span.owners.values())
        for owner, weight in span.owners.items():
            owned_s[owner] = owned_s.get(owner, 0.0) + share * weight / whole
    return Account(owned_s=owned_s, idle_s=idle_s)
