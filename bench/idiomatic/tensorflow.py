"""A training loop as a good practitioner of TensorFlow writes it, with no code of Deepstone: its step's yardstick.

Layers are plain functions of `tf.nn` over variables; the step is one `tf.function`. Tried on 2 cores with oneDNN (times
relative to this file; alexnet-owt with batch 32, resnet50 with batch 8; interleaved in one process):

    way                                                         alexnet-owt   resnet50
    this file                                                   1.00          1.00
    the same with explicit padding of convolutions and pools    1.50          1.22     their gradients miss oneDNN
    the same, updates after all gradients                       0.98          1.04     no difference shown
    Keras layers, tf.function, one-kernel update                1.03          1.26     Keras 3 splits up batch norm
    Keras layers, tf.function, Keras' SGD                       1.06          1.28
    this file with jit_compile=True (XLA)                       1.31          2.14

`jit_compile=True` gives the yardstick of engine=xla.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

LEARNING_RATE = 1e-4
MOMENTUM = 0.9


class Variables:
    """Made when a layer first asks for them, in the order of the layers."""

    def __init__(self) -> None:
        self.trained: dict[str, tf.Variable] = {}
        self.statistics: dict[str, tf.Variable] = {}

    def weight(self, name: str, shape: tuple[int, ...]) -> tf.Variable:
        if name not in self.trained:
            deviation = (2.0 / np.prod(shape[:-1])) ** 0.5
            values = np.random.default_rng(len(self.trained)).standard_normal(shape, dtype=np.float32)
            self.trained[name] = tf.Variable(values * np.float32(deviation))
        return self.trained[name]

    def vector(self, name: str, size: int, value: float) -> tf.Variable:
        if name not in self.trained:
            self.trained[name] = tf.Variable(tf.fill([size], value))
        return self.trained[name]

    def statistic(self, name: str, size: int, value: float) -> tf.Variable:
        if name not in self.statistics:
            self.statistics[name] = tf.Variable(tf.fill([size], value), trainable=False)
        return self.statistics[name]


class Net:
    """Layers in the order height, width, channels, which is TensorFlow's own."""

    def __init__(self) -> None:
        self.variables = Variables()
        self.updates: list[tuple[tf.Variable, tf.Tensor]] = []

    def conv(
        self, name: str, x: tf.Tensor, channels: int, kernel: int, stride: int = 1, pad: int = 0, bias: bool = True
    ) -> tf.Tensor:
        weight = self.variables.weight(f"{name}/weight", (kernel, kernel, x.shape[-1], channels))
        if stride == 1 and 2 * pad == kernel - 1:
            y = tf.nn.conv2d(x, weight, stride, "SAME")
        else:
            y = tf.nn.conv2d(zero_padded(x, pad) if pad else x, weight, stride, "VALID")
        return tf.nn.bias_add(y, self.variables.vector(f"{name}/bias", channels, 0.0)) if bias else y

    def dense(self, name: str, x: tf.Tensor, features: int) -> tf.Tensor:
        weight = self.variables.weight(f"{name}/weight", (x.shape[-1], features))
        return tf.nn.bias_add(tf.matmul(x, weight), self.variables.vector(f"{name}/bias", features, 0.0))

    def batch_norm(self, name: str, x: tf.Tensor) -> tf.Tensor:
        channels = x.shape[-1]
        running_mean = self.variables.statistic(f"{name}/mean", channels, 0.0)
        running_variance = self.variables.statistic(f"{name}/variance", channels, 1.0)
        y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=self.variables.vector(f"{name}/scale", channels, 1.0),
            offset=self.variables.vector(f"{name}/offset", channels, 0.0),
            mean=running_mean,
            variance=running_variance,
            epsilon=1e-5,
            exponential_avg_factor=0.1,
            is_training=True,
        )
        self.updates += [(running_mean, mean), (running_variance, variance)]
        return y


def zero_padded(x: tf.Tensor, pad: int) -> tf.Tensor:
    return tf.pad(x, [[0, 0], [pad, pad], [pad, pad], [0, 0]])


def alexnet_owt(net: Net, x: tf.Tensor) -> tf.Tensor:
    x = tf.nn.max_pool2d(tf.nn.relu(net.conv("conv1", x, 64, 11, stride=4, pad=2)), 3, 2, "VALID")
    x = tf.nn.max_pool2d(tf.nn.relu(net.conv("conv2", x, 192, 5, pad=2)), 3, 2, "VALID")
    x = tf.nn.relu(net.conv("conv3", x, 384, 3, pad=1))
    x = tf.nn.relu(net.conv("conv4", x, 256, 3, pad=1))
    x = tf.nn.max_pool2d(tf.nn.relu(net.conv("conv5", x, 256, 3, pad=1)), 3, 2, "VALID")
    x = tf.reshape(x, [x.shape[0], -1])
    x = tf.nn.relu(net.dense("fc6", x, 4096))
    x = tf.nn.relu(net.dense("fc7", x, 4096))
    return net.dense("fc8", x, 1000)


def bottleneck(net: Net, name: str, x: tf.Tensor, width: int, stride: int) -> tf.Tensor:
    y = tf.nn.relu(net.batch_norm(f"{name}/1", net.conv(f"{name}/1", x, width, 1, bias=False)))
    y = tf.nn.relu(net.batch_norm(f"{name}/2", net.conv(f"{name}/2", y, width, 3, stride=stride, pad=1, bias=False)))
    y = net.batch_norm(f"{name}/3", net.conv(f"{name}/3", y, 4 * width, 1, bias=False))
    if stride != 1 or x.shape[-1] != 4 * width:
        x = net.batch_norm(f"{name}/short", net.conv(f"{name}/short", x, 4 * width, 1, stride=stride, bias=False))
    return tf.nn.relu(x + y)


def resnet50(net: Net, x: tf.Tensor) -> tf.Tensor:
    x = tf.nn.relu(net.batch_norm("stem", net.conv("stem", x, 64, 7, stride=2, pad=3, bias=False)))
    x = tf.nn.max_pool2d(zero_padded(x, 1), 3, 2, "VALID")  # after a ReLU, zeros never win against anything
    for stage, (width, blocks, stride) in enumerate(((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))):
        for block in range(blocks):
            x = bottleneck(net, f"{stage}.{block}", x, width, stride if block == 0 else 1)
    return net.dense("fc", tf.reduce_mean(x, [1, 2]), 1000)


MODELS = {"alexnet-owt": alexnet_owt, "resnet50": resnet50}


def make(
    model: str, batch: int, images: Any, labels: Any, *, jit_compile: bool = False
) -> tuple[Callable[[], None], Callable[[], None]]:
    """One training step without waiting for it, and the wait. `images` are NumPy, (batch, channels, height, width)."""
    assert len(images) == batch
    net, forward = Net(), MODELS[model]
    x = tf.constant(np.ascontiguousarray(images.transpose(0, 2, 3, 1)))
    y = tf.constant(labels)
    forward(net, x)  # makes the variables
    weights = list(net.variables.trained.values())
    velocities = [tf.Variable(tf.zeros_like(weight), trainable=False) for weight in weights]

    @tf.function(jit_compile=jit_compile, autograph=False)
    def train(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        net.updates.clear()
        with tf.GradientTape() as tape:
            scores = forward(net, x)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=scores))
        for statistic, value in net.updates:
            statistic.assign(value, read_value=False)
        for weight, velocity, gradient in zip(weights, velocities, tape.gradient(loss, weights), strict=True):
            tf.raw_ops.ResourceApplyMomentum(
                var=weight.handle, accum=velocity.handle, lr=LEARNING_RATE, grad=gradient, momentum=MOMENTUM
            )
        return loss

    last: list[tf.Tensor] = []

    def step() -> None:
        last[:] = [train(x, y)]

    def wait() -> None:
        for loss in last:
            loss.numpy()

    return step, wait
