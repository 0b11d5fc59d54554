"""Two small networks, as graphs and as torch code one would write by hand."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph


def plain() -> Graph:
    b = Builder("plain")
    x = b.input("data", (3, 8, 8))
    x = b.relu("relu", b.conv("conv", x, channels=4, kernel=3, pad=1))
    x = b.flatten("flat", b.max_pool("pool", x, kernel=2, stride=2))
    b.softmax_cross_entropy("loss", b.dense("fc", b.dropout("drop", x), features=5))
    return b.build()


def residual() -> Graph:
    b = Builder("residual")
    x = b.conv("stem", b.input("data", (3, 8, 8)), channels=4, kernel=3, stride=2, bias=False)
    y = b.relu("relu1", b.batch_norm("bn1", x))
    y = b.batch_norm("bn2", b.conv("conv2", y, channels=4, kernel=3, pad=1, groups=2, bias=False))
    x = b.relu("relu2", b.add("add", x, y))
    x = b.dense("fc", b.flatten("flat", b.global_pool("gap", x)), features=5, bias=False)
    b.softmax_cross_entropy("loss", x)
    return b.build()


Net = Callable[[Tensor, dict[str, Tensor], Tensor], Tensor]


def torch_plain(x: Tensor, p: dict[str, Tensor], labels: Tensor) -> Tensor:
    x = F.relu(F.conv2d(x, p["conv.weight"], p["conv.bias"], padding=1), inplace=True)
    x = F.max_pool2d(x, 2).flatten(1)
    return F.cross_entropy(F.linear(x, p["fc.weight"], p["fc.bias"]), labels)


def torch_residual(x: Tensor, p: dict[str, Tensor], labels: Tensor, groups: int = 2) -> Tensor:
    x = F.conv2d(x, p["stem.weight"], stride=2)
    y = F.relu(F.batch_norm(x, None, None, p["bn1.weight"], p["bn1.bias"], training=True), inplace=True)
    y = F.conv2d(y, p["conv2.weight"], padding=1, groups=groups)
    y = F.batch_norm(y, None, None, p["bn2.weight"], p["bn2.bias"], training=True)
    x = F.relu(x + y, inplace=True)
    x = F.adaptive_avg_pool2d(x, 1).flatten(1)
    return F.cross_entropy(F.linear(x, p["fc.weight"]), labels)


def torch_arguments(graph: Graph, batch: int) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    generator = torch.Generator().manual_seed(0)
    parameters = {
        f"{layer.name}.{name}": torch.randn(shape, generator=generator).requires_grad_()
        for layer in graph.layers
        for name, shape in graph.parameters(layer).items()
    }
    images = torch.randn((batch, *graph.shapes["data"]), generator=generator)
    return images, parameters, torch.zeros(batch, dtype=torch.int64)
