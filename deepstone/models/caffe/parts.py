"""What the layers of a Caffe network mean for a graph, before they are joined to one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from deepstone.graph.ops import Op
from deepstone.models.caffe.sources import Source


@dataclass(frozen=True, kw_only=True, slots=True)
class Compute:
    """A layer of the graph."""

    op: Op


@dataclass(frozen=True, kw_only=True, slots=True)
class GlobalMaximum:
    """A max pool whose kernel is the whole image, whatever its size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaleAndShift:
    """The second half of a batch norm."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Softmax:
    """The end of a network that has no loss: a loss is put in its place."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
class HandOn:
    """Gives its input to several layers, which a graph needs no layer for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """Not part of training."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FromOutside:
    sources: tuple[Source, ...]


Part: TypeAlias = Compute | GlobalMaximum | ScaleAndShift | Softmax | Loss | HandOn | LeftOut | FromOutside
