"""Networks that are one chain of layers: CifarNet, three AlexNets, OverFeat and VGG. Layers have Caffe's names."""

from __future__ import annotations

from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph

_VGG_CHANNELS = (64, 128, 256, 512, 512)
_VGG_CONVS = {
    11: (1, 1, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}


def cifarnet() -> Graph:
    """Caffe's cifar10_full, which is cuda-convnet's layers-18pct. Its first pool comes before its ReLU, and its norms
    are over pixels within each channel.
    """
    b = Builder("cifarnet")
    x = b.input("data", (3, 32, 32))
    x = b.conv("conv1", x, channels=32, kernel=5, pad=2)
    x = b.max_pool("pool1", x, kernel=3, stride=2, ceil_mode=True)
    x = b.relu("relu1", x)
    x = b.lrn("norm1", x, size=3, alpha=5e-5, beta=0.75, within_channel=True)
    x = b.conv("conv2", x, channels=32, kernel=5, pad=2)
    x = b.relu("relu2", x)
    x = b.average_pool("pool2", x, kernel=3, stride=2, ceil_mode=True)
    x = b.lrn("norm2", x, size=3, alpha=5e-5, beta=0.75, within_channel=True)
    x = b.conv("conv3", x, channels=64, kernel=5, pad=2)
    x = b.relu("relu3", x)
    x = b.average_pool("pool3", x, kernel=3, stride=2, ceil_mode=True)
    x = b.flatten("flatten", x)
    return b.build_classifier("ip1", x, classes=10)


def alexnet() -> Graph:
    """Caffe's bvlc_alexnet: the two halves of the 2012 network as groups, norm before pool."""
    b = Builder("alexnet")
    x = b.input("data", (3, 227, 227))
    x = _conv_relu(b, "1", x, 96, 11, stride=4)
    x = b.lrn("norm1", x, size=5, alpha=1e-4, beta=0.75)
    x = b.max_pool("pool1", x, kernel=3, stride=2, ceil_mode=True)
    x = _conv_relu(b, "2", x, 256, 5, pad=2, groups=2)
    x = b.lrn("norm2", x, size=5, alpha=1e-4, beta=0.75)
    x = b.max_pool("pool2", x, kernel=3, stride=2, ceil_mode=True)
    x = _conv_relu(b, "3", x, 384, 3, pad=1)
    x = _conv_relu(b, "4", x, 384, 3, pad=1, groups=2)
    x = _conv_relu(b, "5", x, 256, 3, pad=1, groups=2)
    x = b.max_pool("pool5", x, kernel=3, stride=2, ceil_mode=True)
    return _dense_head(b, x, hidden=(4096, 4096))


def alexnet_owt() -> Graph:
    """torchvision's alexnet, dropout before fc6 and fc7. Its adaptive pool is the identity at 224x224 and left out.

    torchvision numbers its layers (features.0, classifier.1 ...); here they are called as in every other AlexNet.
    """
    b = Builder("alexnet-owt")
    x = b.input("data", (3, 224, 224))
    x = _five_convs(b, x, (64, 192, 384, 256, 256), pad=2, last_pool="pool5")
    x = b.flatten("flatten", x)
    x = b.dropout("drop5", x)
    x = b.dense("fc6", x, features=4096)
    x = b.relu("relu6", x)
    x = b.dropout("drop6", x)
    x = b.dense("fc7", x, features=4096)
    x = b.relu("relu7", x)
    return b.build_classifier("fc8", x, classes=1000)


def alexnet_kim() -> Graph:
    """Table II of kim2017: no groups, no LRN, no dropout. 55x55 after conv1 without padding means a 227x227 image."""
    b = Builder("alexnet-kim")
    x = b.input("data", (3, 227, 227))
    x = _five_convs(b, x, (96, 256, 384, 384, 256), pad=0, last_pool="pool3")
    x = b.flatten("flatten", x)
    x = b.dense("fc1", x, features=4096)
    x = b.relu("fc1.relu", x)
    x = b.dense("fc2", x, features=4096)
    x = b.relu("fc2.relu", x)
    return b.build_classifier("fc3", x, classes=1000)


def overfeat() -> Graph:
    """OverFeat's fast model, as in table 1 of the paper and in convnet-benchmarks, which zanella2018 ran.

    Dropout is the paper's ("on fully connected layers 6 and 7"); convnet-benchmarks leaves it out.
    """
    b = Builder("overfeat")
    x = b.input("data", (3, 231, 231))
    x = _conv_relu(b, "1", x, 96, 11, stride=4)
    x = b.max_pool("pool1", x, kernel=2, stride=2)
    x = _conv_relu(b, "2", x, 256, 5)
    x = b.max_pool("pool2", x, kernel=2, stride=2)
    x = _conv_relu(b, "3", x, 512, 3, pad=1)
    x = _conv_relu(b, "4", x, 1024, 3, pad=1)
    x = _conv_relu(b, "5", x, 1024, 3, pad=1)
    x = b.max_pool("pool5", x, kernel=2, stride=2)
    return _dense_head(b, x, hidden=(3072, 4096))


def vgg(depth: int) -> Graph:
    """VGG 11, 16 or 19: configuration A, D or E of the paper, layers named as in the authors' Caffe files."""
    b = Builder(f"vgg{depth}")
    x = b.input("data", (3, 224, 224))
    for stage, (channels, convs) in enumerate(zip(_VGG_CHANNELS, _VGG_CONVS[depth], strict=True), 1):
        for position in range(1, convs + 1):
            x = _conv_relu(b, f"{stage}_{position}", x, channels, 3, pad=1)
        x = b.max_pool(f"pool{stage}", x, kernel=2, stride=2)
    return _dense_head(b, x, hidden=(4096, 4096))


def _five_convs(b: Builder, source: str, channels: tuple[int, int, int, int, int], *, pad: int, last_pool: str) -> str:
    """The convolutions of an AlexNet without groups and norms; `pad` is that of the first."""
    x = _conv_relu(b, "1", source, channels[0], 11, stride=4, pad=pad)
    x = b.max_pool("pool1", x, kernel=3, stride=2)
    x = _conv_relu(b, "2", x, channels[1], 5, pad=2)
    x = b.max_pool("pool2", x, kernel=3, stride=2)
    for number in (3, 4, 5):
        x = _conv_relu(b, str(number), x, channels[number - 1], 3, pad=1)
    return b.max_pool(last_pool, x, kernel=3, stride=2)


def _conv_relu(
    b: Builder, number: str, source: str, channels: int, kernel: int, *, stride: int = 1, pad: int = 0, groups: int = 1
) -> str:
    """`conv<number>` and `relu<number>`."""
    x = b.conv(f"conv{number}", source, channels=channels, kernel=kernel, stride=stride, pad=pad, groups=groups)
    return b.relu(f"relu{number}", x)


def _dense_head(b: Builder, source: str, *, hidden: tuple[int, int]) -> Graph:
    """Two dense layers with ReLU and dropout, `fc6` and `fc7`, then `fc8` and the loss: how nets ended until 2014."""
    x = b.flatten("flatten", source)
    for number, features in enumerate(hidden, 6):
        x = b.dense(f"fc{number}", x, features=features)
        x = b.relu(f"relu{number}", x)
        x = b.dropout(f"drop{number}", x)
    return b.build_classifier("fc8", x, classes=1000)
