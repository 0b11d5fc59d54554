"""The synthetic batch: N(0, 1) samples and uniform labels, the same in every framework and every NumPy.

Written in the syntax of Python 3.6: workers in old Pythons make their batch with this file.
"""

import hashlib
from typing import Any, Sequence, Tuple

import numpy as np


def seeded(seed: int, name: str) -> np.random.RandomState:
    """Return NumPy's frozen generator, seeded by (seed, name), so that the order of use does not matter."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return np.random.RandomState(int.from_bytes(digest[:4], "big"))


def perturbed(values: Any, share: float, name: str) -> Any:
    """The same values, each changed by this share of itself, up or down at random: as much as rounding would."""
    random: Any = seeded(0, f"perturb {name} {values.shape}")
    signs = random.randint(0, 2, size=values.shape) * 2 - 1
    return (values * (1 + share * signs)).astype(values.dtype)


def synthetic_batch(shape: Sequence[int], classes: int, batch: int, seed: int) -> Tuple[Any, Any]:
    """Images (batch, channels, height, width) in float32 and labels (batch,) in int64."""
    random = seeded(seed, "batch")
    samples = np.empty((batch, *shape), dtype=np.float32)
    for sample in samples:  # one at a time: the generator works in float64
        sample[...] = random.standard_normal(sample.shape)
    labels = random.randint(0, classes, size=batch).astype(np.int64)
    return samples, labels
