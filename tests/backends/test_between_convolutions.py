"""Operations between convolutions, where libraries keep images in blocks of channels that no single layer ever sees.

MXNet's local response norm, for one, is right by itself and has a wrong gradient in there; so do products in iDeep.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from frameworks import FURTHER, LEGACY
from msgspec.structs import replace
from shared_workers import shared_worker
from single_layers import graph_job

from deepstone.graph import reference
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.graph.weights import initial_parameters, synthetic_batch

TIMEOUT_S = 1800.0
BATCH = 2
TOLERANCE = 1e-5  # of rounding; a choice that it turns, of a relu or a pool, would be some 1e-3
BRANCHES = (
    "nothing",
    "relu",
    "norm",
    "max",
    "max, gaps",
    "average",
    "lrn",
    "lrn, small",
    "lrn, pixels",
    "add",
    "concat",
    "gaps",
)


@functools.cache
def between() -> Graph:
    """One branch for each operation: the gradient of the first convolution's weight is what came through it."""
    b = Builder("between")
    image = b.input("image", (16, 11, 11))
    ends: list[str] = []
    for name in BRANCHES:
        x = b.conv(f"{name}, before", image, channels=32, kernel=3, pad=1)
        if name == "relu":
            x = b.relu(name, x)
        elif name == "norm":
            x = b.batch_norm(name, x)
        elif name == "max":
            x = b.max_pool(name, x, kernel=3, stride=2)
        elif name == "max, gaps":
            x = b.max_pool(name, x, kernel=2, stride=3)
        elif name == "average":
            x = b.average_pool(name, x, kernel=3, stride=2, pad=1, count_pad=False)
        elif name == "lrn":
            x = b.lrn(name, x, alpha=1.0)
        elif name == "lrn, small":
            x = b.lrn(name, x, size=3, alpha=0.5, beta=0.5, k=2.0)
        elif name == "lrn, pixels":
            x = b.lrn(name, b.relu("pixels", x), size=3, alpha=0.5, within_channel=True)
        elif name == "add":
            x = b.add(name, x, b.conv("other", image, channels=32, kernel=1))
        elif name == "concat":
            x = b.concat(name, x, b.conv("another", image, channels=16, kernel=1))
        elif name == "gaps":
            x = b.conv(name, x, channels=32, kernel=2, stride=3)
        ends.append(b.global_pool(f"{name}, pooled", b.conv(f"{name}, after", x, channels=16, kernel=3, pad=1)))
    b.softmax_cross_entropy("loss", b.dense("dense", b.flatten("flat", b.concat("all", *ends)), features=10))
    return b.build()


@functools.cache
def expected() -> dict[str, np.ndarray]:
    images, labels = synthetic_batch(between(), BATCH, 0)
    found = reference.step(between(), initial_parameters(between(), 0, generic=True), images, labels)
    return {layer: arrays["weight"] for layer, arrays in found.parameter_gradients.items()}


@functools.cache
def gradients(framework: str) -> dict[str, np.ndarray]:
    job = graph_job(framework, between(), device="auto", batch=BATCH, phase="gradient")
    job = replace(job, generic_weights=True)
    with shared_worker(job, timeout_s=TIMEOUT_S) as talk:
        talk.hello()
        talk.prepare()
        return {name: np.load(path) for name, path in talk.dump("gradients").items()}


@pytest.mark.parametrize("framework", ["torch", *FURTHER, *LEGACY], ids=lambda name: name.replace("@", "-"))
@pytest.mark.parametrize("branch", BRANCHES)
def test_what_comes_back_through_it(framework: str, branch: str):
    found, right = gradients(framework)[f"{branch}, before/weight"], expected()[f"{branch}, before"]
    assert np.linalg.norm(found - right) < TOLERANCE * np.linalg.norm(right)
