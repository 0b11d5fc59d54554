"""Residual networks: 50, 101 and 152 for ImageNet as in torchvision, and three very deep ones for 32x32 images."""

from __future__ import annotations

from collections.abc import Callable

from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph

_BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


def resnet(depth: int) -> Graph:
    """torchvision's resnet50, 101 or 152: "v1.5", which strides in the 3x3 convolution and not in the 1x1 before it."""
    b = Builder(f"resnet{depth}")
    x = b.input("input", (3, 224, 224))
    x = b.conv("conv1", x, channels=64, kernel=7, stride=2, pad=3, bias=False)
    x = b.batch_norm("bn1", x)
    x = b.relu("relu", x)
    x = b.max_pool("maxpool", x, kernel=3, stride=2, pad=1)
    x = _stages(b, x, _bottleneck, blocks=_BLOCKS[depth], channels=(64, 256, 512, 1024, 2048))
    return _head(b, x, classes=1000)


def resnet110() -> Graph:
    """He et al. 2015, section 4.2: basic blocks, depth 6n + 2 with n = 18.

    Where channels double, the shortcut is a 1x1 convolution with batch norm (option B), which adds 2,752 parameters to
    the paper's 1,727,962. The paper pads it with zero channels (option A): no layer of the graph does that, every
    framework would need a trick of its own, and the Keras examples have a 1x1 convolution there too.
    """
    b = Builder("resnet110")
    x = _cifar_stem(b)
    x = b.batch_norm("bn1", x)
    x = b.relu("relu", x)
    x = _stages(b, x, _basic, blocks=(18, 18, 18), channels=(16, 16, 32, 64))
    return _head(b, x, classes=10)


def resnet1001() -> Graph:
    """He et al. 2016: pre-activation bottlenecks, depth 9n + 2 with n = 111.

    As in the authors' resnet-1k-layers: stride in the first 1x1, projections without batch norm after the shared one.
    """
    return _preactivation("resnet1001", blocks=111)


def resnet5000() -> Graph:
    """resnet1001 with n = 555: 4997 layers, the depth 9n + 2 nearest to 5000.

    jain2019 calls its ResNet-5000 "a synthetic 5000-layer model" and says no more of it.
    """
    return _preactivation("resnet5000", blocks=555)


def _preactivation(name: str, *, blocks: int) -> Graph:
    b = Builder(name)
    x = _cifar_stem(b)
    x = _stages(b, x, _preactivation_bottleneck, blocks=(blocks,) * 3, channels=(16, 64, 128, 256))
    x = b.batch_norm("bn", x)
    x = b.relu("relu", x)
    return _head(b, x, classes=10)


def _cifar_stem(b: Builder) -> str:
    x = b.input("input", (3, 32, 32))
    return b.conv("conv1", x, channels=16, kernel=3, pad=1, bias=False)


def _head(b: Builder, source: str, *, classes: int) -> Graph:
    x = b.global_pool("avgpool", source)
    x = b.flatten("flatten", x)
    return b.build_classifier("fc", x, classes=classes)


_Block = Callable[[Builder, str, str, int, int, bool], str]
"""(builder, name, source, output channels, stride, whether the shortcut is a projection) -> output."""


def _stages(b: Builder, source: str, block: _Block, *, blocks: tuple[int, ...], channels: tuple[int, ...]) -> str:
    """layer1, layer2 ...: all but layer1 halve the image, in their first block. `channels` starts with the stem's."""
    x = source
    for stage, count in enumerate(blocks, 1):
        for position in range(count):
            first = position == 0
            project = first and channels[stage - 1] != channels[stage]
            stride = 2 if first and stage > 1 else 1
            x = block(b, f"layer{stage}.{position}", x, channels[stage], stride, project)
    return x


def _bottleneck(b: Builder, name: str, source: str, channels: int, stride: int, project: bool) -> str:
    x = _conv_norm(b, name, 1, source, channels // 4, 1)
    x = b.relu(f"{name}.relu1", x)
    x = _conv_norm(b, name, 2, x, channels // 4, 3, stride=stride)
    x = b.relu(f"{name}.relu2", x)
    x = _conv_norm(b, name, 3, x, channels, 1)
    x = b.add(f"{name}.add", x, _shortcut(b, name, source, channels, stride, project))
    return b.relu(f"{name}.relu3", x)


def _basic(b: Builder, name: str, source: str, channels: int, stride: int, project: bool) -> str:
    x = _conv_norm(b, name, 1, source, channels, 3, stride=stride)
    x = b.relu(f"{name}.relu1", x)
    x = _conv_norm(b, name, 2, x, channels, 3)
    x = b.add(f"{name}.add", x, _shortcut(b, name, source, channels, stride, project))
    return b.relu(f"{name}.relu2", x)


def _preactivation_bottleneck(b: Builder, name: str, source: str, channels: int, stride: int, project: bool) -> str:
    active = _norm_relu(b, name, 1, source)
    x = b.conv(f"{name}.conv1", active, channels=channels // 4, kernel=1, stride=stride, bias=False)
    x = _norm_relu(b, name, 2, x)
    x = b.conv(f"{name}.conv2", x, channels=channels // 4, kernel=3, pad=1, bias=False)
    x = _norm_relu(b, name, 3, x)
    x = b.conv(f"{name}.conv3", x, channels=channels, kernel=1, bias=False)
    shortcut = source
    if project:
        shortcut = b.conv(f"{name}.downsample", active, channels=channels, kernel=1, stride=stride, bias=False)
    return b.add(f"{name}.add", x, shortcut)


def _conv_norm(b: Builder, block: str, number: int, source: str, channels: int, kernel: int, *, stride: int = 1) -> str:
    name = f"{block}.conv{number}"
    x = b.conv(name, source, channels=channels, kernel=kernel, stride=stride, pad=kernel // 2, bias=False)
    return b.batch_norm(f"{block}.bn{number}", x)


def _norm_relu(b: Builder, block: str, number: int, source: str) -> str:
    x = b.batch_norm(f"{block}.bn{number}", source)
    return b.relu(f"{block}.relu{number}", x)


def _shortcut(b: Builder, block: str, source: str, channels: int, stride: int, project: bool) -> str:
    if not project:
        return source
    x = b.conv(f"{block}.downsample.0", source, channels=channels, kernel=1, stride=stride, bias=False)
    return b.batch_norm(f"{block}.downsample.1", x)
