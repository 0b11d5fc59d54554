"""One layer of a Caffe network, in today's form whichever of the two forms its file has.

`layer { type: "Convolution" }` is today's; `layers { type: CONVOLUTION }`, with words for types, the one before ("V1").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepstone.errors import nearest
from deepstone.models.caffe.complaints import Complaints
from deepstone.models.caffe.fields import Fields

# V1 wrote types as words of an enumeration. Those of layers that we do not have are here too, to be told by name.
V1_TYPES = {
    "ABSVAL": "AbsVal",
    "ACCURACY": "Accuracy",
    "ARGMAX": "ArgMax",
    "BNLL": "BNLL",
    "CONCAT": "Concat",
    "CONTRASTIVE_LOSS": "ContrastiveLoss",
    "CONVOLUTION": "Convolution",
    "DATA": "Data",
    "DECONVOLUTION": "Deconvolution",
    "DROPOUT": "Dropout",
    "DUMMY_DATA": "DummyData",
    "ELTWISE": "Eltwise",
    "EUCLIDEAN_LOSS": "EuclideanLoss",
    "EXP": "Exp",
    "FLATTEN": "Flatten",
    "HDF5_DATA": "HDF5Data",
    "HDF5_OUTPUT": "HDF5Output",
    "HINGE_LOSS": "HingeLoss",
    "IM2COL": "Im2col",
    "IMAGE_DATA": "ImageData",
    "INFOGAIN_LOSS": "InfogainLoss",
    "INNER_PRODUCT": "InnerProduct",
    "LRN": "LRN",
    "MEMORY_DATA": "MemoryData",
    "MULTINOMIAL_LOGISTIC_LOSS": "MultinomialLogisticLoss",
    "MVN": "MVN",
    "POOLING": "Pooling",
    "POWER": "Power",
    "RELU": "ReLU",
    "SIGMOID": "Sigmoid",
    "SIGMOID_CROSS_ENTROPY_LOSS": "SigmoidCrossEntropyLoss",
    "SILENCE": "Silence",
    "SLICE": "Slice",
    "SOFTMAX": "Softmax",
    "SOFTMAX_LOSS": "SoftmaxWithLoss",
    "SPLIT": "Split",
    "TANH": "TanH",
    "THRESHOLD": "Threshold",
    "WINDOW_DATA": "WindowData",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CaffeLayer:
    name: str
    type: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    fields: Fields  # what else it holds
    v1: bool = False

    @property
    def line(self) -> int:
        return self.fields.line


def layers_of(net: Fields) -> list[CaffeLayer]:
    """All layers of a network, those of every phase."""
    now, before = net.messages("layer", apart=True), net.messages("layers", apart=True)
    if now and before:
        net.complain("both layer and layers are there; Caffe takes one of them", max(now[0].line, before[0].line))
    return [_read(fields, v1=not now) for fields in now or before]


def _read(fields: Fields, *, v1: bool) -> CaffeLayer:
    if v1 and fields.has("layer"):
        fields.complain("this is the oldest form (a layer in layers); run Caffe's upgrade_net_proto_text on the file")
        fields.ignore("layer", "type", "name")
        return CaffeLayer(name="", type="", bottoms=(), tops=(), fields=fields, v1=True)
    name = fields.text("name")
    fields.say_where(f"layer {name!r}: ")
    if not name:
        fields.complain("a layer needs a name")
    elif not name.isprintable():
        fields.complain("its name has characters that cannot be shown")
    return CaffeLayer(
        name=name,
        type=_v1_type(fields) if v1 else fields.text("type"),
        bottoms=_blobs(fields, "bottom"),
        tops=_blobs(fields, "top"),
        fields=fields,
        v1=v1,
    )


def _v1_type(fields: Fields) -> str:
    word = fields.word("type")
    if word and word not in V1_TYPES:
        close = "" if fields.complaints.enough else nearest(word, V1_TYPES)
        fields.complain(f"type {word} is none of `layers`; {close}")
        return ""
    return V1_TYPES.get(word, "")


def _blobs(fields: Fields, name: str) -> tuple[str, ...]:
    return tuple(fields.texts(name))


def refuse_names_used_twice(layers: Sequence[CaffeLayer], complaints: Complaints) -> None:
    first: dict[str, int] = {}
    for layer in layers:
        if layer.name in first:
            complaints.add(
                layer.line, f"layer {layer.name!r}: line {first[layer.name]} has a layer of this name already"
            )
        elif layer.name:
            first[layer.name] = layer.line
