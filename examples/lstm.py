"""A two-layer LSTM over sequences of measurements, which tells one of ten kinds:

deepstone run examples/lstm.py:make batch=16
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn import functional as F

LENGTH = 50

INPUTS = {
    "x": (LENGTH, "batch", 32),  # the batch need not come first
    "kind": {"shape": (), "type": "int64", "vocabulary": 10},  # one label a sample, for the loss
}
UNIT = ("frame", LENGTH)


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(32, 64, num_layers=2)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(x)
        return self.head(states[-1])


def make() -> nn.Module:
    return Lstm()


def loss(outputs: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    return F.cross_entropy(outputs, batch["kind"])
