"""Positions of the lines of parallel coordinates, for both renderers."""

from __future__ import annotations

from deepstone.report.panels import Strand


def pieces(strand: Strand) -> list[tuple[tuple[float, float], ...]]:
    """The points of a line, in a piece for each stretch of axes on which it has a place."""
    found: list[list[tuple[float, float]]] = [[]]
    for at, place in enumerate(strand.places):
        if place is None:
            found.append([])
        else:
            found[-1].append((float(at), place))
    return [tuple(piece) for piece in found if piece]
