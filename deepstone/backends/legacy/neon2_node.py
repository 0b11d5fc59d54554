"""What layers of the graph have in common on Neon 2. In the syntax of Python 3.6.

Arrays of activations are (C x H x W, N). Gradients are sums over the batch, and the optimizer divides, as Neon has it.
With MKL a tensor has its numbers in MKL's own layout, which only MKL's operations read; `Plain` gives them to others.
A primitive of MKL is made for the layouts that it meets first, so a layer always gets the same tensors. It may leave a
note of its layout on a tensor that it is given; what writes plain numbers into that tensor later removes the note.
"""

from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from deepstone.backends.wire_graph import WireGraph, WireLayer

Tensor = Any


class Settings:
    """What holds for all layers of a job."""

    def __init__(self, be: Any, graph: WireGraph, batch: int, training: bool, dropout: bool) -> None:
        self.be = be
        self.graph = graph
        self.batch = batch
        self.training = training
        self.dropout = dropout
        self.mkl = be.backend_name == "mkl"


class Plain:
    """The numbers of a tensor in Neon's own layout. The tensor itself stays as it is for MKL's operations."""

    def __init__(self, be: Any) -> None:
        self._be = be
        self._mkl = be.backend_name == "mkl"
        self._views: Dict[int, Tuple[Tensor, Tensor]] = {}

    def __call__(self, tensor: Tensor) -> Tensor:
        if not self._mkl or tensor.primitive[2] == 0:
            return tensor
        self._be.convert(tensor)
        found = self._views.get(id(tensor))
        if found is None:
            found = self._views[id(tensor)] = (tensor, tensor.share(tensor.shape))
        return found[1]


class Node:
    """One layer of the graph. `parameters` and `gradients` by name: Neon's tensors, in Neon's order."""

    in_place = False

    def __init__(self, settings: Settings, layer: WireLayer) -> None:
        self.layer = layer
        self.be = settings.be
        self.settings = settings
        self.plain = Plain(settings.be)
        self.inputs: List[Tensor] = []
        self.error: Tensor = None
        self.parameters: Dict[str, Tensor] = {}
        self.gradients: Dict[str, Tensor] = {}
        self.optimized: List[Any] = []  # the layers of Neon that its optimizers take
        self.wanted = [False] * len(layer.inputs)  # which inputs need a gradient

    def source(self, place: int = 0) -> Tuple[int, ...]:
        return self.settings.graph.shape(self.layer.inputs[place])

    def buffer(self, shape: Sequence[int]) -> Tensor:
        """Return an array for one activation, or the gradient of one."""
        return self.be.zeros((int(np.prod(shape)), self.settings.batch))

    def written(self, tensor: Tensor) -> Tensor:
        """Return a tensor that was filled with plain numbers, without what MKL noted on it before."""
        if self.settings.mkl:
            tensor.clean_mkl()
        return tensor

    def make(self) -> None:
        """Allocate arrays, once it is known which gradients are wanted."""

    def forward(self, inputs: List[Tensor]) -> Tensor:
        raise NotImplementedError

    def backward(self, error: Tensor) -> List[Tensor]:
        """Return the gradients of the wanted inputs; None in the places of others."""
        raise NotImplementedError

    def load(self, values: Dict[str, Any]) -> None:
        for name, value in values.items():
            self.parameters[name][:] = self.to_neon(name, np.asarray(value))

    def to_neon(self, name: str, array: Any) -> Any:
        return array.reshape(self.parameters[name].shape)

    def from_neon(self, name: str, array: Any) -> Any:
        return array.reshape(self.layer.parameters[name])

    def buffers(self) -> Dict[str, Any]:
        return {}


class OneLayer(Node):
    """A layer that is one of Neon's, perhaps on a padded image."""

    neon: Any

    def make(self) -> None:
        self.neon = self.made()
        self.neon.configure(self.neon_source())
        self.neon.prev_layer = None
        self.neon.allocate()
        if self.settings.training and any(self.wanted):
            self.neon.deltas = self.buffer(self.neon_source())
        self.ready()

    def made(self) -> Any:
        raise NotImplementedError

    def neon_source(self) -> Tuple[int, ...]:
        return self.source()

    def ready(self) -> None:
        """Finish what `allocate` leaves to Neon's containers."""

    def given(self, tensor: Tensor) -> Tensor:
        """Convert for an operation that MKL does not have, as Neon's containers do."""
        return tensor if self.neon.get_is_mklop() else self.plain(tensor)

    def forward(self, inputs: List[Tensor]) -> Tensor:
        self.inputs = inputs
        return self.neon.fprop(self.given(inputs[0]), inference=not self.settings.training)

    def backward(self, error: Tensor) -> List[Tensor]:
        self.error = error
        found = self.neon.bprop(self.given(error))
        return [found if self.wanted[0] else None]


class Padded:
    """An image with zeros, or the lowest number, around it: Neon pads both ends of a dimension alike."""

    def __init__(self, node: Node, pad: Sequence[int], value: float) -> None:
        channels, height, width = node.source()
        top, bottom, left, right = pad
        self.shape = (channels, height + top + bottom, width + left + right)
        self._inner = (slice(None), slice(top, top + height), slice(left, left + width))
        self._batch = node.settings.batch
        self._tensor = node.buffer(self.shape)
        self._tensor[:] = value
        self._error = node.buffer(node.source()) if any(node.wanted) else None
        self._written = node.written
        self._image = (channels, height, width, self._batch)

    def forward(self, image: Tensor) -> Tensor:
        whole = self._tensor._tensor.reshape(self.shape + (self._batch,))
        whole[self._inner] = image._tensor.reshape(self._image)
        return self._written(self._tensor)

    def backward(self, error: Tensor) -> Tensor:
        assert self._error is not None
        whole = error._tensor.reshape(self.shape + (self._batch,))
        self._error._tensor.reshape(self._image)[...] = whole[self._inner]
        return self._written(self._error)


class Sum:
    """The sum of several tensors of one shape, by MKL where one of them is in its layout."""

    def __init__(self, settings: Settings, shape: Tuple[int, ...], count: int, output: Tensor) -> None:
        self._be, self._mkl, self._output = settings.be, settings.mkl, output
        image = shape if len(shape) == 3 else shape + (1, 1)
        self._shape = (image[0], 1, image[1], image[2], settings.batch)
        self._count = count
        self._sum, self._tensors = np.zeros(1, np.uint64), np.zeros(4 * count, np.uint64)

    def __call__(self, tensors: Sequence[Tensor]) -> Tensor:
        if self._mkl and any(tensor.primitive[2] for tensor in tensors):
            for place, tensor in enumerate(tensors):
                self._tensors[4 * place : 4 * place + 4] = tensor.primitive
            self._output.shape5D = self._shape
            self._be.sum_tensor(self._sum, self._count, self._tensors, self._output, self._shape)
            return self._output
        if self._mkl:
            self._output.clean_mkl()
        total = tensors[0] + tensors[1]
        for tensor in tensors[2:]:
            total = total + tensor
        self._output[:] = total
        return self._output
