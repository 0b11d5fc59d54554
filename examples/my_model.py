"""A torch module of one's own, measured without a graph:

deepstone run examples/my_model.py:make batch=8
"""

from __future__ import annotations

from torch import Tensor, nn

INPUT_SHAPE = (3, 32, 32)  # of one image; without this line, 3 x 224 x 224


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.act = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x + self.conv2(self.act(self.conv1(x))))


def make() -> nn.Module:
    """Images to one number per class, of which there are ten."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1),
        Block(32),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        Block(64),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
