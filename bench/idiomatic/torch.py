"""alexnet-owt and resnet50 as one trains them in PyTorch by hand. No code of Deepstone.

`make` gives the fastest of what was tried on a CPU: modules with ReLU in place, SGD with momentum in its default
(for-each) form, gradients set to None. On a GPU the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from bench.hand_written import MODELS


def make(model: str, batch: int, images: Any, labels: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """One training step that does not wait, and a function that waits."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = MODELS[model][0]().to(device).train()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9)
    image_tensor, label_tensor = torch.from_numpy(images).to(device), torch.from_numpy(labels).to(device)

    def step() -> None:
        optimizer.zero_grad()
        criterion(network(image_tensor), label_tensor).backward()
        optimizer.step()

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    return step, wait
