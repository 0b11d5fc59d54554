"""alexnet-owt and resnet50 as one trains them in PaddlePaddle by hand. No code of Deepstone.

Layers of paddle.nn, run one by one, and the optimizer's own momentum. Gradients are let go instead of filled with
zeros, which spares backward an addition for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
from paddle import nn
from paddle.vision.models import resnet50


def alexnet_owt() -> Any:
    return nn.Sequential(
        nn.Conv2D(3, 64, 11, stride=4, padding=2), nn.ReLU(), nn.MaxPool2D(3, 2),
        nn.Conv2D(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2D(3, 2),
        nn.Conv2D(192, 384, 3, padding=1), nn.ReLU(),
        nn.Conv2D(384, 256, 3, padding=1), nn.ReLU(),
        nn.Conv2D(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2D(3, 2),
        nn.Flatten(),
        nn.Linear(9216, 4096), nn.ReLU(),
        nn.Linear(4096, 4096), nn.ReLU(),
        nn.Linear(4096, 1000),
    )  # fmt: skip


MODELS: dict[str, Callable[[], Any]] = {"alexnet-owt": alexnet_owt, "resnet50": resnet50}


def make(model: str, batch: int, images: Any, labels: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """One training step, and a function that waits, for which there is nothing here."""
    network = MODELS[model]()
    network.train()
    criterion = nn.CrossEntropyLoss()
    optimizer = paddle.optimizer.Momentum(1e-4, 0.9, parameters=network.parameters())
    x, y = paddle.to_tensor(images), paddle.to_tensor(labels)

    def step() -> None:
        criterion(network(x), y).backward()
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)

    return step, lambda: None
