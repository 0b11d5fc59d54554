"""Connects the layers of a Caffe network: Caffe's layers name blobs, those of a graph name other layers.

A layer may overwrite the blob that it reads. Later readers of that blob read this layer's output. A Part is the meaning
of one layer for a graph, before they are connected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from deepstone.errors import GraphError, nearest
from deepstone.graph import ops
from deepstone.graph.graph import Layer
from deepstone.graph.ops import Op, OpError, Shape
from deepstone.models.caffe.layer import CaffeLayer
from deepstone.models.caffe.sources import Source

FLATTEN = "flatten"
LOSS = "loss"


@dataclass(frozen=True, kw_only=True, slots=True)
class Compute:
    """A layer of the graph."""

    op: Op


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
class FromOutside:
    sources: tuple[Source, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Slices:
    """Parts of the channels, one for each top. `points` are where one ends and the next begins; none: equal parts."""

    points: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reshape:
    """Other sides for the same numbers, the batch first. 0: as it was; -1: what is left."""

    sides: tuple[int, ...]


class Role(Enum):
    """A Caffe layer without a layer in the graph."""

    SCALE_AND_ADD = "a · x + y, where a has one number per channel: a product and a sum"
    GLOBAL_MAXIMUM = "a max pool whose kernel is the whole image, whatever its size"
    SCALE_AND_SHIFT = "the second half of a batch norm"
    SOFTMAX = "the end of a network that has no loss: a loss is put in its place"
    HAND_ON = "gives its input to several layers, which a graph needs no layer for"
    LEFT_OUT = "not part of training"


Part: TypeAlias = Compute | Slices | Reshape | Loss | FromOutside | Role


def computes(part: Part) -> bool:
    """Whether it computes with its bottoms, and is not the end."""
    return not isinstance(part, Loss | FromOutside) and part not in (Role.SOFTMAX, Role.LEFT_OUT)


class Wiring:
    """Adds layers in the file's order. `has_loss`: whether one of them is a loss; otherwise a Softmax becomes one."""

    def __init__(self, file: str, image: Source, sources: Sequence[Source], *, has_loss: bool) -> None:
        self._file = file
        self._has_loss = has_loss
        self._layers: list[Layer] = []
        self._shapes: dict[str, Shape] = {}
        self._lines: dict[str, int] = {}
        self._producer: dict[str, str] = {}  # by blob: the layer that wrote it last
        self._not_images = {source.blob: "holds labels" for source in sources if source.blob != image.blob}
        self._unscaled: set[str] = set()  # batch norms that still lack their Scale
        self._flattened: dict[str, str] = {}  # a layer, and the flatten layer after it
        self._append(image.name, ops.Input(shape=image.shape[1:]), (), image.line)
        self._producer[image.blob] = image.name

    def add(self, layer: CaffeLayer, part: Part) -> None:
        match part:
            case FromOutside():
                pass
            case Role.LEFT_OUT:
                self._hide_tops(layer, "which is left out")
            case Role.HAND_ON:
                self._set_producer(layer, self._inputs(layer)[0])
            case Compute(op=op):
                self._compute(layer, op)
            case Slices(points=points):
                self._slices(layer, points)
            case Reshape(sides=sides):
                self._reshape(layer, sides)
            case Role.SCALE_AND_ADD:
                self._scale_and_add(layer)
            case Role.GLOBAL_MAXIMUM:
                self._compute(layer, ops.MaxPool(kernel=self._sides(layer), stride=(1, 1)))
            case Role.SCALE_AND_SHIFT:
                self._scale(layer)
            case Loss(weight=weight):
                self._loss(layer, weight)
            case Role.SOFTMAX if not self._has_loss:
                self._loss(layer, 1.0)
            case Role.SOFTMAX:
                self._hide_tops(layer, "a Softmax beside a loss, which is left out")

    def layers(self) -> list[Layer]:
        """Return all layers, with a loss at the end and names for inserted layers."""
        if self._unscaled:
            raise self._wrong_at(
                min(self._unscaled, key=self._lines.__getitem__),
                "a BatchNorm without a Scale after it is not "
                'supported; add layer { type: "Scale" scale_param { bias_term: true } … }',
            )
        used = {name for layer in self._layers for name in layer.inputs}
        ends = [
            layer
            for layer in self._layers
            if layer.name not in used and not isinstance(layer.op, ops.SoftmaxCrossEntropy)
        ]
        losses = any(isinstance(layer.op, ops.SoftmaxCrossEntropy) for layer in self._layers)
        for end in ends:
            classes = isinstance(end.op, ops.Dense) or self._shapes[end.name][1:] == (1, 1)  # one number for each
            if losses or not classes:
                why = (
                    ""
                    if losses
                    else ", and the network has no loss; let it end in InnerProduct, Softmax or SoftmaxWithLoss, "
                    "or in one pixel per class, as after a Pooling with global_pooling: true"
                )
                raise self._wrong_at(end.name, f"nothing in the network uses its output{why}")
        for end in ends:
            name = LOSS if len(ends) == 1 else f"{end.name}/{LOSS}"
            line = self._lines[end.name]
            self._append(self._free(name), ops.SoftmaxCrossEntropy(), (self._flat(end.name, line),), line)
        return self._named()

    def _compute(self, layer: CaffeLayer, op: Op) -> None:
        inputs = self._inputs(layer)
        if isinstance(op, ops.Flatten) and len(self._shapes[inputs[0]]) == 1:
            self._set_producer(layer, inputs[0])  # it is flat already
            return
        if isinstance(op, ops.Dense):
            inputs = (self._flat(inputs[0], layer.line),)
        if isinstance(op, ops.BatchNorm) and len(self._shapes[inputs[0]]) == 1:
            raise self._wrong(
                layer.line,
                f"layer {layer.name!r}: a BatchNorm after an InnerProduct is not supported; take it and its Scale away",
            )
        if isinstance(op, (ops.MaxPool, ops.AveragePool)):
            self._refuse_windows_outside(layer, op, inputs[0])
        self._append(layer.name, op, inputs, layer.line)
        if isinstance(op, ops.BatchNorm):
            self._unscaled.add(layer.name)
        self._set_producer(layer, layer.name)

    def _slices(self, layer: CaffeLayer, points: tuple[int, ...]) -> None:
        (source,) = self._inputs(layer)
        channels, parts = self._shapes[source][0], len(layer.tops)
        if len(self._shapes[source]) == 1:
            raise self._wrong(
                layer.line,
                f"layer {layer.name!r}: slices {channels} flat numbers; only channels of images can be sliced. Take "
                "it and what joins its tops away, or write the network as a torch module and measure FILE.py:FUNCTION",
            )
        if not points and channels % parts:
            raise self._wrong(
                layer.line, f"layer {layer.name!r}: {channels} channels cannot be split into {parts} equal parts"
            )
        ends = (0, *(points or range(channels // parts, channels, channels // parts)), channels)
        if list(ends) != sorted(set(ends)):
            raise self._wrong(
                layer.line,
                f"layer {layer.name!r}: slice_point must grow and lie between 0 and its {channels} channels, "
                f"not {', '.join(map(str, points))}",
            )
        if parts == 1:
            self._set_producer(layer, source)
            return
        for top, first, end in zip(layer.tops, ends, ends[1:], strict=False):
            name = f"{layer.name}/{top}"
            self._append(name, ops.Slice(first=first, channels=end - first), (source,), layer.line)
            self._set_producer(layer, name, top)

    def _reshape(self, layer: CaffeLayer, sides: tuple[int, ...]) -> None:
        """Only to flat: a layer of its own, or nothing where the input is flat already."""
        (source,) = self._inputs(layer)
        shape = self._shapes[source]
        flat = (-1, math.prod(shape), *([0] if math.prod(shape) == shape[0] else []))
        if len(sides) != 2 or sides[0] != 0 or sides[1] not in flat:
            raise self._wrong(
                layer.line,
                f"layer {layer.name!r}: turns {list(shape)} into {list(sides)}; only making each image flat, "
                "shape { dim: 0 dim: -1 }, is supported",
            )
        self._compute(layer, ops.Flatten())

    def _scale_and_add(self, layer: CaffeLayer) -> None:
        gate, scaled, added = self._inputs(layer)
        product = self._free(f"{layer.name}/product")
        self._append(product, ops.Multiply(), (gate, scaled), layer.line)
        self._append(layer.name, ops.Add(), (product, added), layer.line)
        self._set_producer(layer, layer.name)

    def _scale(self, layer: CaffeLayer) -> None:
        """Merge a Scale into the BatchNorm before it; the layer has the name of the BatchNorm."""
        (bottom,) = layer.bottoms
        source = self._producer_of(bottom, layer)
        if source not in self._unscaled:
            raise self._wrong(layer.line, f"layer {layer.name!r}: a Scale is supported right after a BatchNorm only")
        self._unscaled.discard(source)
        self._set_producer(layer, source)

    def _loss(self, layer: CaffeLayer, weight: float) -> None:
        for labels in layer.bottoms[1:]:
            if labels not in self._not_images:
                what = (
                    "is computed"
                    if labels in self._producer
                    else f"is of no layer; {nearest(labels, self._not_images)}"
                )
                raise self._wrong(
                    layer.line, f"layer {layer.name!r}: its labels come from outside, but {labels!r} {what}"
                )
        scores = self._input(layer.bottoms[0], layer)
        shape = self._shapes[scores]
        if len(shape) == 3 and shape[1:] != (1, 1):
            raise self._wrong(
                layer.line,
                f"layer {layer.name!r}: one label per image is supported, not one per pixel {list(shape)}; give "
                '--input a size that leaves one pixel, or put layer { type: "Pooling" pooling_param { pool: AVE '
                "global_pooling: true } … } before it",
            )
        self._append(layer.name, ops.SoftmaxCrossEntropy(weight=weight), (self._flat(scores, layer.line),), layer.line)
        self._hide_tops(layer, "the network's loss")

    def _flat(self, source: str, line: int) -> str:
        """Return the source, or the one flatten layer after it that all its readers share."""
        if len(self._shapes[source]) == 1:
            return source
        if source not in self._flattened:
            name = self._free(f"{source}/{FLATTEN}")
            self._append(name, ops.Flatten(), (source,), line)
            self._flattened[source] = name
        return self._flattened[source]

    def _inputs(self, layer: CaffeLayer) -> tuple[str, ...]:
        return tuple([self._input(bottom, layer) for bottom in layer.bottoms])

    def _input(self, bottom: str, layer: CaffeLayer) -> str:
        producer = self._producer_of(bottom, layer)
        if producer in self._unscaled:
            raise self._wrong(
                layer.line,
                f"layer {layer.name!r}: reads the BatchNorm {producer!r} (line {self._lines[producer]}) without a "
                'Scale between them; add layer { type: "Scale" scale_param { bias_term: true } … }',
            )
        return producer

    def _producer_of(self, bottom: str, layer: CaffeLayer) -> str:
        if bottom in self._producer:
            return self._producer[bottom]
        why = self._not_images.get(bottom)
        if why is None:
            why = f"is of no layer before it; {nearest(bottom, self._producer)}"
        raise self._wrong(layer.line, f"layer {layer.name!r}: its bottom {bottom!r} {why}")

    def _set_producer(self, layer: CaffeLayer, producer: str, *tops: str) -> None:
        for top in tops or layer.tops:
            if top not in layer.bottoms and (top in self._producer or top in self._not_images):
                raise self._wrong(layer.line, f"layer {layer.name!r}: its top {top!r} is another layer's already")
            self._producer[top] = producer

    def _hide_tops(self, layer: CaffeLayer, why: str) -> None:
        self._not_images.update(dict.fromkeys(layer.tops, f"is of {layer.name!r}, {why}"))

    def _sides(self, layer: CaffeLayer) -> tuple[int, int]:
        shape = self._shapes[self._inputs(layer)[0]]
        if len(shape) != 3:
            raise self._wrong(
                layer.line, f"layer {layer.name!r}: needs an image (channels, height, width), not {list(shape)}"
            )
        return shape[1], shape[2]

    def _refuse_windows_outside(self, layer: CaffeLayer, op: ops.MaxPool | ops.AveragePool, source: str) -> None:
        """Refuse windows outside the image: without padding Caffe does not clip them, and computes nonsense."""
        shape = self._shapes[source]
        if len(shape) != 3 or any(op.pad) or not op.ceil_mode:
            return
        for size, kernel, stride in zip(shape[1:], op.kernel, op.stride, strict=True):
            if -(-max(0, size - kernel) // stride) * stride >= size:
                raise self._wrong(
                    layer.line,
                    f"layer {layer.name!r}: with stride {stride} the last window of size {kernel} lies outside the "
                    f"image of size {size}, where Caffe computes nothing sensible",
                )

    def _append(self, name: str, op: Op, inputs: tuple[str, ...], line: int) -> None:
        """Append a layer, and check that it fits."""
        try:
            op.check()
            shape = op.output([self._shapes[source] for source in inputs])
        except OpError as error:
            raise self._wrong(line, f"layer {name!r}: {error}") from None
        if name in self._shapes:
            raise self._wrong(
                line, f"layer {name!r}: line {self._lines[name]} has a layer or input of this name already"
            )
        self._shapes[name] = shape
        self._lines[name] = line
        self._layers.append(Layer(name=name, op=op, inputs=inputs))

    def _free(self, name: str) -> str:
        while name in self._shapes:
            name += "_"
        return name

    def _named(self) -> list[Layer]:
        """Name the layers; a single flatten layer is called "flatten", as in our own networks."""
        put = list(self._flattened.values())
        if len(put) != 1 or FLATTEN in self._shapes:
            return self._layers
        (old,) = put
        return [
            Layer(
                name=FLATTEN if layer.name == old else layer.name,
                op=layer.op,
                inputs=tuple([FLATTEN if name == old else name for name in layer.inputs]),
            )
            for layer in self._layers
        ]

    def _wrong_at(self, name: str, what: str) -> GraphError:
        return self._wrong(self._lines[name], f"layer {name!r}: {what}")

    def _wrong(self, line: int, what: str) -> GraphError:
        return GraphError(f"{self._file}, line {line}: {what}")
