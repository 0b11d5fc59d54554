"""The operations of layers: their attributes, output shapes, parameters and buffers.

Shapes are per sample, without the batch: (channels, height, width), or (features,) once flattened.
docs/graph.md and graph/reference.py define exactly what each operation computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

Shape: TypeAlias = tuple[int, ...]
Pair: TypeAlias = tuple[int, int]
Pad: TypeAlias = tuple[int, int, int, int]  # top, bottom, left, right


class OpError(ValueError):
    """An operation is invalid; the graph adds the layer's name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Op:
    """One operation. Final subclasses below; nothing else subclasses them."""

    kind: ClassVar[str]
    arity: ClassVar[tuple[int, int | None]] = (1, 1)  # fewest and most inputs; None: no limit
    ignored_in_sha: ClassVar[tuple[str, ...]] = ()  # attributes that do not change what is computed

    def check(self) -> None:
        """Raise OpError if an attribute is invalid."""

    def output(self, inputs: list[Shape]) -> Shape:
        """Return the output's shape for these inputs, or raise OpError."""
        return inputs[0]

    def parameters(self, inputs: list[Shape]) -> dict[str, Shape]:
        """Return the shapes of the parameters, in their stored order."""
        return {}

    def buffers(self, inputs: list[Shape]) -> dict[str, Shape]:
        """Return the shapes of the buffers: arrays that steps update without a gradient."""
        return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Input(Op):
    """The image. A graph has exactly one."""

    kind = "input"
    arity = (0, 0)
    shape: Shape

    def check(self) -> None:
        if len(self.shape) != 3:
            raise OpError(f"shape must be (channels, height, width), not {list(self.shape)}")
        _positive("shape", *self.shape)

    def output(self, inputs: list[Shape]) -> Shape:
        return self.shape


@dataclass(frozen=True, kw_only=True, slots=True)
class Conv(Op):
    """Cross-correlation, which every framework calls convolution."""

    kind = "conv"
    channels: int
    kernel: Pair
    stride: Pair = (1, 1)
    pad: Pad = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    bias: bool = True

    def check(self) -> None:
        _positive("channels", self.channels)
        _positive("kernel", *self.kernel)
        _positive("stride", *self.stride)
        _positive("dilation", *self.dilation)
        _positive("groups", self.groups)
        _not_negative("pad", *self.pad)
        if self.channels % self.groups:
            raise OpError(f"{self.channels} channels cannot be split into {self.groups} groups")

    def output(self, inputs: list[Shape]) -> Shape:
        channels, height, width = _image(inputs[0])
        if channels % self.groups:
            raise OpError(f"{channels} input channels cannot be split into {self.groups} groups")
        top, bottom, left, right = self.pad
        return (
            self.channels,
            _windows("height", height + top + bottom, self.kernel[0], self.stride[0], self.dilation[0]),
            _windows("width", width + left + right, self.kernel[1], self.stride[1], self.dilation[1]),
        )

    def parameters(self, inputs: list[Shape]) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {"weight": (self.channels, inputs[0][0] // self.groups, *self.kernel)}
        if self.bias:
            shapes["bias"] = (self.channels,)
        return shapes


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pool(Op):
    kernel: Pair
    stride: Pair
    pad: Pad = (0, 0, 0, 0)
    ceil_mode: bool = False

    def check(self) -> None:
        _positive("kernel", *self.kernel)
        _positive("stride", *self.stride)
        _not_negative("pad", *self.pad)
        top, bottom, left, right = self.pad
        if max(top, bottom) >= self.kernel[0] or max(left, right) >= self.kernel[1]:
            raise OpError(f"pad {list(self.pad)} must be smaller than the kernel {list(self.kernel)}")

    def output(self, inputs: list[Shape]) -> Shape:
        channels, height, width = _image(inputs[0])
        top, bottom, left, right = self.pad
        return (
            channels,
            pooled("height", height, (top, bottom), self.kernel[0], self.stride[0], self.ceil_mode),
            pooled("width", width, (left, right), self.kernel[1], self.stride[1], self.ceil_mode),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class MaxPool(_Pool):
    kind = "max_pool"


@dataclass(frozen=True, kw_only=True, slots=True)
class AveragePool(_Pool):
    """`count_pad`: whether padding counts in the divisor. Positions that ceil_mode adds beyond the padding never
    count."""

    kind = "average_pool"
    count_pad: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class GlobalPool(Op):
    """The mean over height and width; keeps both as 1."""

    kind = "global_pool"

    def output(self, inputs: list[Shape]) -> Shape:
        return (_image(inputs[0])[0], 1, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Dense(Op):
    kind = "dense"
    features: int
    bias: bool = True

    def check(self) -> None:
        _positive("features", self.features)

    def output(self, inputs: list[Shape]) -> Shape:
        _flat(inputs[0])
        return (self.features,)

    def parameters(self, inputs: list[Shape]) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {"weight": (self.features, inputs[0][0])}
        if self.bias:
            shapes["bias"] = (self.features,)
        return shapes


@dataclass(frozen=True, kw_only=True, slots=True)
class Activation(Op):
    """An elementwise function; the output has the shape of the input."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Relu(Activation):
    kind = "relu"


@dataclass(frozen=True, kw_only=True, slots=True)
class Clip(Activation):
    """Clips values to the range from `low` to `high`; the default is ReLU6."""

    kind = "clip"
    low: float = 0.0
    high: float = 6.0

    def check(self) -> None:
        if not self.low < self.high:
            raise OpError(f"low must be below high, not {self.low} and {self.high}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sigmoid(Activation):
    kind = "sigmoid"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tanh(Activation):
    kind = "tanh"


@dataclass(frozen=True, kw_only=True, slots=True)
class Silu(Activation):
    """x · sigmoid(x), also called swish."""

    kind = "silu"


@dataclass(frozen=True, kw_only=True, slots=True)
class HardSigmoid(Activation):
    """ReLU6(x + 3) / 6."""

    kind = "hard_sigmoid"


@dataclass(frozen=True, kw_only=True, slots=True)
class HardSwish(Activation):
    """x · ReLU6(x + 3) / 6."""

    kind = "hard_swish"


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchNorm(Op):
    """`momentum` is the share of the new batch in the running mean and variance."""

    kind = "batch_norm"
    epsilon: float = 1e-5
    momentum: float = 0.1

    def check(self) -> None:
        if not self.epsilon > 0:
            raise OpError(f"epsilon must be above 0, not {self.epsilon}")
        if not 0 <= self.momentum <= 1:
            raise OpError(f"momentum must be between 0 and 1, not {self.momentum}")

    def output(self, inputs: list[Shape]) -> Shape:
        return _image(inputs[0])

    def parameters(self, inputs: list[Shape]) -> dict[str, Shape]:
        return {"weight": (inputs[0][0],), "bias": (inputs[0][0],)}

    def buffers(self, inputs: list[Shape]) -> dict[str, Shape]:
        return {"running_mean": (inputs[0][0],), "running_var": (inputs[0][0],)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Lrn(Op):
    """Local response normalization over a window of channels, or of pixels of one channel when `within_channel`.

    alpha is divided by the number of values in the window, as in Caffe.
    """

    kind = "lrn"
    size: int = 5
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0
    within_channel: bool = False

    @property
    def window(self) -> int:
        """Return how many values a window has, also at the border of the image."""
        return self.size**2 if self.within_channel else self.size

    def check(self) -> None:
        if self.size < 1 or self.size % 2 == 0:
            raise OpError(f"size must be odd and positive, not {self.size}")
        if not self.k > 0:
            raise OpError(f"k must be above 0, not {self.k}")
        if not self.alpha >= 0:
            raise OpError(f"alpha must not be negative, not {self.alpha}")

    def output(self, inputs: list[Shape]) -> Shape:
        return _image(inputs[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropout(Op):
    """Drops with probability `rate` if the axis `dropout` is on, and scales the rest by 1 / (1 - rate)."""

    kind = "dropout"
    rate: float = 0.5

    def check(self) -> None:
        if not 0 <= self.rate < 1:
            raise OpError(f"rate must be at least 0 and below 1, not {self.rate}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Add(Op):
    kind = "add"
    arity = (2, None)

    def output(self, inputs: list[Shape]) -> Shape:
        if len(set(inputs)) != 1:
            raise OpError(f"inputs differ in shape: {[list(shape) for shape in inputs]}")
        return inputs[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Multiply(Op):
    """The product of two inputs of one shape, or of an image and a gate: one number per channel, for all pixels."""

    kind = "multiply"
    arity = (2, 2)

    def output(self, inputs: list[Shape]) -> Shape:
        first, second = inputs
        if first == second or is_gate(second, first):
            return first
        if is_gate(first, second):
            return second
        raise OpError(
            "inputs must have one shape, or be an image and one number per channel, "
            f"not {list(first)} and {list(second)}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Concat(Op):
    """Joins images along the channels, in the order of the inputs."""

    kind = "concat"
    arity = (2, None)

    def output(self, inputs: list[Shape]) -> Shape:
        images = [_image(shape) for shape in inputs]
        if len({shape[1:] for shape in images}) != 1:
            raise OpError(f"inputs differ in height or width: {[list(shape) for shape in inputs]}")
        return (sum(shape[0] for shape in images), *images[0][1:])


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice(Op):
    """So many `channels` of an image, from the one with the number `first` on; the others are left out."""

    kind = "slice"
    first: int
    channels: int

    def check(self) -> None:
        _not_negative("first", self.first)
        _positive("channels", self.channels)

    def output(self, inputs: list[Shape]) -> Shape:
        channels, height, width = _image(inputs[0])
        if self.first + self.channels > channels:
            last = self.first + self.channels - 1
            raise OpError(f"takes channels {self.first} to {last} of an image that has {channels}")
        return (self.channels, height, width)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shuffle(Op):
    """The channels in another order: the first of each of `groups` groups of equal size, then the second of each, …"""

    kind = "shuffle"
    groups: int

    def check(self) -> None:
        _positive("groups", self.groups)

    def output(self, inputs: list[Shape]) -> Shape:
        channels, _, _ = image = _image(inputs[0])
        if channels % self.groups:
            raise OpError(f"{channels} channels cannot be split into {self.groups} groups")
        return image


@dataclass(frozen=True, kw_only=True, slots=True)
class Flatten(Op):
    """(channels, height, width) to (features,), channels slowest, for any memory layout."""

    kind = "flatten"

    def output(self, inputs: list[Shape]) -> Shape:
        channels, height, width = _image(inputs[0])
        return (channels * height * width,)


@dataclass(frozen=True, kw_only=True, slots=True)
class SoftmaxCrossEntropy(Op):
    """The mean over the batch of -log softmax(x)[label], times `weight`. A graph's loss is the sum of these."""

    kind = "softmax_cross_entropy"
    weight: float = 1.0

    def output(self, inputs: list[Shape]) -> Shape:
        _flat(inputs[0])
        return ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Module(Op):
    """A framework's own module, made by a function in a user's file. Only its output shape is known.

    `weights` is its number of trained values, as its framework counts them. They are not in `parameters`, because no
    other framework has them.
    """

    kind = "module"
    ignored_in_sha = ("path",)
    path: str
    function: str
    sha256: str
    features: int
    weights: int

    def check(self) -> None:
        _positive("features", self.features)
        _not_negative("weights", self.weights)

    def output(self, inputs: list[Shape]) -> Shape:
        _image(inputs[0])
        return (self.features,)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensors(Op):
    """The inputs of a user's own module that are not one image. Their spec is in the user's file; the graph only has
    its description."""

    kind = "tensors"
    arity = (0, 0)
    ignored_in_sha = ("spec",)
    spec: str
    values: int

    def check(self) -> None:
        _positive("values", self.values)

    def output(self, inputs: list[Shape]) -> Shape:
        return (self.values,)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleLoss(Op):
    """A framework's own module with its own loss, made by a function in a user's file. `weights` as in Module.

    `unit` is the unit of a sample, such as tokens, and `units_per_sample` their number; empty and 0 if the file has
    none.
    """

    kind = "module_loss"
    ignored_in_sha = ("path",)
    path: str
    function: str
    sha256: str
    weights: int
    unit: str = ""
    units_per_sample: int = 0
    own_optimizer: bool = False

    def check(self) -> None:
        _not_negative("weights", self.weights)
        _not_negative("units_per_sample", self.units_per_sample)

    def output(self, inputs: list[Shape]) -> Shape:
        return ()


OPS: dict[str, type[Op]] = {
    op.kind: op
    for op in (
        Input,
        Conv,
        MaxPool,
        AveragePool,
        GlobalPool,
        Dense,
        Relu,
        Clip,
        Sigmoid,
        Tanh,
        Silu,
        HardSigmoid,
        HardSwish,
        BatchNorm,
        Lrn,
        Dropout,
        Add,
        Multiply,
        Concat,
        Slice,
        Shuffle,
        Flatten,
        SoftmaxCrossEntropy,
        Module,
        Tensors,
        ModuleLoss,
    )
}


def pooled(side: str, size: int, pad: Pair, kernel: int, stride: int, ceil_mode: bool) -> int:
    """Return how many windows a pool has along one side; the last must start inside the image or its leading pad."""
    room = size + sum(pad) - kernel
    if room < 0:
        raise OpError(f"{side} {size} with pad {sum(pad)} is smaller than the kernel {kernel}")
    count = (-(-room // stride) if ceil_mode else room // stride) + 1
    if ceil_mode and (count - 1) * stride >= size + pad[0]:
        count -= 1
    return count


def is_gate(shape: Shape, image: Shape) -> bool:
    """Whether an array of this shape has one number for each channel of that image, flat or as 1x1 pixels."""
    return len(image) == 3 and shape in (image[:1], (image[0], 1, 1))


def _windows(side: str, size: int, kernel: int, stride: int, dilation: int) -> int:
    reach = dilation * (kernel - 1) + 1
    if size < reach:
        raise OpError(f"{side} {size} with padding is smaller than the kernel's reach {reach}")
    return (size - reach) // stride + 1


def _image(shape: Shape) -> tuple[int, int, int]:
    if len(shape) != 3:
        raise OpError(f"needs an image (channels, height, width), not {list(shape)}")
    return shape[0], shape[1], shape[2]


def _flat(shape: Shape) -> None:
    if len(shape) != 1:
        raise OpError(f"needs a flat input; put a flatten layer before it (input is {list(shape)})")


def _positive(what: str, *values: int) -> None:
    if any(value < 1 for value in values):
        raise OpError(f"{what} must be at least 1, not {', '.join(map(str, values))}")


def _not_negative(what: str, *values: int) -> None:
    if any(value < 0 for value in values):
        raise OpError(f"{what} must not be negative, not {', '.join(map(str, values))}")
