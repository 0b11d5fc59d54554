"""Batch norm and local response norms on Neon 2. In the syntax of Python 3.6."""

from typing import Any, Dict, List

import numpy as np
from neon.layers import LRN, BatchNorm

from deepstone.backends.legacy.neon2_node import Node, OneLayer, Tensor


class NormNode(OneLayer):
    """Neon's running variance is biased; the graph's is not."""

    def made(self) -> Any:
        return BatchNorm(rho=1 - self.layer.has["momentum"], eps=self.layer.has["epsilon"])

    def ready(self) -> None:
        self.parameters = {"weight": self.neon.gamma, "bias": self.neon.beta}
        self.gradients = {"weight": self.neon.grad_gamma, "bias": self.neon.grad_beta}
        self.neon.gvar[:] = 1
        self.optimized = [self.neon]
        if self.settings.training and not any(self.wanted):  # it computes that gradient all the same
            self.neon.deltas = self.buffer(self.source())
        count = int(np.prod(self.source()[1:])) * self.settings.batch
        self._unbiased = count / (count - 1.0) if count > 1 else 1.0

    def forward(self, inputs: List[Tensor]) -> Tensor:
        if not self.settings.training:
            return super().forward(inputs)
        running = self.neon.gvar._tensor
        kept = running * self.neon.rho
        self.neon.inputs = None  # or it would keep to the layout of the tensor that it saw first
        output = super().forward(inputs)
        running[...] = kept + (running - kept) * self._unbiased
        return output

    def backward(self, error: Tensor) -> List[Tensor]:
        self.neon.error_view = None
        return super().backward(error)

    def buffers(self) -> Dict[str, Any]:
        return {"running_mean": self.neon.gmean.get().ravel(), "running_var": self.neon.gvar.get().ravel()}


class LrnNode(OneLayer):
    """Across channels. Neon's k is 1, so another one is taken out of the bracket."""

    def made(self) -> Any:
        has = self.layer.has
        self._factor = has["k"] ** -has["beta"]
        return LRN(has["size"], ascale=has["alpha"] / has["k"], bpower=has["beta"])

    def ready(self) -> None:
        self._scaled = [self.buffer(self.source()) for _ in range(2)] if self._factor != 1 else []

    def _times(self, place: int, tensor: Tensor) -> Tensor:
        if not self._scaled:
            return tensor
        self._scaled[place][:] = tensor * self._factor
        return self._scaled[place]

    def forward(self, inputs: List[Tensor]) -> Tensor:
        self.inputs = inputs
        return self.written(self._times(0, self.neon.fprop(self.plain(inputs[0]))))

    def backward(self, error: Tensor) -> List[Tensor]:
        self.error = error
        return [self.written(self.neon.bprop(self._times(1, self.plain(error))))]


class PixelNormNode(Node):
    """The local response norm over the pixels around each, which Neon does not have: on NumPy."""

    def make(self) -> None:
        self._output = self.buffer(self.source())
        self._deltas = self.buffer(self.source()) if any(self.wanted) else None
        self._shape = self.source() + (self.settings.batch,)
        self._scale: Any = None

    def forward(self, inputs: List[Tensor]) -> Tensor:
        self.inputs, has = inputs, self.layer.has
        image = self.plain(inputs[0])._tensor.reshape(self._shape)
        self._scale = self._around(np.square(image))
        self._scale *= has["alpha"] / has["size"] ** 2
        self._scale += has["k"]
        np.multiply(image, np.power(self._scale, -has["beta"]), out=self._output._tensor.reshape(self._shape))
        return self.written(self._output)

    def backward(self, error: Tensor) -> List[Tensor]:
        self.error, has = error, self.layer.has
        image = self.plain(self.inputs[0])._tensor.reshape(self._shape)
        above = self.plain(error)._tensor.reshape(self._shape)
        ratio = above * self._output._tensor.reshape(self._shape)
        ratio /= self._scale
        found = self._around(ratio)
        found *= image
        found *= -2 * has["alpha"] * has["beta"] / has["size"] ** 2
        found += above * np.power(self._scale, -has["beta"])
        assert self._deltas is not None
        self._deltas._tensor.reshape(self._shape)[...] = found
        return [self.written(self._deltas)]

    def _around(self, image: Any) -> Any:
        """Return the sums over the window around each pixel, clipped at the border."""
        reach = self.layer.has["size"] // 2
        for axis in (1, 2):
            total = image.copy()
            for shift in range(1, min(reach, image.shape[axis] - 1) + 1):
                ahead, behind = [slice(None)] * 4, [slice(None)] * 4
                ahead[axis], behind[axis] = slice(shift, None), slice(None, -shift)
                total[tuple(behind)] += image[tuple(ahead)]
                total[tuple(ahead)] += image[tuple(behind)]
            image = total
        return image
