"""alexnet-owt as one trained it in CNTK 2.7: its layers library and a Trainer. No code of Deepstone. Syntax of 3.6."""

from typing import Any, Callable, Dict, Tuple

import cntk as C
import numpy as np
from cntk.layers import Convolution2D, Dense, MaxPooling, Sequential


def alexnet_owt() -> Any:
    return Sequential(
        [
            lambda x: C.pad(x, [(0, 0), (2, 2), (2, 2)]),  # layers pad for an output of the same size, or not at all
            Convolution2D((11, 11), 64, C.relu, strides=4, name="conv1"),
            MaxPooling((3, 3), 2),
            Convolution2D((5, 5), 192, C.relu, pad=True, name="conv2"),
            MaxPooling((3, 3), 2),
            Convolution2D((3, 3), 384, C.relu, pad=True, name="conv3"),
            Convolution2D((3, 3), 256, C.relu, pad=True, name="conv4"),
            Convolution2D((3, 3), 256, C.relu, pad=True, name="conv5"),
            MaxPooling((3, 3), 2),
            Dense(4096, C.relu, name="fc6"),
            Dense(4096, C.relu, name="fc7"),
            Dense(1000, name="fc8"),
        ]
    )


def in_own_order(name: str, given: Any) -> Any:
    """Dense weights end with their outputs, and the first takes images as they are."""
    if name == "fc6":
        return given.reshape(4096, 256, 6, 6).transpose(1, 2, 3, 0)
    return given.T if given.ndim == 2 else given


def make(
    weights: Dict[str, Dict[str, Any]], images: Any, labels: Any, threads: int
) -> Tuple[Callable[[], None], Callable[[], None], Callable[[], float]]:
    """One training step; what waits for it; and the loss of the last one. Threads are those of OpenMP."""
    x, y = C.input_variable((3, 224, 224)), C.input_variable(1000)
    z = alexnet_owt()(x)
    for name, given in weights.items():
        layer = getattr(z, name)
        layer.W.value = np.ascontiguousarray(in_own_order(name, given["weight"]))
        layer.b.value = given["bias"].reshape(layer.b.shape)
    loss = C.cross_entropy_with_softmax(z, y)
    learner = C.momentum_sgd(
        z.parameters,
        C.learning_parameter_schedule(1e-4, minibatch_size=len(images)),
        C.momentum_schedule(0.9, minibatch_size=len(images)),
        unit_gain=False,
    )
    trainer = C.Trainer(z, loss, [learner])
    batch = {x: C.Value(images), y: C.Value(np.eye(1000, dtype=np.float32)[labels])}

    def step() -> None:
        trainer.train_minibatch(batch)

    return step, lambda: None, lambda: float(trainer.previous_minibatch_loss_average)
