"""A small GPT on random token ids, measured in tokens as well as in samples:

deepstone run examples/gpt.py:make batch=2
deepstone layers examples/gpt.py:make batch=2 -o gpt.svg
deepstone run examples/gpt.py:make batch=2 optimizer=own
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY = 1000
LENGTH = 64
WIDTH = 64
HEADS = 4
BLOCKS = 4

INPUTS = {
    "tokens": {"shape": (LENGTH,), "type": "int64", "vocabulary": VOCABULARY},
    "targets": {"shape": (LENGTH,), "type": "int64", "vocabulary": VOCABULARY},  # not of forward: for the loss
}
UNIT = "token"


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        samples, length, width = x.shape
        heads = self.qkv(x).view(samples, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(samples, length, width))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) / 50)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def make() -> nn.Module:
    return Gpt()


def loss(outputs: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Of each next token; one number."""
    return F.cross_entropy(outputs.flatten(0, 1), batch["targets"].flatten())


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Used with optimizer=own."""
    return torch.optim.AdamW(parameters, lr=3e-4, weight_decay=0.1)
