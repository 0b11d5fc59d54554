"""One layer of a Caffe network: the phases that include it, and how it is trained.

`layer { type: "Convolution" }` is the current form; `layers { type: CONVOLUTION }` the one before ("V1"). Both become a
CaffeLayer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from deepstone.errors import nearest
from deepstone.models.caffe.fields import Fields, FileErrors

Phase: TypeAlias = Literal["TRAIN", "TEST"]
PHASES: tuple[Phase, Phase] = ("TRAIN", "TEST")  # in the order of Caffe's enumeration

# V1 wrote types as words of an enumeration. Types that we do not have are included, for error messages.
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
    fields: Fields  # all other fields
    v1: bool = False

    @property
    def line(self) -> int:
        return self.fields.line


def layers_of(net: Fields) -> list[CaffeLayer]:
    """Return all layers of a network, of every phase."""
    now, before = net.messages("layer", apart=True), net.messages("layers", apart=True)
    if now and before:
        net.error("both layer and layers are there; Caffe takes one of them", max(now[0].line, before[0].line))
    return [_read(fields, v1=not now) for fields in now or before]


def _read(fields: Fields, *, v1: bool) -> CaffeLayer:
    if v1 and fields.has("layer"):
        fields.error("this is the oldest form (a layer in layers); run Caffe's upgrade_net_proto_text on the file")
        fields.ignore("layer", "type", "name")
        return CaffeLayer(name="", type="", bottoms=(), tops=(), fields=fields, v1=True)
    name = fields.text("name")
    fields.set_place(f"layer {name!r}: ")
    if not name:
        fields.error("a layer needs a name")
    elif not name.isprintable():
        fields.error("its name has characters that cannot be shown")
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
        close = "" if fields.errors.enough else nearest(word, V1_TYPES)
        fields.error(f"type {word} is none of `layers`; {close}")
        return ""
    return V1_TYPES.get(word, "")


def _blobs(fields: Fields, name: str) -> tuple[str, ...]:
    return tuple(fields.texts(name))


def refuse_names_used_twice(layers: Sequence[CaffeLayer], errors: FileErrors) -> None:
    first: dict[str, int] = {}
    for layer in layers:
        if layer.name in first:
            errors.add(layer.line, f"layer {layer.name!r}: line {first[layer.name]} has a layer of this name already")
        elif layer.name:
            first[layer.name] = layer.line


@dataclass(frozen=True, kw_only=True, slots=True)
class NetState:
    """The state that rules are checked against, as in `caffe time`: the given phase, level 0, the file's own stages."""

    phase: Phase
    stages: frozenset[str] = frozenset()
    level: int = 0


def net_state(net: Fields, phase: Phase) -> NetState:
    """The phase in the file's own `state` does not count: the caller decides it."""
    given = net.message("state")
    given.ignore("phase", "level")
    return NetState(phase=phase, stages=frozenset(given.texts("stage")))


def present(layers: Sequence[CaffeLayer], state: NetState) -> list[CaffeLayer]:
    return [layer for layer in layers if _is_present(layer, state)]


def _is_present(layer: CaffeLayer, state: NetState) -> bool:
    includes, excludes = layer.fields.messages("include"), layer.fields.messages("exclude")
    if includes and excludes:
        layer.fields.error("give include or exclude rules, not both")
    met = [_meets(rule, state) for rule in (*includes, *excludes)]
    return any(met) if includes else not any(met)


def _meets(rule: Fields, state: NetState) -> bool:
    phase = rule.choice("phase", PHASES, state.phase)
    lowest = rule.whole("min_level", state.level, least=-(2**31))
    highest = rule.whole("max_level", state.level, least=-(2**31))
    required, excluded = set(rule.texts("stage")), set(rule.texts("not_stage"))
    in_level = lowest <= state.level <= highest
    return phase == state.phase and in_level and required <= state.stages and not excluded & state.stages


def refuse_partial_training(layer: CaffeLayer, *, has_weights: bool) -> None:
    """Refuse frozen weights: Caffe skips their gradients, but here every weight is trained."""
    fields = layer.fields
    fields.ignore("weight_decay", "blob_share_mode", "param")
    rates = fields.numbers("blobs_lr")
    if not layer.v1:
        for spec in fields.messages("param"):
            spec.ignore("name", "decay_mult", "share_mode")
            rates += spec.numbers("lr_mult")
    if has_weights and 0.0 in rates:
        fields.error("frozen weights (a learning rate of 0) are not supported: Deepstone trains all")
    if fields.messages("blobs", apart=True):
        fields.error("holds weights (blobs); take the .prototxt without them", fields.line_of("blobs"))
    if False in fields.truths("propagate_down")[:1]:
        fields.error("propagate_down: false is not supported: Deepstone trains all", fields.line_of("propagate_down"))


def refuse_shared_weights(layers: Sequence[CaffeLayer]) -> None:
    """Refuse shared weights: weights of the same name are one array in Caffe."""
    owners: dict[str, CaffeLayer] = {}
    for layer in layers:
        fields = layer.fields
        names = fields.texts("param") if layer.v1 else [spec.text("name") for spec in fields.messages("param")]
        given = {name: owners.setdefault(name, layer) for name in filter(None, names)}
        shared = [name for name, owner in given.items() if owner is not layer]
        if shared:
            owner = given[shared[0]].name
            fields.error(
                f"shares its weights ({', '.join(shared)}) with layer {owner!r}, which is not supported: every layer "
                "here trains its own; take the names of its param away, or the layer"
            )
