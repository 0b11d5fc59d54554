"""ONNX files as torch writes them: with the module's own weights, the graph computes what the module does."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from onnx_kit import PATH
from torch import Tensor, nn
from torch.nn import functional as F

from deepstone.exchange.onnx_read import read
from deepstone.graph.graph import Graph
from deepstone.graph.reference import forward_all
from deepstone.graph.weights import synthetic_batch


def _conv(inputs: int, outputs: int, kernel: int = 3, **more: int) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False, **more)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


def _head(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5))


class Residual(nn.Module):
    """As ResNet and ResNeXt: a projection, groups, a pool before."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.pool = _conv(3, 8, 5, stride=2), nn.MaxPool2d(3, 2, 1)
        self.first, self.second, self.side = _conv(8, 12, stride=2), _conv(12, 12, groups=3), _conv(8, 12, 1, stride=2)
        self.head = _head(12)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.stem(x)))
        return self.head(F.relu(self.second(F.relu(self.first(x))) + self.side(x)))


class Gated(nn.Module):
    """As MobileNet, EfficientNet and RegNet: depthwise convolutions, ReLU6, SiLU, hard swish, squeeze and excite."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depthwise = _conv(3, 8, stride=2), _conv(8, 8, groups=8)
        self.squeeze, self.excite = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
        self.hard_squeeze, self.hard_excite = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
        self.out = _conv(8, 10, 1)
        self.head = nn.Sequential(nn.Dropout(0.0), _head(10))

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.depthwise(F.relu6(self.stem(x))))
        x = x * torch.sigmoid(self.excite(F.silu(self.squeeze(F.adaptive_avg_pool2d(x, 1)))))
        x = F.hardswish(x)
        x = F.hardsigmoid(self.hard_excite(F.relu(self.hard_squeeze(x.mean((2, 3), keepdim=True))))) * x
        return self.head(self.out(x))


class Joined(nn.Module):
    """As DenseNet, GoogLeNet and ShuffleNet: joins, a norm before its convolution, split and shuffled channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _conv(3, 6)
        self.norm, self.grow = nn.BatchNorm2d(6), nn.Conv2d(6, 4, 3, padding=1)
        self.branch, self.pooled = nn.Conv2d(5, 5, 3, padding=1, dilation=1), nn.Conv2d(10, 3, 1)
        self.hidden, self.scores = nn.Linear(13 * 4 * 4, 7), nn.Linear(7, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.cat([x, self.grow(F.relu(self.norm(x)))], 1)
        left, right = x.chunk(2, dim=1)
        x = torch.cat([left, self.branch(right)], 1)
        images, channels, height, width = x.shape
        x = x.view(images, 2, channels // 2, height, width).transpose(1, 2).contiguous()
        x = x.view(images, channels, height, width)
        x = F.avg_pool2d(x, 2, ceil_mode=True)
        x = torch.cat([x, self.pooled(F.max_pool2d(x, 3, stride=1, padding=1))], 1)
        x = F.max_pool2d(x, 2, ceil_mode=True)
        return self.scores(torch.tanh(self.hidden(torch.flatten(x, 1))))


def exported(module: nn.Module, images: Tensor) -> Graph:
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch prefers its other exporter, which needs one more package
        training = torch.onnx.TrainingMode.TRAINING
        torch.onnx.export(module, (images,), content, dynamo=False, do_constant_folding=False, training=training)
    return read(PATH, content.getvalue())


def weights_of(module: nn.Module, graph: Graph) -> Mapping[str, Mapping[str, np.ndarray]]:
    """Those of the module under the graph's names; both list their layers in the order in which they compute."""
    layers = [each for each in module.modules() if list(each.parameters(recurse=False))]
    weights: dict[str, dict[str, np.ndarray]] = {}
    for layer, each in zip((layer for layer in graph.layers if graph.parameters(layer)), layers, strict=True):
        values = {name: value.detach().numpy() for name, value in each.named_parameters(recurse=False)}
        assert {name: value.shape for name, value in values.items()} == dict(graph.parameters(layer))
        weights[layer.name] = values
    return weights


@pytest.mark.parametrize("make", [Residual, Gated, Joined])
def test_the_graph_computes_what_the_module_does(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(3)
    module = make().train()
    images = torch.randn(4, 3, 15, 15)
    expected = module(images).detach().numpy()
    graph = exported(module, images)
    (loss,) = graph.losses
    _, labels = synthetic_batch(graph, len(images), seed=3)
    found = forward_all(graph, weights_of(module, graph), images.numpy(), labels, training=True)
    np.testing.assert_allclose(found[loss.inputs[0]].value, expected, rtol=1e-4, atol=1e-5)
