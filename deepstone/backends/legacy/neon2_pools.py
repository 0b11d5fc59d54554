"""Pools on Neon 2. In the syntax of Python 3.6."""

from typing import Any, List, Optional, Tuple

import numpy as np
from neon.layers import Pooling

from deepstone.backends.legacy.neon2_node import OneLayer, Padded, Tensor


class PoolNode(OneLayer):
    """Neon rounds down, and its mean is over the pixels of the image; else the image is padded to whole windows.

    With MKL, windows that end outside the image or that leave pixels out are not to be relied on: they take that way.
    """

    _padded: Optional[Padded] = None
    _factors: Any = None

    def made(self) -> Any:
        has, average = self.layer.has, self.layer.op == "average_pool"
        pad = (has["pad"][0], has["pad"][2])
        if not self._is_native():
            self._padded, pad = Padded(self, self._whole_windows(), 0.0 if average else -np.inf), (0, 0)
        if average:
            self._factors = self._means()
        return Pooling(
            has["kernel"],
            op="avg" if average else "max",
            strides=dict(zip(("str_h", "str_w"), has["stride"])),
            padding=dict(zip(("pad_h", "pad_w"), pad)),
        )

    def _is_native(self) -> bool:
        has, source = self.layer.has, self.source()
        if not self.layer.pad_is_even() or (self.settings.mkl and any(has["pad"])):
            return False
        for side in (0, 1):
            room = source[1 + side] + 2 * has["pad"][2 * side] - has["kernel"][side]
            if room // has["stride"][side] + 1 != self.layer.output[1 + side]:
                return False
        return True

    def _whole_windows(self) -> List[int]:
        has = self.layer.has
        pad: List[int] = []
        for side in (0, 1):
            before = has["pad"][2 * side]
            reach = (self.layer.output[1 + side] - 1) * has["stride"][side] + has["kernel"][side]
            pad += [before, max(0, reach - before - self.source()[1 + side])]
        return pad

    def _means(self) -> Any:
        """Return what turns Neon's mean into the graph's, for every window; None if they are the same."""
        has = self.layer.has
        rows, columns = self.layer.places_that_count(self.source())
        counted = np.outer(rows, columns).astype(float)
        if self._padded is not None:
            taken = np.full(counted.shape, float(has["kernel"][0] * has["kernel"][1]))
        else:
            taken = np.outer(self._inside(0), self._inside(1)).astype(float)
        factors = taken / counted
        return None if np.all(factors == 1) else factors.reshape((1,) + factors.shape + (1,))

    def _inside(self, side: int) -> List[int]:
        """Return how many rows or columns of each window lie in the image."""
        has, size = self.layer.has, self.source()[1 + side]
        starts = [number * has["stride"][side] - has["pad"][2 * side] for number in range(self.layer.output[1 + side])]
        return [min(start + has["kernel"][side], size) - max(start, 0) for start in starts]

    def neon_source(self) -> Tuple[int, ...]:
        return self.source() if self._padded is None else self._padded.shape

    def ready(self) -> None:
        # Neon's own array of places is of bytes, which windows of more than 256 pixels overflow.
        is_max = self.layer.op == "max_pool"
        self.neon.argmax = self.be.empty(self.neon.outputs.shape, dtype=np.int32) if is_max else None
        if self._factors is not None:
            self._scaled = [self.buffer(self.layer.output) for _ in range(2)]

    def _times(self, place: int, tensor: Tensor) -> Tensor:
        if self._factors is None:
            return tensor
        shape = self.layer.output + (self.settings.batch,)
        into = self._scaled[place]
        np.multiply(self.plain(tensor)._tensor.reshape(shape), self._factors, out=into._tensor.reshape(shape))
        return self.written(into)

    def forward(self, inputs: List[Tensor]) -> Tensor:
        self.inputs = inputs
        image = inputs[0] if self._padded is None else self._padded.forward(self.plain(inputs[0]))
        return self._times(0, self.neon.fprop(image))

    def backward(self, error: Tensor) -> List[Tensor]:
        self.error = error
        found = self.neon.bprop(self._times(1, error))
        return [found if self._padded is None else self._padded.backward(self.plain(found))]


class GlobalPoolNode(OneLayer):
    def made(self) -> Any:
        return Pooling(self.source()[1:], op="avg", strides=1)

    def ready(self) -> None:
        self.neon.argmax = None
