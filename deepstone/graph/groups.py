"""Groups of operations for readers: "convolutions take x %" is one line for a whole network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# By operation, in the order of tables.
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "convolutions": ("conv",),
    "dense layers": ("dense",),
    "batch norms": ("batch_norm",),
    "response norms": ("lrn",),
    "activations": ("relu", "clip", "sigmoid", "tanh", "silu", "hard_sigmoid", "hard_swish", "dropout"),
    "pools": ("max_pool", "average_pool", "global_pool"),
    "sums and joins": ("add", "multiply", "concat", "slice", "shuffle", "flatten"),
    "loss": ("softmax_cross_entropy",),
    "modules": ("module",),
}
