"""Reads a Caffe network into a graph: reads its layers, selects those of a phase, turns blobs into inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deepstone.errors import GraphError
from deepstone.graph.graph import Graph
from deepstone.graph.ops import Shape
from deepstone.models.caffe.fields import Fields, FileErrors
from deepstone.models.caffe.layer import (
    CaffeLayer,
    Phase,
    layers_of,
    net_state,
    present,
    refuse_names_used_twice,
    refuse_shared_weights,
)
from deepstone.models.caffe.layers import read_layer
from deepstone.models.caffe.sources import Source, declared_sources
from deepstone.models.caffe.text import LIMIT_BYTES, parse
from deepstone.models.caffe.wiring import FromOutside, Loss, Part, Wiring, computes
from deepstone.models.load import LoadedModel
from deepstone.models.reading import absolute, read_file, sha256_of

MOST_LAYERS = 100_000


@dataclass(frozen=True, kw_only=True, slots=True)
class CaffeNetwork:
    """`batch` is the file's own: the batch size of its data layer, or the first side of its input."""

    graph: Graph
    batch: int


def load_prototxt(reference: str, phase: Phase = "TRAIN", *, image: Shape | None = None) -> tuple[LoadedModel, int]:
    """Return the model and the batch in the file. Raises UsageError if it cannot be read.

    `image` is the user's size of an image; it replaces the one in the file.
    """
    path = absolute(reference)
    content = read_file(path, LIMIT_BYTES)
    found = network(content, file=str(path), name=Path(path).stem, phase=phase, image_size=image)
    model = LoadedModel(graph=found.graph, name=found.graph.name, source=str(path), file_sha256=sha256_of(content))
    return model, found.batch


def network(
    content: bytes, *, file: str, name: str, phase: Phase = "TRAIN", image_size: Shape | None = None
) -> CaffeNetwork:
    """Return the network in a .prototxt. `name` is used if the file has no name.

    Raises GraphError with the first malformed place; else all unsupported layer types and parameters, with their lines;
    else the first layer that does not fit.
    """
    errors = FileErrors(file)
    net = Fields(parse(content, file), "", errors)
    own_name = net.text("name")
    declared = declared_sources(net, given=image_size is not None)
    layers = present(layers_of(net), net_state(net, phase))
    net.ignore("debug_info")
    if net.truth("force_backward", False):
        net.error("force_backward: take it away, and ask for input_grad=on", net.line_of("force_backward"))
    net.refuse_leftovers()
    refuse_names_used_twice(layers, errors)
    if not layers or len(layers) > MOST_LAYERS:
        errors.add(1, f"the network has {len(layers):,} layers in phase {phase}; is this a network's file?")
    parts = [(layer, read_layer(layer, sized=image_size is not None)) for layer in layers[:MOST_LAYERS]]
    has_loss = any(isinstance(part, Loss) for _, part in parts)
    _refuse_frozen_statistics(layers, has_loss=has_loss and phase == "TRAIN")
    refuse_shared_weights(layers)
    errors.raise_if_any()

    sources = declared + [source for _, part in parts if isinstance(part, FromOutside) for source in part.sources]
    if image_size is not None:
        sources = _sized(sources, parts, image_size)
    image = _image(sources, parts, file)
    wiring = Wiring(file, image, sources, has_loss=has_loss)
    for layer, part in parts:
        wiring.add(layer, part)
    joined = wiring.layers()
    try:
        graph = Graph(own_name if own_name and own_name.isprintable() else name, joined)
    except GraphError as error:  # found only in the whole graph: losses over different numbers of classes
        raise GraphError(f"{file}: {error}") from None
    return CaffeNetwork(graph=graph, batch=image.shape[0])


def _refuse_frozen_statistics(layers: Sequence[CaffeLayer], *, has_loss: bool) -> None:
    """Refuse frozen batch norms, except in a deploy network: that gets a loss for training, and its norms train too."""
    if not has_loss:
        return
    for layer in layers:
        if layer.type == "BatchNorm" and layer.fields.message("batch_norm_param").truth("use_global_stats", False):
            layer.fields.error("use_global_stats: true in training is not supported")


def _sized(sources: Sequence[Source], parts: Sequence[tuple[CaffeLayer, Part]], image_size: Shape) -> list[Source]:
    """Set the size of image sources. If all sources are labels, add one for the first blob without a producer."""
    sized = [
        source if len(source.shape) == 1 else replace(source, shape=(source.batch or 1, *image_size), unknown="")
        for source in sources
    ]
    if any(len(source.shape) == 4 for source in sized):
        return sized
    layer = next((layer for layer, part in parts if computes(part) and layer.bottoms), None)
    if layer is None:
        return sized
    blob = layer.bottoms[0]
    return [Source(blob=blob, name=blob, line=layer.line, shape=(1, *image_size), batch=None), *sized]


def _image(sources: Sequence[Source], parts: Sequence[tuple[CaffeLayer, Part]], file: str) -> Source:
    """Return the input blob that layers compute with. All others are labels."""
    read = {blob for layer, part in parts if computes(part) for blob in layer.bottoms}
    read |= {layer.bottoms[0] for layer, part in parts if isinstance(part, Loss)}
    images = [source for source in sources if source.blob in read]
    images = (
        images or [source for source in sources if len(source.shape) == 4][:1]
    )  # the layer that needs it reports the error
    if not images:
        there = ", ".join(repr(source.blob) for source in sources[:10]) or "none"
        raise GraphError(f"{file}: no layer computes with what comes from outside (inputs: {there})")
    image = images[0]
    where = f"{file}, line {image.line}: {image.name!r}"
    if len(images) > 1:
        others = ", ".join(f"{source.blob!r} (line {source.line})" for source in images[1:10])
        raise GraphError(f"{where}: computed with, but so is {others}; a network here has one image input")
    if image.unknown:
        raise GraphError(f"{where}: {image.unknown}")
    if len(image.shape) != 4:
        raise GraphError(
            f"{where}: an image's shape is batch, channels, height, width, not {list(image.shape)} "
            "(only networks over images are supported)"
        )
    return image
