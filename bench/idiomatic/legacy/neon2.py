"""alexnet-owt as one trained it in Neon 2, on MKL's layers if it has them. No code of Deepstone. Syntax of 3.6."""

from typing import Any, Callable, Dict, Tuple

import numpy as np
from neon import NervanaObject
from neon.backends import gen_backend
from neon.backends.util.check_mkl import get_mkl_lib
from neon.initializers import Constant
from neon.layers import Affine, Conv, GeneralizedCost, Pooling
from neon.models import Model
from neon.optimizers import GradientDescentMomentum
from neon.transforms import CrossEntropyMulti, Rectlin, Softmax


def alexnet_owt() -> Any:
    filled = {"init": Constant(0), "bias": Constant(0), "activation": Rectlin()}
    return [
        Conv((11, 11, 64), strides=4, padding=2, name="conv1", **filled),
        Pooling(3, strides=2),
        Conv((5, 5, 192), padding=2, name="conv2", **filled),
        Pooling(3, strides=2),
        Conv((3, 3, 384), padding=1, name="conv3", **filled),
        Conv((3, 3, 256), padding=1, name="conv4", **filled),
        Conv((3, 3, 256), padding=1, name="conv5", **filled),
        Pooling(3, strides=2),
        Affine(4096, name="fc6", **filled),
        Affine(4096, name="fc7", **filled),
        Affine(1000, name="fc8", init=Constant(0), bias=Constant(0), activation=Softmax()),
    ]


def fill(model: Any, weights: Dict[str, Dict[str, Any]]) -> None:
    for layer in model.layers.layers:
        if layer.name in weights and layer.name.startswith("conv"):
            given = weights[layer.name]
            layer.W[:] = given["weight"].reshape(len(given["weight"]), -1).T
            layer.weight_bias[:] = given["bias"].reshape(-1, 1)
        elif layer.name.endswith("_bias"):
            layer.W[:] = weights[layer.name[: -len("_bias")]]["bias"].reshape(-1, 1)
        elif layer.name in weights:
            layer.W[:] = weights[layer.name]["weight"]


def make(
    weights: Dict[str, Dict[str, Any]], images: Any, labels: Any, threads: int
) -> Tuple[Callable[[], None], Callable[[], None], Callable[[], float]]:
    """One training step; what waits for it; and the loss of the last one. Threads are those of the libraries."""
    batch = len(images)
    if NervanaObject.be is None:
        gen_backend("mkl" if get_mkl_lib() else "cpu", batch_size=batch, datatype=np.float32)
    be = NervanaObject.be
    model, cost = Model(alexnet_owt()), GeneralizedCost(CrossEntropyMulti())
    model.initialize((3, 224, 224), cost)
    fill(model, weights)
    optimizer = GradientDescentMomentum(1e-4, 0.9)
    x = be.array(np.ascontiguousarray(images.reshape(batch, -1).T))
    t = be.array(np.eye(1000, dtype=np.float32)[:, labels])
    last = [0.0]

    def step() -> None:
        y = model.fprop(x)
        last[0] = model.cost.get_cost(y, t)
        model.bprop(model.cost.get_errors(y, t))
        optimizer.optimize(model.layers_to_optimize, 0)

    return step, lambda: None, lambda: float(np.ravel(last[0])[0])
