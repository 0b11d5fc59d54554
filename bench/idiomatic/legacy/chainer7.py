"""alexnet-owt as one trained it in Chainer 7, on iDeep where that is installed. No code of Deepstone. Syntax of 3.6."""

from typing import Any, Callable, Dict, Tuple

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer.backends import intel64


class AlexNetOwt(chainer.Chain):
    def __init__(self) -> None:
        super(AlexNetOwt, self).__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(3, 64, 11, stride=4, pad=2)
            self.conv2 = L.Convolution2D(64, 192, 5, pad=2)
            self.conv3 = L.Convolution2D(192, 384, 3, pad=1)
            self.conv4 = L.Convolution2D(384, 256, 3, pad=1)
            self.conv5 = L.Convolution2D(256, 256, 3, pad=1)
            self.fc6 = L.Linear(9216, 4096)
            self.fc7 = L.Linear(4096, 4096)
            self.fc8 = L.Linear(4096, 1000)

    def forward(self, x: Any, y: Any) -> Any:
        h = F.max_pooling_2d(F.relu(self.conv1(x)), 3, 2, cover_all=False)
        h = F.max_pooling_2d(F.relu(self.conv2(h)), 3, 2, cover_all=False)
        h = F.relu(self.conv3(h))
        h = F.relu(self.conv4(h))
        h = F.max_pooling_2d(F.relu(self.conv5(h)), 3, 2, cover_all=False)
        h = F.relu(self.fc6(h))
        h = F.relu(self.fc7(h))
        return F.softmax_cross_entropy(self.fc8(h), y)


def make(
    weights: Dict[str, Dict[str, Any]], images: Any, labels: Any, threads: int
) -> Tuple[Callable[[], None], Callable[[], None], Callable[[], float]]:
    """One training step; what waits for it; and the loss of the last one. Threads are NumPy's own."""
    model = AlexNetOwt()
    for name, given in weights.items():
        model[name].W.array[...] = given["weight"]
        model[name].b.array[...] = given["bias"]
    if intel64.is_ideep_available():
        chainer.global_config.use_ideep = "auto"
        model.to_intel64()
    optimizer = chainer.optimizers.MomentumSGD(lr=1e-4, momentum=0.9)
    optimizer.setup(model)
    y = labels.astype(np.int32)
    last = [0.0]

    def step() -> None:
        loss = model(images, y)
        model.cleargrads()
        loss.backward()
        optimizer.update()
        last[0] = loss.array

    return step, lambda: None, lambda: float(last[0])
