"""Three networks called AlexNet: Caffe's with groups and LRN, the "one weird trick" one, and that of kim2017."""

from __future__ import annotations

from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.models.blocks import conv_relu, dense_head


def alexnet() -> Graph:
    """Caffe's bvlc_alexnet: the two halves of the 2012 network as groups, norm before pool."""
    b = Builder("alexnet")
    x = b.input("data", (3, 227, 227))
    x = conv_relu(b, "1", x, 96, 11, stride=4)
    x = b.lrn("norm1", x, size=5, alpha=1e-4, beta=0.75)
    x = b.max_pool("pool1", x, kernel=3, stride=2, ceil_mode=True)
    x = conv_relu(b, "2", x, 256, 5, pad=2, groups=2)
    x = b.lrn("norm2", x, size=5, alpha=1e-4, beta=0.75)
    x = b.max_pool("pool2", x, kernel=3, stride=2, ceil_mode=True)
    x = conv_relu(b, "3", x, 384, 3, pad=1)
    x = conv_relu(b, "4", x, 384, 3, pad=1, groups=2)
    x = conv_relu(b, "5", x, 256, 3, pad=1, groups=2)
    x = b.max_pool("pool5", x, kernel=3, stride=2, ceil_mode=True)
    dense_head(b, x, hidden=(4096, 4096), classes=1000)
    return b.build()


def alexnet_owt() -> Graph:
    """torchvision's alexnet, dropout before fc6 and fc7. Its adaptive pool is the identity at 224x224 and left out.

    torchvision numbers its layers (features.0, classifier.1 ...); here they are called as in every other AlexNet.
    """
    b = Builder("alexnet-owt")
    x = b.input("data", (3, 224, 224))
    x = conv_relu(b, "1", x, 64, 11, stride=4, pad=2)
    x = b.max_pool("pool1", x, kernel=3, stride=2)
    x = conv_relu(b, "2", x, 192, 5, pad=2)
    x = b.max_pool("pool2", x, kernel=3, stride=2)
    x = conv_relu(b, "3", x, 384, 3, pad=1)
    x = conv_relu(b, "4", x, 256, 3, pad=1)
    x = conv_relu(b, "5", x, 256, 3, pad=1)
    x = b.max_pool("pool5", x, kernel=3, stride=2)
    x = b.flatten("flatten", x)
    x = b.dropout("drop5", x)
    x = b.dense("fc6", x, features=4096)
    x = b.relu("relu6", x)
    x = b.dropout("drop6", x)
    x = b.dense("fc7", x, features=4096)
    x = b.relu("relu7", x)
    x = b.dense("fc8", x, features=1000)
    b.softmax_cross_entropy("loss", x)
    return b.build()


def alexnet_kim() -> Graph:
    """Table II of kim2017: no groups, no LRN, no dropout. 55x55 after conv1 without padding means a 227x227 image."""
    b = Builder("alexnet-kim")
    x = b.input("data", (3, 227, 227))
    x = conv_relu(b, "1", x, 96, 11, stride=4)
    x = b.max_pool("pool1", x, kernel=3, stride=2)
    x = conv_relu(b, "2", x, 256, 5, pad=2)
    x = b.max_pool("pool2", x, kernel=3, stride=2)
    x = conv_relu(b, "3", x, 384, 3, pad=1)
    x = conv_relu(b, "4", x, 384, 3, pad=1)
    x = conv_relu(b, "5", x, 256, 3, pad=1)
    x = b.max_pool("pool3", x, kernel=3, stride=2)
    x = b.flatten("flatten", x)
    x = b.dense("fc1", x, features=4096)
    x = b.relu("fc1.relu", x)
    x = b.dense("fc2", x, features=4096)
    x = b.relu("fc2.relu", x)
    x = b.dense("fc3", x, features=1000)
    b.softmax_cross_entropy("loss", x)
    return b.build()
