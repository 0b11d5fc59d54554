"""Layers with weights, activations, dropout and losses on Neon 2. In the syntax of Python 3.6."""

from typing import Any, List, Optional, Tuple

from neon.initializers import Constant
from neon.layers import Activation, Dropout, Linear
from neon.layers.layer import Bias, Convolution, Convolution_bias
from neon.transforms import CrossEntropyMulti, Rectlin, Softmax

from deepstone.backends.legacy.neon2_node import Node, OneLayer, Padded, Tensor


class WeightedNode(OneLayer):
    """Its gradients can be computed each by itself."""

    def backward(self, error: Tensor) -> List[Tensor]:
        self.error = error
        found = self.backward_data(error)
        self.backward_weight(error)
        return [found]

    def backward_data(self, error: Tensor) -> Tensor:
        raise NotImplementedError

    def backward_weight(self, error: Tensor) -> None:
        raise NotImplementedError


class ConvNode(WeightedNode):
    _padded: Optional[Padded] = None

    def made(self) -> Any:
        has = self.layer.has
        pad = (has["pad"][0], has["pad"][2])
        if not self.layer.pad_is_even():
            self._padded, pad = Padded(self, has["pad"], 0.0), (0, 0)
        more = {
            "strides": dict(zip(("str_h", "str_w"), has["stride"])),
            "padding": dict(zip(("pad_h", "pad_w"), pad)),
            "dilation": dict(zip(("dil_h", "dil_w"), has["dilation"])),
            "init": Constant(0),
        }
        shape = has["kernel"] + (self.layer.output[0],)
        if "bias" in self.layer.parameters:
            return Convolution_bias(shape, bias=Constant(0), **more)
        return Convolution(shape, **more)

    def neon_source(self) -> Tuple[int, ...]:
        return self.source() if self._padded is None else self._padded.shape

    def ready(self) -> None:
        self.parameters, self.gradients = {"weight": self.neon.W}, {"weight": self.neon.dW}
        if "bias" in self.layer.parameters:
            self.parameters["bias"], self.gradients["bias"] = self.neon.weight_bias, self.neon.grad_bias
        self.optimized = [self.neon]
        # Neon's dilated convolution of MKL crashes unless the gradient of the image is computed before the weight's.
        dilated = self.settings.mkl and self.layer.has["dilation"] != (1, 1)
        self._data_first = self.settings.training and dilated and not any(self.wanted)
        if self._data_first:
            self.neon.deltas = self.buffer(self.neon_source())

    def forward(self, inputs: List[Tensor]) -> Tensor:
        self.inputs = inputs
        image = inputs[0]
        if self._padded is not None:
            image = self._padded.forward(self.plain(image))
        return self.neon.fprop(image)

    def backward_data(self, error: Tensor) -> Tensor:
        if not self.wanted[0]:
            return None
        self.be.bprop_conv(self.neon.nglayer, self.neon.W, error, self.neon.deltas, layer_op=self.neon)
        if self._padded is None:
            return self.neon.deltas
        return self._padded.backward(self.plain(self.neon.deltas))

    def backward_weight(self, error: Tensor) -> None:
        more = {"grad_bias": self.neon.grad_bias} if "bias" in self.gradients else {}
        if more and self.settings.mkl and not error.primitive[2]:
            # MKL's sum is wrong for some shapes where the gradient is not in its layout.
            self.gradients["bias"][:] = self.be.sum(error.reshape((self.layer.output[0], -1)), axis=1)
            more = {}
        if self._data_first:
            self.be.bprop_conv(self.neon.nglayer, self.neon.W, error, self.neon.deltas, layer_op=self.neon)
        self.be.update_conv(self.neon.nglayer, self.neon.inputs, error, self.neon.dW, layer_op=self.neon, **more)

    def to_neon(self, name: str, array: Any) -> Any:
        return array.reshape(array.shape[0], -1).T if name == "weight" else array.reshape(-1, 1)

    def from_neon(self, name: str, array: Any) -> Any:
        return (array.T if name == "weight" else array).reshape(self.layer.parameters[name])


class DenseNode(WeightedNode):
    """Linear, and Bias if it has one."""

    _bias: Any = None

    def made(self) -> Any:
        return Linear(self.layer.output[0], init=Constant(0))

    def neon_source(self) -> Any:
        return self.source()[0]

    def ready(self) -> None:
        self.parameters, self.gradients, self.optimized = {"weight": self.neon.W}, {"weight": self.neon.dW}, [self.neon]
        if "bias" in self.layer.parameters:
            self._bias = Bias(init=Constant(0))
            self._bias.configure(self.neon)
            self._bias.prev_layer = None
            self._bias.allocate()
            self.parameters["bias"], self.gradients["bias"] = self._bias.W, self._bias.dW
            self.optimized.append(self._bias)

    def forward(self, inputs: List[Tensor]) -> Tensor:
        self.inputs = inputs
        output = self.written(self.neon.fprop(self.plain(inputs[0])))
        return output if self._bias is None else self._bias.fprop(output)

    def backward_data(self, error: Tensor) -> Tensor:
        if not self.wanted[0]:
            return None
        self.be.compound_dot(A=self.neon.W.T, B=self.plain(error), C=self.neon.deltas)
        return self.written(self.neon.deltas)

    def backward_weight(self, error: Tensor) -> None:
        error = self.plain(error)
        if self._bias is not None:
            self._bias.deltas = None  # or it would keep to the gradient that it saw first
            self._bias.bprop(error)
        self.be.compound_dot(A=error, B=self.neon.inputs.T, C=self.neon.dW)


class ReluNode(OneLayer):
    """Works in place, as Neon's does; on a copy where something else reads its input."""

    _copy: Tensor = None

    def made(self) -> Any:
        return Activation(Rectlin())

    def neon_source(self) -> Any:
        source = self.source()
        return source if len(source) == 3 else source[0]

    def ready(self) -> None:
        if not self.in_place:
            self._copy = self.buffer(self.source())

    def forward(self, inputs: List[Tensor]) -> Tensor:
        self.inputs = inputs
        given = inputs[0]
        if self._copy is not None:
            self._copy._tensor[...] = self.plain(given)._tensor
            given = self.written(self._copy)
        return self.neon.fprop(given)


class DropNode(OneLayer):
    """Scaled while it trains, as in Neon's mode for Caffe, so that it is the identity otherwise."""

    def made(self) -> Any:
        dropout = Dropout(keep=1 - self.layer.has["rate"])
        dropout.caffe_mode, dropout._train_scaling = True, 1 / (1 - self.layer.has["rate"])
        return dropout

    def ready(self) -> None:
        self.neon.deltas = None
        self._own = self.buffer(self.source())

    def forward(self, inputs: List[Tensor]) -> Tensor:
        self.inputs = inputs
        self._own._tensor[...] = self.plain(inputs[0])._tensor
        return self.written(self.neon.fprop(self._own))

    def backward(self, error: Tensor) -> List[Tensor]:
        self.error = error
        self.neon.deltas = None
        return [self.written(self.neon.bprop(self.plain(error)))]


class PassNode(Node):
    """Flatten, and dropout that is off: the same array."""

    def forward(self, inputs: List[Tensor]) -> Tensor:
        self.inputs = inputs
        return inputs[0]

    def backward(self, error: Tensor) -> List[Tensor]:
        self.error = error
        return [error]


class FlattenNode(PassNode):
    def forward(self, inputs: List[Tensor]) -> Tensor:
        self.inputs = inputs
        return self.written(self.plain(inputs[0]))

    def backward(self, error: Tensor) -> List[Tensor]:
        self.error = error
        return [self.written(self.plain(error))]


class LossNode(Node):
    """Softmax and Neon's cross-entropy, which gives the gradient of both at once."""

    def make(self) -> None:
        weight = self.layer.has["weight"]
        self._softmax, self._cost = Softmax(), CrossEntropyMulti(scale=weight)
        self.shares = self.buffer(self.source())
        self._costs = self.be.zeros((1, self.settings.batch))
        self._mean = self.be.zeros((1, 1))
        self._deltas = self.buffer(self.source())
        self.labels: Tensor = None  # one in the row of the class

    def forward(self, inputs: List[Tensor]) -> Tensor:
        self.inputs = inputs
        self.shares[:] = self._softmax(self.plain(inputs[0]))
        self._costs[:] = self._cost(self.shares, self.labels)
        self.be.mean(self._costs, axis=1, out=self._mean)
        return self._mean

    def backward(self, error: Tensor) -> List[Tensor]:
        self._deltas[:] = self._cost.bprop(self.shares, self.labels)
        return [self.written(self._deltas)]

    def loss(self) -> float:
        return float(self._mean.get()[0, 0]) * float(self.layer.has["weight"])
