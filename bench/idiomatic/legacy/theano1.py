"""alexnet-owt as one trained it in Theano 1.0. No code of Deepstone. In the syntax of Python 3.6.

Weights, velocities and the batch are shared variables; a step is one compiled function with updates.
"""

from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import theano
import theano.tensor as T
from theano.tensor.nnet import conv2d, relu
from theano.tensor.signal.pool import pool_2d

# Stride, padding, whether a pool follows.
CONVOLUTIONS = {
    "conv1": (4, 2, True),
    "conv2": (1, 2, True),
    "conv3": (1, 1, False),
    "conv4": (1, 1, False),
    "conv5": (1, 1, True),
}


def alexnet_owt(x: Any, weights: Dict[str, Dict[str, Any]]) -> Tuple[Any, List[Any]]:
    """Probabilities, and the shared variables that are trained."""
    trained: List[Any] = []
    for name, (stride, pad, pooled) in CONVOLUTIONS.items():
        w, b = theano.shared(weights[name]["weight"]), theano.shared(weights[name]["bias"])
        trained += [w, b]
        # As a correlation: flipping kernels costs time, and trained ones do not care.
        x = conv2d(x, w, None, w.get_value().shape, (pad, pad), (stride, stride), filter_flip=False)
        x = relu(x + b.dimshuffle("x", 0, "x", "x"))
        if pooled:
            x = pool_2d(x, (3, 3), True, (2, 2))
    x = x.flatten(2)
    for name in ("fc6", "fc7", "fc8"):
        w, b = theano.shared(np.ascontiguousarray(weights[name]["weight"].T)), theano.shared(weights[name]["bias"])
        trained += [w, b]
        x = T.dot(x, w) + b
        x = T.nnet.softmax(x) if name == "fc8" else relu(x)
    return x, trained


def make(
    weights: Dict[str, Dict[str, Any]], images: Any, labels: Any, threads: int
) -> Tuple[Callable[[], None], Callable[[], None], Callable[[], float]]:
    """One training step; what waits for it; and the loss of the last one. Threads are those of BLAS."""
    x, y = T.tensor4("x"), T.ivector("y")
    probabilities, trained = alexnet_owt(x, weights)
    loss = T.nnet.categorical_crossentropy(probabilities, y).mean()
    updates: List[Tuple[Any, Any]] = []
    for weight, gradient in zip(trained, T.grad(loss, trained)):
        velocity = theano.shared(np.zeros_like(weight.get_value()))
        new_velocity = np.float32(0.9) * velocity + gradient
        updates += [(velocity, new_velocity), (weight, weight - np.float32(1e-4) * new_velocity)]
    batch = {x: theano.shared(images), y: theano.shared(labels.astype(np.int32))}
    train = theano.function([], loss, updates=updates, givens=batch)
    last = [0.0]

    def step() -> None:
        last[0] = train()

    return step, lambda: None, lambda: float(last[0])
