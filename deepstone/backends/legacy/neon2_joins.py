"""Layers of several inputs on Neon 2. In the syntax of Python 3.6."""

import ctypes
from typing import Any, List

import numpy as np

from deepstone.backends.legacy.neon2_node import Node, Sum, Tensor

_IN_PLACE_ON_ERRORS = ("relu", "dropout")  # backward writes over the gradient that it is given
_PASS_ON = ("flatten", "dropout")  # backward hands on the same array
_CONCAT_FORWARD = 4  # the place of the operation among the primitives of a concatenation


class AddNode(Node):
    def make(self) -> None:
        self._sum = Sum(self.settings, self.layer.output, len(self.layer.inputs), self.buffer(self.layer.output))
        # What a layer overwrites must not be what another one is given.
        self._copied = [
            self.buffer(self.layer.output) if wanted and self._overwrites(source) else None
            for wanted, source in zip(self.wanted, self.layer.inputs)
        ]

    def _overwrites(self, source: str) -> bool:
        layer = self.settings.graph.by_name[source]
        if layer.op in _IN_PLACE_ON_ERRORS:
            return True
        return layer.op in _PASS_ON and self._overwrites(layer.inputs[0])

    def forward(self, inputs: List[Tensor]) -> Tensor:
        self.inputs = inputs
        return self._sum(inputs)

    def backward(self, error: Tensor) -> List[Tensor]:
        self.error = error
        found: List[Tensor] = []
        for wanted, copied in zip(self.wanted, self._copied):
            if copied is not None:
                self.written(copied)._tensor[...] = self.plain(error)._tensor
            found.append((error if copied is None else copied) if wanted else None)
        return found


class ConcatNode(Node):
    """Channels come first, so parts of the batch's array are the inputs; MKL has an operation of its own."""

    def make(self) -> None:
        self._output = self.buffer(self.layer.output)
        shapes = [self.source(place) for place in range(len(self.layer.inputs))]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        self._parts = [slice(int(end - np.prod(shape)), int(end)) for end, shape in zip(ends, shapes)]

    def forward(self, inputs: List[Tensor]) -> Tensor:
        self.inputs = inputs
        for part, tensor in zip(self._parts, inputs):
            self._output[part] = self.plain(tensor)
        return self.written(self._output)

    def backward(self, error: Tensor) -> List[Tensor]:
        self.error = error
        whole = self.plain(error)
        return [whole[part] if wanted else None for part, wanted in zip(self._parts, self.wanted)]


class MklConcatNode(ConcatNode):
    """MKL's own joins and splits images in its layouts. Some layouts it refuses; those are joined as they are."""

    _refused = False

    def make(self) -> None:
        super().make()
        count = len(self.layer.inputs)
        self._ng = self.be.mergebroadcast_layer(count)
        for place in range(count):
            self._ng.channels[place] = self.source(place)[0]
        self._views = [self.buffer(self.source(place)) for place in range(count)]

    def forward(self, inputs: List[Tensor]) -> Tensor:
        if self._refused:
            return super().forward(inputs)
        self.inputs, ng = inputs, self._ng
        channels, height, width = self.layer.output
        for place, tensor in enumerate(inputs):
            ng.tensors_temp[4 * place : 4 * place + 4] = tensor.primitive
        self.be.mklEngine.Concat_f(
            _address(ng.tensors_temp),
            len(inputs),
            self._output.get_prim(),
            _address(ng.primitive),
            _address(ng.channels),
            ng.initOK_f,
            self.settings.batch,
            channels,
            height,
            width,
        )
        ng.initOK_f = 1
        self._refused = not ng.primitive[_CONCAT_FORWARD]
        if self._refused:
            return super().forward(inputs)
        self._output.shape5D = (channels, 1, height, width, self.settings.batch)
        return self._output

    def backward(self, error: Tensor) -> List[Tensor]:
        if self._refused or not error.primitive[2]:
            return super().backward(error)
        self.error, ng = error, self._ng
        _, height, width = self.layer.output
        for place, view in enumerate(self._views):
            ng.tensors_temp[4 * place : 4 * place + 4] = view.primitive
        self.be.mklEngine.Concat_b(
            _address(ng.tensors_temp),
            len(self._views),
            error.get_prim(),
            _address(ng.primitive),
            _address(ng.channels),
            ng.initOK_b,
            self.settings.batch,
            height,
            width,
        )
        ng.initOK_b = 1
        for place, view in enumerate(self._views):
            view.primitive[:] = ng.tensors_temp[4 * place : 4 * place + 4]
            view.shape5D = (self.source(place)[0], 1, height, width, self.settings.batch)
        return [view if wanted else None for view, wanted in zip(self._views, self.wanted)]


def _address(array: Any) -> Any:
    return ctypes.c_longlong(array.ctypes.data)
