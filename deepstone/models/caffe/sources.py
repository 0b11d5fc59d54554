"""The sources of images and labels in a Caffe network: data layers, `Input` layers, or `input` fields.

Only the size of images and the batch matter here. Files and databases are not opened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepstone.models.caffe.fields import Fields
from deepstone.models.caffe.layer import CaffeLayer

REMEDY = (
    "say it with --input, as in --input 3x224x224, or add transform_param { crop_size: N }, or put in its place "
    'layer { name: "data" type: "Input" top: "data" top: "label" '
    "input_param { shape { dim: 64 dim: 3 dim: N dim: N } shape { dim: 64 } } }"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One input blob. `shape` is (batch, channels, height, width), or () if it is not known."""

    blob: str
    name: str  # of its layer
    line: int
    shape: tuple[int, ...]
    batch: int | None
    unknown: str = ""  # why the shape is not known


def declared_sources(net: Fields, *, given: bool = False) -> list[Source]:
    """Return the sources in the `input` fields of deploy networks: each has a shape or four `input_dim`."""
    blobs = net.texts("input")
    shapes = _shapes(net.messages("input_shape"))
    dims = net.wholes("input_dim", least=1)
    if dims and not shapes:
        if len(dims) != 4 * len(blobs):
            net.error(f"{len(dims)} input_dim for {len(blobs)} input; each takes four", net.line_of("input_dim"))
        shapes = [tuple(dims[start : start + 4]) for start in range(0, len(dims), 4)]
    if given:  # the caller knows the size
        shapes += [()] * (len(blobs) - len(shapes))
    if len(shapes) < len(blobs):
        net.error("each input needs an input_shape, or four input_dim", net.line_of("input"))
    line = net.line_of("input")
    return [
        Source(blob=blob, name=blob, line=line, shape=shape, batch=_batch(shape))
        for blob, shape in zip(blobs, shapes, strict=False)
    ]


def layer_sources(layer: CaffeLayer) -> list[Source]:
    """Return the sources of a data layer, one for each top. Only the first has images, except in Input and
    DummyData."""
    return _READERS[layer.type](layer)


def unknown_sources(layer: CaffeLayer) -> list[Source]:
    """Those of a layer that reads we know not what: the first top is the image, any other holds labels."""
    shapes = [(), *[(1,)] * (len(layer.tops) - 1)]
    return [_source(layer, top, shape) for top, shape in zip(layer.tops, shapes, strict=True)]


def _input(layer: CaffeLayer) -> list[Source]:
    parameters = layer.fields.message("input_param")
    return _one_each(layer, _shapes(parameters.messages("shape")), parameters)


def _dummy_data(layer: CaffeLayer) -> list[Source]:
    parameters = layer.fields.message("dummy_data_param")
    parameters.ignore("data_filler")
    shapes = _shapes(parameters.messages("shape"))
    sides = [parameters.wholes(name, least=1) for name in ("num", "channels", "height", "width")]
    if not shapes:
        tops = len(layer.tops)
        shapes = list(zip(*[side * tops if len(side) == 1 else side for side in sides], strict=False))
    return _one_each(layer, shapes, parameters)


def _one_each(layer: CaffeLayer, shapes: Sequence[tuple[int, ...]], parameters: Fields) -> list[Source]:
    """Return sources from one shape for all tops, or one for each."""
    if len(shapes) == 1:
        shapes = [shapes[0]] * len(layer.tops)
    if len(shapes) != len(layer.tops):
        parameters.error(f"shape: {len(shapes)} for {len(layer.tops)} tops; give one for each")
    return [_source(layer, top, shape) for top, shape in zip(layer.tops, shapes, strict=False)]


def _data(layer: CaffeLayer) -> list[Source]:
    parameters = layer.fields.message("data_param")
    parameters.ignore("source", "backend", "rand_skip", "prefetch", "shuffle")
    side = parameters.whole("crop_size", 0)  # the place of this field until 2014
    parameters.ignore("scale", "mean_file", "mirror", "force_encoded_color")
    return _with_labels(layer, parameters.whole("batch_size", 0), _cropped(layer, side))


def _image_data(layer: CaffeLayer) -> list[Source]:
    parameters = layer.fields.message("image_data_param")
    parameters.ignore("source", "rand_skip", "shuffle", "root_folder", "scale", "mean_file", "mirror")
    height, width = parameters.whole("new_height", 0), parameters.whole("new_width", 0)
    channels = 3 if parameters.truth("is_color", True) else 1
    image = _cropped(layer, parameters.whole("crop_size", 0), channels=channels)
    if not image and height and width:
        image = (channels, height, width)
    return _with_labels(layer, parameters.whole("batch_size", 0), image)


def _memory_data(layer: CaffeLayer) -> list[Source]:
    parameters = layer.fields.message("memory_data_param")
    channels, height, width = (parameters.whole(name, 0) for name in ("channels", "height", "width"))
    image = _cropped(layer, 0, channels=channels) or (channels, height, width)
    return _with_labels(layer, parameters.whole("batch_size", 0), image if all(image) else ())


def _hdf5_data(layer: CaffeLayer) -> list[Source]:
    parameters = layer.fields.message("hdf5_data_param")
    parameters.ignore("source", "shuffle")
    return _with_labels(layer, parameters.whole("batch_size", 0), ())


def _cropped(layer: CaffeLayer, side: int, *, channels: int = 3) -> tuple[int, ...]:
    """Return the cropped image. The file does not give the number of channels of a database: 3, unless gray."""
    transform = layer.fields.message("transform_param")
    transform.ignore("scale", "mirror", "mean_file", "mean_value", "force_color")
    side = transform.whole("crop_size", 0) or side
    if transform.truth("force_gray", False):
        channels = 1
    return (channels, side, side) if side else ()


def _with_labels(layer: CaffeLayer, batch: int, image: tuple[int, ...]) -> list[Source]:
    """The first top is the image; the others are labels."""
    if batch == 0:
        layer.fields.error("needs a batch_size")
    first = (batch, *image) if image else ()
    shapes = [first, *[(batch,)] * (len(layer.tops) - 1)]
    return [_source(layer, top, shape, batch) for top, shape in zip(layer.tops, shapes, strict=False)]


def _source(layer: CaffeLayer, top: str, shape: tuple[int, ...], batch: int | None = None) -> Source:
    unknown = "" if shape else f"nothing tells the size of its images, and {layer.type} files are not opened; {REMEDY}"
    batch = batch or _batch(shape)  # a file may tell the batch and no size
    return Source(blob=top, name=layer.name, line=layer.line, shape=shape, batch=batch, unknown=unknown)


def _shapes(shapes: Sequence[Fields]) -> list[tuple[int, ...]]:
    return [tuple(shape.wholes("dim", least=1)) for shape in shapes]


def _batch(shape: tuple[int, ...]) -> int | None:
    return shape[0] if shape else None


_READERS: dict[str, Callable[[CaffeLayer], list[Source]]] = {
    "Data": _data,
    "DummyData": _dummy_data,
    "HDF5Data": _hdf5_data,
    "ImageData": _image_data,
    "Input": _input,
    "MemoryData": _memory_data,
}
SOURCE_TYPES = frozenset(_READERS)
PARAMETERS = (
    "transform_param",
    "data_param",
    "dummy_data_param",
    "hdf5_data_param",
    "image_data_param",
    "input_param",
    "memory_data_param",
)
