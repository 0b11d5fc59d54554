"""The convolution lab: every algorithm on every convolution of a network, for one batch."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from deepstone.results.doubt import Doubt
from deepstone.results.parts import Number, OrAbsent, Part, Table
from deepstone.results.quantity import Quantity

Pass: TypeAlias = Literal["forward", "data", "weight"]


class ConvolutionShape(Part, frozen=True, kw_only=True):
    input: list[int]
    output: list[int]
    kernel: list[int]
    stride: list[int]
    pad: list[int]
    dilation: list[int]
    groups: int


class Tried(Part, frozen=True, kw_only=True, rename={"direction": "pass"}):
    """One algorithm on one pass. A `reference` is our own implementation, which is not timed."""

    algorithm: str
    direction: Pass
    kind: Literal["timed", "reference"]
    picked: bool
    time_s: OrAbsent[Quantity]
    workspace_bytes: OrAbsent[int]
    flops: OrAbsent[int]
    transform_flops: OrAbsent[int]
    formula: str
    relative_error: OrAbsent[Number]
    implementation: str | None = None
    doubts: list[Doubt] | None = None


class ConvolutionRow(Part, frozen=True, kw_only=True):
    """`equal`: further layers with the same convolution. `in_step`: how many of them run the pass in a step."""

    name: str
    equal: list[str]
    shape: ConvolutionShape
    results: list[Tried]
    best: Table[OrAbsent[str]]
    in_step: Table[int]
    failures: Table[str] | None = None


class Mix(Part, frozen=True, kw_only=True):
    """Seconds of all convolutions of a step, as picked and at best. Early findings have plain numbers."""

    picked_s: Quantity | Number
    best_s: OrAbsent[Quantity | Number]
    saved_s: OrAbsent[Quantity | Number]
    saved_share: OrAbsent[Quantity | Number]


class ConvolutionLab(Part, frozen=True, kw_only=True):
    KIND: ClassVar = "conv"

    device: OrAbsent[str]
    batch: int
    phase: str
    precision: OrAbsent[str]
    layout: OrAbsent[str]
    layers: list[ConvolutionRow]
    mix: OrAbsent[Mix]
    failures: list[str]
    doubts: list[Doubt]
