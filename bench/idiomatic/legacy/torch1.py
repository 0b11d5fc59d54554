"""alexnet-owt as one trained it in PyTorch 1.1. No code of Deepstone. In the syntax of Python 3.6.

Modules with ReLU in place, and SGD with momentum. `zero_grad` filled with zeros then; that is what its users ran.
"""

from typing import Any, Callable, Dict, Tuple

import torch
from torch import nn


class Flatten(nn.Module):  # torch's own came with 1.2
    def forward(self, x: Any) -> Any:
        return x.view(x.size(0), -1)


def alexnet_owt() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        Flatten(),
        nn.Linear(9216, 4096), nn.ReLU(inplace=True),
        nn.Linear(4096, 4096), nn.ReLU(inplace=True),
        nn.Linear(4096, 1000),
    )  # fmt: skip


def make(
    weights: Dict[str, Dict[str, Any]], images: Any, labels: Any, threads: int
) -> Tuple[Callable[[], None], Callable[[], None], Callable[[], float]]:
    """One training step; what waits for it; and the loss of the last one."""
    torch.set_num_threads(threads)
    network = alexnet_owt().train()
    layers = [layer for layer in network if isinstance(layer, (nn.Conv2d, nn.Linear))]
    for layer, given in zip(layers, weights.values()):
        layer.weight.data.copy_(torch.tensor(given["weight"]))
        layer.bias.data.copy_(torch.tensor(given["bias"]))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9)
    x, y = torch.tensor(images), torch.tensor(labels)
    last = [0.0]

    def step() -> None:
        optimizer.zero_grad()
        loss = criterion(network(x), y)
        loss.backward()
        optimizer.step()
        last[0] = loss.detach()

    return step, lambda: None, lambda: float(last[0])
