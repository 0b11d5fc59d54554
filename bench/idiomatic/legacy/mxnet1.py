"""alexnet-owt as one trained it in MXNet 1.x. No code of Deepstone. In the syntax of Python 3.6.

Gluon, hybridized with static memory, which is what its own documents advise for speed. Its Trainer updates four arrays
at a time unless told otherwise, and on CPUs that takes 0.33 s of CPU time where one array at a time takes 0.19 s. A
Module was not faster (1.89 s of CPU time for a whole step, Gluon 1.86 s, both with four).
"""

import os
from typing import Any, Callable, Dict, Tuple

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn


def alexnet_owt() -> Any:
    network = nn.HybridSequential()
    network.add(
        nn.Conv2D(64, 11, strides=4, padding=2, activation="relu"), nn.MaxPool2D(3, 2),
        nn.Conv2D(192, 5, padding=2, activation="relu"), nn.MaxPool2D(3, 2),
        nn.Conv2D(384, 3, padding=1, activation="relu"),
        nn.Conv2D(256, 3, padding=1, activation="relu"),
        nn.Conv2D(256, 3, padding=1, activation="relu"), nn.MaxPool2D(3, 2),
        nn.Flatten(),
        nn.Dense(4096, activation="relu"),
        nn.Dense(4096, activation="relu"),
        nn.Dense(1000),
    )  # fmt: skip
    return network


def make(
    weights: Dict[str, Dict[str, Any]], images: Any, labels: Any, threads: int
) -> Tuple[Callable[[], None], Callable[[], None], Callable[[], float]]:
    """One training step, which does not wait; what waits for it; and the loss of the last one."""
    network = alexnet_owt()
    network.initialize(ctx=mx.cpu())
    x, y = mx.nd.array(images), mx.nd.array(labels)
    network(x[:1])  # shapes are known after a first image
    layers = [layer for layer in network if isinstance(layer, (nn.Conv2D, nn.Dense))]
    for layer, given in zip(layers, weights.values()):
        layer.weight.set_data(mx.nd.array(given["weight"]))
        layer.bias.set_data(mx.nd.array(given["bias"]))
    criterion = gluon.loss.SoftmaxCrossEntropyLoss()
    network.hybridize(static_alloc=True, static_shape=True)
    criterion.hybridize(static_alloc=True, static_shape=True)
    os.environ["MXNET_OPTIMIZER_AGGREGATION_SIZE"] = "1"  # read when the optimizer is made
    trainer = gluon.Trainer(network.collect_params(), "sgd", {"learning_rate": 1e-4, "momentum": 0.9})
    last: Any = [None]

    def step() -> None:
        with autograd.record():
            loss = criterion(network(x), y)
        loss.backward()
        trainer.step(len(images))
        last[0] = loss

    return step, mx.nd.waitall, lambda: float(last[0].mean().asscalar())
