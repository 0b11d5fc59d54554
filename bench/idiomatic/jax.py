"""Training steps in JAX as one who knows it well writes them for a CPU, with nothing of Deepstone in them.

Import it by its path: as a script it would be found instead of the package `jax`.

What was tried on two cores of a Xeon (JAX 0.10.2, AlexNet with batch 32, ResNet-50 with batch 8), and kept or not. The
machine was shared, so these are CPU seconds of a step where they say so, the least of four; the rest are ratios of
times taken in turns, and no finer than 5 %:

    layout      NHWC kept. NCHW: AlexNet 13 % slower; XLA transposes around every convolution to NHWC anyway.
    max pool    slices and a gradient written by hand kept. lax.reduce_window: AlexNet 11 % slower (its gradient becomes
                a scatter). Comparing with the maximum again in backward: the pool twice as slow.
    1 x 1       as matrix products kept: ResNet-50 5.4 CPU seconds. As convolutions: 7.4, mostly for the gradient of
                the weights, which XLA computes as a convolution with a kernel as large as the image.
    batch norm  two passes and a gradient written by hand kept: 7.5 CPU seconds (before the line above). Derived: 8.4.
                The variance from the mean of squares, as Flax has it: 7.7, with the gradient by hand 7.6; less exact.
    donation    kept, for the memory. Without it XLA copies fewer weights: no difference shown.
    loss        taking the label's logarithm kept; a product with one-hot labels made no difference.
    scan        over equal blocks: not tried, since the longest stage repeats one block five times only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LEARNING_RATE, MOMENTUM = 1e-4, 0.9
CONV = ("NHWC", "HWIO", "NHWC")


def make(model: str, batch: int, images: Any, labels: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """One training step, which does not wait; and a function that waits for all steps so far. Images come as NCHW."""
    assert len(images) == batch
    start, loss = {"alexnet-owt": (alexnet_owt_start, alexnet_owt), "resnet50": (resnet50_start, resnet50)}[model]
    params, stats = start(np.random.default_rng(0))
    velocity = jax.tree.map(jnp.zeros_like, params)
    x, y = jnp.asarray(images.transpose(0, 2, 3, 1)), jnp.asarray(labels, jnp.int32)

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def train(params: Any, velocity: Any, stats: Any, x: Any, y: Any) -> Any:
        (value, stats), grads = jax.value_and_grad(loss, has_aux=True)(params, stats, x, y)
        velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, grads)
        params = jax.tree.map(lambda p, v: p - LEARNING_RATE * v, params, velocity)
        return params, velocity, stats, value

    state = [params, velocity, stats, None]

    def step() -> None:
        state[:] = train(*state[:3], x, y)

    return step, lambda: jax.block_until_ready(state)


def cross_entropy(logits: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1).mean()


def conv(x: Any, w: Any, stride: int = 1, pad: int = 0) -> Any:
    if w.shape[:2] == (1, 1):
        return (x if stride == 1 else x[:, ::stride, ::stride]) @ w[0, 0]
    return lax.conv_general_dilated(x, w, (stride, stride), ((pad, pad), (pad, pad)), dimension_numbers=CONV)


@jax.custom_vjp
def max_pool_3_2(x: Any) -> Any:
    return max_pool_forward(x)[0]


def corners(x: Any) -> list[Any]:
    """What the windows of three by three, two apart, see at each of their nine places."""
    height, width = ((side - 3) // 2 * 2 + 1 for side in x.shape[1:3])
    return [x[:, row : row + height : 2, column : column + width : 2] for row in range(3) for column in range(3)]


def max_pool_forward(x: Any) -> tuple[Any, Any]:
    first, *others = corners(x)
    best, winner = first, jnp.zeros(first.shape, jnp.uint8)
    for place, values in enumerate(others, start=1):
        winner = jnp.where(values > best, jnp.uint8(place), winner)
        best = lax.max(best, values)
    return best, (winner, jnp.zeros((0, *x.shape[1:3])))  # the last for its shape alone


def max_pool_backward(saved: Any, g: Any) -> tuple[Any]:
    winner, image = saved
    height, width = image.shape[1:]
    total = 0
    for place in range(9):
        row, column = divmod(place, 3)
        rows = (row, height - row - (2 * g.shape[1] - 1), 1)
        columns = (column, width - column - (2 * g.shape[2] - 1), 1)
        share = jnp.where(winner == place, g, 0)
        total = total + lax.pad(share, jnp.float32(0), ((0, 0, 0), rows, columns, (0, 0, 0)))
    return (total,)


max_pool_3_2.defvjp(max_pool_forward, max_pool_backward)

# AlexNet, "one weird trick": output channels, kernel, stride, pad, whether a pool follows.
ALEXNET = (
    (64, 11, 4, 2, True),
    (192, 5, 1, 2, True),
    (384, 3, 1, 1, False),
    (256, 3, 1, 1, False),
    (256, 3, 1, 1, True),
)


def he_normal(rng: np.random.Generator, *shape: int) -> Any:
    return jnp.asarray(rng.standard_normal(shape, np.float32) * np.sqrt(2 / np.prod(shape[:-1]), dtype=np.float32))


def alexnet_owt_start(rng: np.random.Generator) -> tuple[Any, Any]:
    convs, dense, channels = [], [], 3
    for width, kernel, _, _, _ in ALEXNET:
        convs.append({"w": he_normal(rng, kernel, kernel, channels, width), "b": jnp.zeros(width)})
        channels = width
    for inputs, outputs in ((9216, 4096), (4096, 4096), (4096, 1000)):
        dense.append({"w": he_normal(rng, inputs, outputs), "b": jnp.zeros(outputs)})
    return {"convs": convs, "dense": dense}, {}


def alexnet_owt(params: Any, stats: Any, x: Any, labels: Any) -> tuple[Any, Any]:
    for p, (_, _, stride, pad, pooled) in zip(params["convs"], ALEXNET, strict=True):
        x = jax.nn.relu(conv(x, p["w"], stride, pad) + p["b"])
        if pooled:
            x = max_pool_3_2(x)
    x = x.reshape(len(x), -1)
    *hidden, last = params["dense"]
    for p in hidden:
        x = jax.nn.relu(x @ p["w"] + p["b"])
    return cross_entropy(x @ last["w"] + last["b"], labels), stats


@jax.custom_vjp
def normalize(x: Any, scale: Any, bias: Any) -> tuple[Any, Any, Any]:
    mean = x.mean((0, 1, 2))
    var = jnp.square(x - mean).mean((0, 1, 2))
    return (x - mean) * (scale * lax.rsqrt(var + 1e-5)) + bias, mean, var


def normalize_forward(x: Any, scale: Any, bias: Any) -> tuple[Any, Any]:
    y, mean, var = normalize(x, scale, bias)
    return (y, mean, var), (x, scale, mean, lax.rsqrt(var + 1e-5))


def normalize_backward(saved: Any, upstream: Any) -> tuple[Any, Any, Any]:
    x, scale, mean, rsigma = saved
    g, count = upstream[0], x.size // scale.size
    d_bias = g.sum((0, 1, 2))
    d_scale = (g * (x - mean)).sum((0, 1, 2)) * rsigma
    d_x = (g - d_bias / count - (x - mean) * (d_scale * rsigma / count)) * (scale * rsigma)
    return d_x, d_scale, d_bias


normalize.defvjp(normalize_forward, normalize_backward)

# ResNet-50: blocks and width of each stage; the stride is in the 3 x 3 convolution of its first block.
RESNET50 = ((3, 64), (4, 128), (6, 256), (3, 512))


def resnet50_start(rng: np.random.Generator) -> tuple[Any, Any]:
    params: dict[str, Any] = {}
    stats: dict[str, Any] = {}

    def add(name: str, kernel: int, inputs: int, outputs: int) -> None:
        params[name] = {
            "w": he_normal(rng, kernel, kernel, inputs, outputs),
            "scale": jnp.ones(outputs),
            "bias": jnp.zeros(outputs),
        }
        stats[name] = {"mean": jnp.zeros(outputs), "var": jnp.ones(outputs)}

    add("stem", 7, 3, 64)
    channels = 64
    for stage, (blocks, width) in enumerate(RESNET50):
        for block in range(blocks):
            name = f"{stage}.{block}"
            add(f"{name}.a", 1, channels, width)
            add(f"{name}.b", 3, width, width)
            add(f"{name}.c", 1, width, 4 * width)
            if block == 0:
                add(f"{name}.shortcut", 1, channels, 4 * width)
            channels = 4 * width
    params["dense"] = {"w": he_normal(rng, channels, 1000), "b": jnp.zeros(1000)}
    return params, stats


def resnet50(params: Any, stats: Any, x: Any, labels: Any) -> tuple[Any, Any]:
    after: dict[str, Any] = {}

    def conv_norm(name: str, x: Any, stride: int = 1, pad: int = 0) -> Any:
        p = params[name]
        y = conv(x, p["w"], stride, pad)
        y, mean, var = normalize(y, p["scale"], p["bias"])
        count = y.size // y.shape[-1]
        after[name] = {
            "mean": 0.9 * stats[name]["mean"] + 0.1 * mean,
            "var": 0.9 * stats[name]["var"] + 0.1 * var * (count / (count - 1)),
        }
        return y

    x = jax.nn.relu(conv_norm("stem", x, 2, 3))
    x = max_pool_3_2(jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-jnp.inf))
    for stage, (blocks, _) in enumerate(RESNET50):
        for block in range(blocks):
            name, stride = f"{stage}.{block}", 2 if stage > 0 and block == 0 else 1
            y = jax.nn.relu(conv_norm(f"{name}.a", x))
            y = jax.nn.relu(conv_norm(f"{name}.b", y, stride, 1))
            y = conv_norm(f"{name}.c", y)
            x = jax.nn.relu(y + (conv_norm(f"{name}.shortcut", x, stride) if block == 0 else x))
    logits = x.mean((1, 2)) @ params["dense"]["w"] + params["dense"]["b"]
    return cross_entropy(logits, labels), after
