"""The synthetic batch: N(0, 1) samples and uniform labels, the same in every framework and every NumPy.

The time of a step does not depend on what is in the samples. Whether a training survives rounding does: N(0, 1) pixels
have no structure, so the deep features of all samples are nearly the same, and the tiny rest that a network would learn
from is lost in bf16. ResNet-50 at batch 256 came from a loss of 7.98 to 3.97 in 20 steps in TF32, and only to 6.35 in
bf16, in torch as in JAX; with samples like photographs both go the same way. So checks of rounding use those.

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


def synthetic_batch(
    shape: Sequence[int], classes: int, batch: int, seed: int, *, like_photographs: bool = False
) -> Tuple[Any, Any]:
    """Images (batch, channels, height, width) in float32 and labels (batch,) in int64."""
    random = seeded(seed, "batch")
    samples = sampled(random, shape, batch, like_photographs=like_photographs)
    labels = random.randint(0, classes, size=batch).astype(np.int64)
    return samples, labels


def sampled(random: np.random.RandomState, shape: Sequence[int], batch: int, *, like_photographs: bool = False) -> Any:
    """Samples of N(0, 1) values in float32; like photographs if they are asked for and the shape is that of images."""
    samples = np.empty((batch, *shape), dtype=np.float32)
    for sample in samples:  # one at a time: the generator works in float64
        if like_photographs and len(shape) == 3:
            sample[...] = _photograph(random, shape)
        else:
            sample[...] = random.standard_normal(sample.shape)
    return samples


def _photograph(random: np.random.RandomState, shape: Sequence[int]) -> Any:
    """A tint of its own, and as much contrast at every scale, from two pixels to half of the image."""
    channels, height, width = shape
    sides = [2**octave for octave in range(1, max(height, width, 2).bit_length())]
    image = np.zeros((channels, height, width))
    for side in sides:  # blocks, not smooth shapes: they are the same to the last bit wherever they are made
        blocks = random.standard_normal((channels, -(-height // side), -(-width // side)))
        image += np.repeat(np.repeat(blocks, side, axis=1), side, axis=2)[:, :height, :width]
    return image * (0.5 / np.sqrt(len(sides))) + random.standard_normal((channels, 1, 1))
