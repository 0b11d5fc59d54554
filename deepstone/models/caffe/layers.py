"""The supported Caffe layer types: turns a layer's parameters into an operation of the graph.

Nothing is silently dropped: a field that changes the computation is honoured or refused. Fields that change only
initial weights, the update or the engine (fillers, learning rates, engines) are listed here and ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deepstone.graph import ops
from deepstone.graph.ops import Op, Pad, Pair
from deepstone.models.caffe.fields import Fields
from deepstone.models.caffe.layer import CaffeLayer, refuse_partial_training
from deepstone.models.caffe.sources import PARAMETERS as SOURCE_PARAMETERS
from deepstone.models.caffe.sources import SOURCE_TYPES, layer_sources, unknown_sources
from deepstone.models.caffe.wiring import Compute, FromOutside, Loss, Part, Reshape, Role, Slices

_ANY = 2**31
_FILLERS = ("weight_filler", "bias_filler", "filler")
_PARAMETERS = (
    *SOURCE_PARAMETERS,
    "accuracy_param",
    "batch_norm_param",
    "concat_param",
    "convolution_param",
    "dropout_param",
    "eltwise_param",
    "flatten_param",
    "inner_product_param",
    "loss_param",
    "lrn_param",
    "pooling_param",
    "relu_param",
    "reshape_param",
    "scale_param",
    "shuffle_channel_param",
    "sigmoid_param",
    "slice_param",
    "softmax_param",
    "tanh_param",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Type:
    """The reader of a type, and the fewest and most bottoms and tops."""

    read: Callable[[CaffeLayer], Part]
    bottoms: tuple[int, int] = (1, 1)
    tops: tuple[int, int] = (1, 1)
    has_weights: bool = False  # that are trained


def read_layer(layer: CaffeLayer, *, sized: bool = False) -> Part:
    """What this layer means; whatever is wrong with it goes to its errors.

    `sized`: the user gave the size of images. Then where they come from does not matter.
    """
    known = _TYPES.get(layer.type)
    if known is None:
        if not layer.type:
            layer.fields.error("needs a type")
        elif sized and layer.tops and not layer.bottoms:
            return FromOutside(sources=tuple(unknown_sources(layer)))
        else:
            layer.fields.errors.add_type(layer.line, layer.type, _remedy(layer))
        return Role.LEFT_OUT
    layer.fields.ignore("phase", "engine")
    _refuse_blobs(layer, "bottom", len(layer.bottoms), known.bottoms)
    _refuse_blobs(layer, "top", len(layer.tops), known.tops)
    refuse_partial_training(layer, has_weights=known.has_weights)
    part = known.read(layer)
    if any(layer.fields.numbers("loss_weight")[1 if isinstance(part, Loss) else 0 :]):
        layer.fields.error("loss_weight: only the first top of a SoftmaxWithLoss is a loss here")
    layer.fields.refuse_leftovers(dict.fromkeys(_PARAMETERS, f"not a parameter of {layer.type}"))
    return part


def _remedy(layer: CaffeLayer) -> str:
    if layer.tops and not layer.bottoms:
        return "if it gives the images, say their size with --input, as in --input 3x224x224"
    if layer.type.endswith("Loss"):
        return "put a SoftmaxWithLoss in its place"
    return _REMEDIES.get(layer.type, "")


def _refuse_blobs(layer: CaffeLayer, what: str, count: int, allowed: tuple[int, int]) -> None:
    fewest, most = allowed
    if not fewest <= count <= most:
        expected = str(fewest) if fewest == most else f"at least {fewest}" if count < fewest else f"at most {most}"
        layer.fields.error(f"number of {what}s: {layer.type} takes {expected} here, not {count}")


def _convolution(layer: CaffeLayer, *, groups: int | None = None) -> Part:
    p = layer.fields.message("convolution_param")
    p.ignore("engine", "force_nd_im2col", *_FILLERS)
    if p.whole("axis", 1, least=-_ANY) not in (1, -3):
        p.error("axis: only 1, the channels, is supported", p.line_of("axis"))
    return Compute(
        op=ops.Conv(
            channels=_needed(layer, "convolution_param", "num_output"),
            kernel=_pair(p, "kernel_size", default=None, sided="kernel", listed=True),
            stride=_pair(p, "stride", default=1, sided="stride", listed=True),
            pad=_padding(_pair(p, "pad", default=0, sided="pad", listed=True)),
            dilation=_pair(p, "dilation", default=1, listed=True),
            groups=p.whole("group", groups or 1, least=1),
            bias=p.truth("bias_term", True),
        )
    )


def _depthwise(layer: CaffeLayer) -> Part:
    """Of other Caffes: a convolution with a group for each channel."""
    return _convolution(layer, groups=layer.fields.message("convolution_param").whole("num_output", 1, least=1))


def _needed(layer: CaffeLayer, parameters: str, name: str) -> int:
    p = layer.fields.message(parameters)
    if not p.has(name):
        layer.fields.error(f"needs {parameters}.{name}")
    return p.whole(name, 1, least=1)


def _pooling(layer: CaffeLayer) -> Part:
    p = layer.fields.message("pooling_param")
    p.ignore("engine")
    method = p.choice("pool", ("MAX", "AVE", "STOCHASTIC"), "MAX")
    if method == "STOCHASTIC":
        p.error("pool: STOCHASTIC is not supported", p.line_of("pool"))
    # BVLC's Caffe has round_mode; others have ceil_mode for the same.
    rounds_up = p.choice("round_mode", ("CEIL", "FLOOR"), "CEIL") == "CEIL" and p.truth("ceil_mode", True)
    stride = _pair(p, "stride", default=1, sided="stride")
    sides = _pair(p, "pad", default=0, sided="pad")
    if p.truth("global_pooling", False):
        if p.has("kernel_size") or p.has("kernel_h") or p.has("kernel_w"):
            p.error("with global_pooling the kernel is the image; take kernel_size away")
        if stride != (1, 1) or sides != (0, 0):
            p.error("with global_pooling stride must be 1 and pad 0")
        return Compute(op=ops.GlobalPool()) if method == "AVE" else Role.GLOBAL_MAXIMUM
    kernel = _pair(p, "kernel_size", default=None, sided="kernel")
    if method == "AVE":
        pool = ops.AveragePool(kernel=kernel, stride=stride, pad=_padding(sides), ceil_mode=rounds_up, count_pad=True)
        return Compute(op=pool)
    return Compute(op=ops.MaxPool(kernel=kernel, stride=stride, pad=_padding(sides), ceil_mode=rounds_up))


def _inner_product(layer: CaffeLayer) -> Part:
    p = layer.fields.message("inner_product_param")
    p.ignore("engine", *_FILLERS)
    if p.whole("axis", 1, least=-_ANY) != 1:
        p.error("axis: only 1 is supported", p.line_of("axis"))
    if p.truth("transpose", False):
        p.error("transpose: true is not supported", p.line_of("transpose"))
    return Compute(
        op=ops.Dense(features=_needed(layer, "inner_product_param", "num_output"), bias=p.truth("bias_term", True))
    )


def _relu(layer: CaffeLayer) -> Part:
    p = layer.fields.message("relu_param")
    p.ignore("engine")
    if p.number("negative_slope", 0.0) != 0.0:
        p.error("negative_slope: only 0 is supported", p.line_of("negative_slope"))
    return Compute(op=ops.Relu())


def _plain(parameters: str, op: Op) -> Callable[[CaffeLayer], Part]:
    def read(layer: CaffeLayer) -> Part:
        layer.fields.message(parameters).ignore("engine")
        return Compute(op=op)

    return read


def _lrn(layer: CaffeLayer) -> Part:
    p = layer.fields.message("lrn_param")
    p.ignore("engine")
    within = p.choice("norm_region", ("ACROSS_CHANNELS", "WITHIN_CHANNEL"), "ACROSS_CHANNELS") == "WITHIN_CHANNEL"
    k = p.number("k", 1.0)
    if within and k != 1.0:
        p.error("k: Caffe does not use it WITHIN_CHANNEL, where it is 1; take it away", p.line_of("k"))
    return Compute(
        op=ops.Lrn(
            size=p.whole("local_size", 5, least=1),
            alpha=p.number("alpha", 1.0),
            beta=p.number("beta", 0.75),
            k=k,
            within_channel=within,
        )
    )


def _batch_norm(layer: CaffeLayer) -> Part:
    p = layer.fields.message("batch_norm_param")
    p.ignore("engine", "use_global_stats")  # network.py reads it: its meaning depends on the loss
    fraction = p.decimal("moving_average_fraction", "0.999")
    return Compute(op=ops.BatchNorm(epsilon=p.number("eps", 1e-5), momentum=float(1 - fraction)))


def _scale(layer: CaffeLayer) -> Part:
    p = layer.fields.message("scale_param")
    p.ignore(*_FILLERS)
    if len(layer.bottoms) == 2:
        return _scale_by_bottom(p)
    if p.whole("axis", 1, least=-_ANY) not in (1, -3):
        p.error("axis: only 1, the channels, is supported", p.line_of("axis"))
    if p.whole("num_axes", 1, least=-_ANY) != 1:
        p.error("num_axes: only 1 is supported", p.line_of("num_axes"))
    if not p.truth("bias_term", False):
        p.error("bias_term: true is needed; a batch norm here has both scale and bias")
    return Role.SCALE_AND_SHIFT


def _scale_by_bottom(p: Fields) -> Part:
    """The second bottom holds the factors: of every value, or one for each channel."""
    p.ignore("num_axes")
    if p.whole("axis", 1, least=-_ANY) != 0:
        p.error("axis: with two bottoms only 0, where the second has the batch too, is supported", p.line_of("axis"))
    if p.truth("bias_term", False):
        p.error("bias_term: only false is supported with two bottoms", p.line_of("bias_term"))
    return Compute(op=ops.Multiply())


def _eltwise(layer: CaffeLayer) -> Part:
    p = layer.fields.message("eltwise_param")
    p.ignore("stable_prod_grad", "engine")
    operation = p.choice("operation", ("PROD", "SUM", "MAX"), "SUM")
    if operation == "MAX" or (operation == "PROD" and len(layer.bottoms) != 2):
        told = f"operation: {operation} is not supported, only SUM, and PROD of two; SUM does nearly the same work"
        p.error(told, p.line_of("operation"))
    if any(coefficient != 1.0 for coefficient in p.numbers("coeff")):
        p.error("coeff: only 1 is supported", p.line_of("coeff"))
    return Compute(op=ops.Multiply() if operation == "PROD" else ops.Add())


def _refuse_other_axes(p: Fields, old_name: str) -> None:
    """Only the channels are joined or cut."""
    p.ignore("engine")
    for name in ("axis", old_name):
        if p.whole(name, 1, least=-_ANY) not in (1, -3):
            p.error(f"{name}: only 1, the channels, is supported", p.line_of(name))


def _concat(layer: CaffeLayer) -> Part:
    p = layer.fields.message("concat_param")
    _refuse_other_axes(p, "concat_dim")
    return Compute(op=ops.Concat())


def _slice(layer: CaffeLayer) -> Part:
    p = layer.fields.message("slice_param")
    _refuse_other_axes(p, "slice_dim")
    points = p.wholes("slice_point", least=1)
    if points and len(points) != len(layer.tops) - 1:
        p.error(f"slice_point: {len(layer.tops)} tops need {len(layer.tops) - 1}, not {len(points)}")
    return Slices(points=tuple(points))


def _shuffle(layer: CaffeLayer) -> Part:
    return Compute(op=ops.Shuffle(groups=_needed(layer, "shuffle_channel_param", "group")))


def _scale_and_add(layer: CaffeLayer) -> Part:
    return Role.SCALE_AND_ADD


def _reshape(layer: CaffeLayer) -> Part:
    p = layer.fields.message("reshape_param")
    if p.whole("axis", 0, least=-_ANY) != 0 or p.whole("num_axes", -1, least=-_ANY) != -1:
        p.error("only all sides from axis 0 on are supported")
    return Reshape(sides=tuple(p.message("shape").wholes("dim", least=-1)))


def _dropout(layer: CaffeLayer) -> Part:
    return Compute(op=ops.Dropout(rate=layer.fields.message("dropout_param").number("dropout_ratio", 0.5)))


def _flatten(layer: CaffeLayer) -> Part:
    p = layer.fields.message("flatten_param")
    if p.whole("axis", 1, least=-_ANY) not in (1, -3) or p.whole("end_axis", -1, least=-_ANY) not in (-1, 3):
        p.error("only from axis 1 to the last is supported")
    return Compute(op=ops.Flatten())


def _refuse_other_axis(layer: CaffeLayer) -> None:
    p = layer.fields.message("softmax_param")
    p.ignore("engine")
    if p.whole("axis", 1, least=-_ANY) not in (1, -1, -3):
        p.error("axis: only 1 is supported", p.line_of("axis"))


def _softmax(layer: CaffeLayer) -> Part:
    _refuse_other_axis(layer)
    return Role.SOFTMAX


def _softmax_with_loss(layer: CaffeLayer) -> Part:
    _refuse_other_axis(layer)
    p = layer.fields.message("loss_param")
    p.ignore("normalize")  # with one label per image, every mode except NONE divides by the batch
    if p.choice("normalization", ("FULL", "VALID", "BATCH_SIZE", "NONE"), "VALID") == "NONE":
        p.error("normalization: NONE is not supported; the loss is a mean over the batch", p.line_of("normalization"))
    if p.has("ignore_label"):
        p.error("ignore_label: not supported; every image has a label", p.line_of("ignore_label"))
    weights = layer.fields.numbers("loss_weight")
    return Loss(weight=weights[0] if weights else 1.0)


def _left_out(layer: CaffeLayer) -> Part:
    layer.fields.ignore("accuracy_param")
    return Role.LEFT_OUT


def _from_outside(layer: CaffeLayer) -> Part:
    return FromOutside(sources=tuple(layer_sources(layer)))


def _hand_on(layer: CaffeLayer) -> Part:
    return Role.HAND_ON


def _pair(fields: Fields, name: str, *, default: int | None, sided: str = "", listed: bool = False) -> Pair:
    """Read a kernel, stride or pad from `name`, or from `sided`_h and `sided`_w. `listed`: `name` may occur twice.

    Without a default, one of them is required.
    """
    least = 0 if default == 0 else 1
    both = fields.wholes(name, least=least)
    if sided and (fields.has(f"{sided}_h") or fields.has(f"{sided}_w")):
        if both:
            fields.error(f"give {name}, or {sided}_h and {sided}_w, not both", fields.line_of(name))
        return _one_per_side(fields, sided, least)
    if len(both) > (2 if listed else 1):
        fields.error(f"{name} is given {len(both)} times", fields.line_of(name))
    if not both:
        if default is None:
            fields.error(f"needs {name}, or {sided}_h and {sided}_w")
        both = [1 if default is None else default]
    return both[0], both[-1]


def _one_per_side(fields: Fields, sided: str, least: int) -> Pair:
    for here, other in (("h", "w"), ("w", "h")):
        if not fields.has(f"{sided}_{other}"):
            fields.error(f"{sided}_{here} needs {sided}_{other} beside it", fields.line_of(f"{sided}_{here}"))
    return fields.whole(f"{sided}_h", 1, least=least), fields.whole(f"{sided}_w", 1, least=least)


def _padding(sides: Pair) -> Pad:
    high, wide = sides
    return high, high, wide, wide


_PER_PIXEL = "networks here have one label per image; if it makes scores per pixel, end the network before it"
_REMEDIES = {
    **dict.fromkeys(("Crop", "Deconvolution", "Interp", "Upsample"), _PER_PIXEL),
    **dict.fromkeys(("ELU", "PReLU"), "a ReLU does nearly the same work"),
}
_TYPES = {
    "Accuracy": _Type(read=_left_out, bottoms=(0, _ANY), tops=(0, _ANY)),
    "Axpy": _Type(read=_scale_and_add, bottoms=(3, 3)),
    "BatchNorm": _Type(read=_batch_norm),
    "Concat": _Type(read=_concat, bottoms=(2, _ANY)),
    "Convolution": _Type(read=_convolution, has_weights=True),
    "ConvolutionDepthwise": _Type(read=_depthwise, has_weights=True),
    "DepthwiseConvolution": _Type(read=_depthwise, has_weights=True),
    "Dropout": _Type(read=_dropout),
    "Eltwise": _Type(read=_eltwise, bottoms=(2, _ANY)),
    "Flatten": _Type(read=_flatten),
    "InnerProduct": _Type(read=_inner_product, has_weights=True),
    "LRN": _Type(read=_lrn),
    "Pooling": _Type(read=_pooling),
    "ReLU": _Type(read=_relu),
    "Reshape": _Type(read=_reshape),
    "Scale": _Type(read=_scale, bottoms=(1, 2), has_weights=True),
    "ShuffleChannel": _Type(read=_shuffle),
    "Sigmoid": _Type(read=_plain("sigmoid_param", ops.Sigmoid())),
    "Silence": _Type(read=_left_out, bottoms=(0, _ANY), tops=(0, 0)),
    "Slice": _Type(read=_slice, tops=(1, _ANY)),
    "Softmax": _Type(read=_softmax),
    "SoftmaxWithLoss": _Type(read=_softmax_with_loss, bottoms=(2, 2), tops=(0, 2)),
    "Split": _Type(read=_hand_on, tops=(1, _ANY)),
    "TanH": _Type(read=_plain("tanh_param", ops.Tanh())),
    **{name: _Type(read=_from_outside, bottoms=(0, 0), tops=(1, _ANY)) for name in SOURCE_TYPES},
}
TYPES = frozenset(_TYPES)
