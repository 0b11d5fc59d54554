"""PyTorch 1.1 of 2019, on the CPU: eager, as its users wrote it. In the syntax of Python 3.6."""

import os
from typing import Any, Callable, ContextManager, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as np
import torch
from torch.nn import functional as F

from deepstone.backends.base import ADAM_LEARNING_RATE, LEARNING_RATE, MOMENTUM, IsolatedLayer, Job, LayerResult
from deepstone.backends.cpu_backend import EagerBackend, TableLowering, add_all
from deepstone.backends.isolated import Isolation, Program
from deepstone.backends.onednn_log import OnednnLog, logging_onednn
from deepstone.backends.wire_graph import LOSS, InTurn, WireLayer, refuse_other_ops
from deepstone.setups.honoured import HONOURED

NAME = "torch " + str(torch.__version__)

# Layers whose output their own backward does not read, so that the next layer may write over it.
_OUTPUT_UNREAD = ("conv", "dense", "batch_norm", "add")

_Op = Callable[..., Any]


class Arrays:
    """The parameters and the running statistics of each layer."""

    def __init__(
        self, layers: Iterable[WireLayer], weights: Dict[str, Dict[str, Any]], dtype: Any, trained: bool
    ) -> None:
        self.parameters: Dict[str, Dict[str, Any]] = {}
        self.buffers: Dict[str, Dict[str, Any]] = {}
        for layer in layers:
            own = weights.get(layer.name, {})
            if layer.parameters and own:
                self.parameters[layer.name] = {
                    name: torch.tensor(own[name], dtype=dtype, requires_grad=trained) for name in layer.parameters
                }
            if layer.buffers:
                shape = layer.parameters["weight"]
                starts = {"running_mean": torch.zeros, "running_var": torch.ones}
                self.buffers[layer.name] = {name: starts[name](shape, dtype=dtype) for name in layer.buffers}

    def flat(self) -> List[Any]:
        return [tensor for arrays in self.parameters.values() for tensor in arrays.values()]


class Lowering(TableLowering):
    """Lowers layers to functions of torch, as an expert of 2019 would have called them."""

    def _short(self) -> Dict[str, Callable[..., Any]]:
        return {
            "relu": self._relu,
            "global_pool": lambda layer: lambda x: F.adaptive_avg_pool2d(x, 1),
            "add": lambda layer: add_all,
            "concat": lambda layer: lambda *xs: torch.cat(xs, 1),
            "flatten": lambda layer: lambda x: torch.flatten(x, 1),
        }

    def _conv(self, layer: WireLayer) -> _Op:
        (weight, bias), has = self._weights(layer), layer.has
        stride, dilation, groups = has["stride"], has["dilation"], has["groups"]
        below, beside = (max(0, stride[side] - has["kernel"][side]) for side in (0, 1))
        if (below or beside) and has["kernel"] != (1, 1) and dilation == (1, 1):
            # MKL-DNN 0.18 leaves the gradient of pixels that no window sees unset; with zeros in the kernel, all are.
            left, right, top, bottom = _outer(has["pad"])
            sides, more = (left, right + beside, top, bottom + below), (0, beside, 0, below)
            return lambda x: F.conv2d(F.pad(x, sides), F.pad(weight, more), bias, stride, 0, 1, groups)
        if layer.pad_is_even():
            pad = (has["pad"][0], has["pad"][2])
            return lambda x: F.conv2d(x, weight, bias, stride, pad, dilation, groups)
        sides = _outer(has["pad"])
        return lambda x: F.conv2d(F.pad(x, sides), weight, bias, stride, 0, dilation, groups)

    def _dense(self, layer: WireLayer) -> _Op:
        weight, bias = self._weights(layer)
        return lambda x: F.linear(x, weight, bias)

    def _batch_norm(self, layer: WireLayer) -> _Op:
        (weight, bias), (mean, var) = self._weights(layer), self._statistics(layer)
        training, momentum, epsilon = self._training, layer.has["momentum"], layer.has["epsilon"]
        return lambda x: F.batch_norm(x, mean, var, weight, bias, training, momentum, epsilon)

    def _relu(self, layer: WireLayer) -> _Op:
        source = self._graph.by_name[layer.inputs[0]]
        inplace = source.op in _OUTPUT_UNREAD and self._graph.takers(source.name) == 1
        return lambda x: F.relu(x, inplace)

    def _max_pool(self, layer: WireLayer) -> _Op:
        has = layer.has
        kernel, stride, ceil = has["kernel"], has["stride"], has["ceil_mode"]
        if self._torch_pools(layer):
            pad = (has["pad"][0], has["pad"][2])
            return lambda x: F.max_pool2d(x, kernel, stride, pad, 1, ceil)
        sides, height, width = _outer(has["pad"]), layer.output[1], layer.output[2]
        lowest = float("-inf")

        def pool(x: Any) -> Any:  # a window that torch would add inside the trailing pad is cut off again
            padded = F.pad(x, sides, value=lowest)
            return F.max_pool2d(padded, kernel, stride, 0, 1, ceil)[:, :, :height, :width]

        return pool

    def _average_pool(self, layer: WireLayer) -> _Op:
        has = layer.has
        kernel, stride, ceil, counts = has["kernel"], has["stride"], has["ceil_mode"], has["count_pad"]
        if self._torch_pools(layer):
            pad = (has["pad"][0], has["pad"][2])
            return lambda x: F.avg_pool2d(x, kernel, stride, pad, ceil, counts)
        sides, height, width = _outer(has["pad"]), layer.output[1], layer.output[2]

        def means(x: Any) -> Any:  # over the part of each window that lies in the padded image
            return F.avg_pool2d(F.pad(x, sides), kernel, stride, 0, ceil)[:, :, :height, :width]

        if counts:
            return means
        source = self._graph.shape(layer.inputs[0])
        share = means(torch.ones((1, 1) + tuple(source[1:]), dtype=self._dtype))  # of that part, what is image
        return lambda x: means(x) / share

    def _torch_pools(self, layer: WireLayer) -> bool:
        """Whether torch's own pool equals the graph's: equal padding on both ends, at most half the kernel, and no
        window outside the image, which 1.1 omits only if there is padding."""
        top, _, left, _ = layer.has["pad"]
        kernel = layer.has["kernel"]
        narrow = layer.pad_is_even() and 2 * top <= kernel[0] and 2 * left <= kernel[1]
        return narrow and not layer.ends_outside(self._graph.shape(layer.inputs[0]))

    def _lrn(self, layer: WireLayer) -> _Op:
        has = layer.has
        size, alpha, beta, k = has["size"], has["alpha"], has["beta"], has["k"]
        if not has["within_channel"]:
            return lambda x: F.local_response_norm(x, size, alpha, beta, k)

        def norm(x: Any) -> Any:  # a window that leaves the image is divided by its whole size, as in Caffe
            means = F.avg_pool2d(x * x, size, 1, size // 2)
            return x * torch.pow(means * alpha + k, -beta)

        return norm

    def _drop(self, layer: WireLayer) -> _Op:
        if not self._dropout:
            return lambda x: x
        rate, training = layer.has["rate"], self._training
        return lambda x: F.dropout(x, rate, training)

    def _loss(self, layer: WireLayer) -> _Op:
        weight = layer.has["weight"]
        if weight == 1:
            return F.cross_entropy
        return lambda x, labels: F.cross_entropy(x, labels) * weight


class Torch1Backend(EagerBackend):
    def __init__(self) -> None:
        self._onednn_log = OnednnLog()

    def versions(self) -> Dict[str, Any]:
        return {
            "name": "torch",
            "version": torch.__version__,
            "numpy": np.__version__,
            "build": torch.__config__.show(),
        }

    def build(self, job: Job) -> None:
        request = self._begin(job, HONOURED["torch 1"], NAME)
        graph = self._graph
        if request["threads"] != "auto":
            torch.set_num_threads(int(request["threads"]))
        torch.manual_seed(request["seed"])
        self._dtype = torch.float64 if request["precision"] == "fp64" else torch.float32
        self._arrays, lowering = self._lowered(graph.layers, self._training)
        refuse_other_ops(graph, lowering.ops, NAME)
        self._network = InTurn(graph, lowering.lower)
        self._labels = torch.from_numpy(job.labels)
        self._samples = torch.tensor(job.samples, dtype=self._dtype)
        self._samples.requires_grad_(request["input_grad"] == "on")
        self._update = self._make_optimizer().step if request["phase"] == "train" else None
        self._prepare_step()

    def _lowered(self, layers: Iterable[WireLayer], trained: bool) -> Tuple[Arrays, Lowering]:
        own_arrays = Arrays(layers, self._job.weights, self._dtype, trained)
        dropout = self._job.request["dropout"] == "on"
        return own_arrays, Lowering(self._graph, own_arrays, self._dtype, self._training, dropout)

    def _make_optimizer(self) -> Any:
        parameters, kind = self._arrays.flat(), self._job.request["optimizer"]
        if kind == "adam":
            return torch.optim.Adam(parameters, lr=ADAM_LEARNING_RATE)
        return torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=MOMENTUM if kind == "momentum" else 0)

    def _recording(self, on: bool) -> ContextManager[Any]:
        return torch.set_grad_enabled(on)

    def _backward_function(self) -> Callable[[Any], None]:
        """Return backward. Gradients are zeroed in place, as `zero_grad` did then."""
        tensors = self._arrays.flat() + [self._samples]

        def backward(loss: Any) -> None:
            for tensor in tensors:
                if tensor.grad is not None:
                    tensor.grad.detach_()
                    tensor.grad.zero_()
            loss.backward()

        return backward

    def first_step(self) -> None:
        with logging_onednn(os.path.join(os.path.dirname(torch.__file__), "lib", "libcaffe2.so")) as self._onednn_log:
            self._step()

    def observe(self) -> Dict[str, Dict[str, Any]]:
        set_to = {"layout": "nchw", "algorithm": "heuristic", "compile": "off", "inter_threads": 1, "isa": "no limit"}
        observed: Dict[str, Any] = {
            "framework": "torch@" + str(torch.__version__),
            "device": str(self._loss.device.type),
            "threads": torch.get_num_threads(),
            "precision": "fp64" if self._loss.dtype == torch.float64 else "fp32",
        }
        if self._onednn_log.available:
            observed["engine"] = "onednn" if self._onednn_log.primitives else "native"
            if self._onednn_log.isa is not None:
                observed["isa"] = self._onednn_log.isa
        else:
            set_to["engine"] = "onednn"
        return self._effective(set_to, observed)

    def details(self) -> Dict[str, Any]:
        return {"onednn_primitives": self._onednn_log.primitives}

    def loss(self) -> float:
        return float(self._loss.item())

    def arrays(self, kind: str) -> Dict[str, Any]:
        own_arrays = self._arrays.buffers if kind == "buffers" else self._arrays.parameters
        found: Dict[str, Any] = {}
        for layer, tensors in own_arrays.items():
            for name, tensor in tensors.items():
                taken = tensor.grad if kind == "gradients" else tensor
                if taken is not None:
                    found["%s/%s" % (layer, name)] = _numpy(taken)
        return found

    def layer(self, name: str, inputs: Dict[str, Any], upstream: Optional[Any]) -> LayerResult:
        layer = self._graph.by_name[name]
        own_arrays, lowering = self._lowered([layer], self._training)
        given = {source: torch.tensor(array, dtype=self._dtype) for source, array in inputs.items()}
        for tensor in given.values():
            tensor.requires_grad_(upstream is not None)
        # In the network a relu may write over its input, which torch allows for what another layer gave only.
        arguments = [given[source].clone() if layer.op == "relu" else given[source] for source in layer.inputs]
        if layer.op == LOSS:
            arguments.append(self._labels)
        with torch.set_grad_enabled(upstream is not None):
            output = lowering.lower(layer)(*arguments)
        if upstream is not None and output.requires_grad:
            output.backward(torch.tensor(upstream, dtype=output.dtype))
        parameters = own_arrays.parameters.get(name, {})
        return LayerResult(
            _numpy(output),
            inputs={source: _numpy(tensor.grad) for source, tensor in given.items() if tensor.grad is not None},
            parameters={key: _numpy(tensor.grad) for key, tensor in parameters.items() if tensor.grad is not None},
            buffers={key: _numpy(tensor) for key, tensor in own_arrays.buffers.get(name, {}).items()},
        )

    def isolated_layer(self, name: str) -> IsolatedLayer:
        isolation = Isolation(self._graph, name, self._job.request, len(self._labels))

        def forward() -> Program:
            # A relu that writes over its input can do so again and again only if torch does not record it.
            recorded = isolation.training and isolation.layer.op != "relu"
            call, _ = self._ready(isolation, isolation.sources if recorded else [], recorded)

            def run() -> None:
                with torch.set_grad_enabled(recorded):
                    call()

            return run

        def backward(sources: Sequence[str], trained: bool) -> Program:
            call, wanted = self._ready(isolation, sources, trained)
            output = call()
            upstream = torch.tensor(isolation.upstream(), dtype=output.dtype)

            def run() -> None:
                torch.autograd.grad([output], wanted, [upstream], retain_graph=True)

            return run

        return IsolatedLayer(isolation.programs(forward, backward), self)

    def _ready(
        self, isolation: Isolation, sources: Sequence[str], trained: bool
    ) -> Tuple[Callable[[], Any], List[Any]]:
        """Return the layer on drawn arrays, and the arrays with a gradient: those inputs, and the weights if
        `trained`."""
        layer = isolation.layer
        own_arrays, lowering = self._lowered([layer], trained)
        given = {source: torch.tensor(array, dtype=self._dtype) for source, array in isolation.inputs().items()}
        wanted = [given[source].requires_grad_() for source in sources] + (own_arrays.flat() if trained else [])
        arguments = [given[source].clone() if layer.op == "relu" else given[source] for source in layer.inputs]
        if layer.op == LOSS:
            arguments.append(self._labels)
        function = lowering.lower(layer)
        return lambda: function(*arguments), wanted

    def is_out_of_memory(self, error: BaseException) -> bool:
        of_torch = isinstance(error, RuntimeError) and "can't allocate memory" in str(error).lower()
        return of_torch or super(Torch1Backend, self).is_out_of_memory(error)


def _outer(pad: Sequence[int]) -> Tuple[int, int, int, int]:
    """Return the padding in torch's order of sides."""
    top, bottom, left, right = pad
    return left, right, top, bottom


def _numpy(tensor: Any) -> Any:
    return tensor.detach().contiguous().numpy()


def make_backend() -> Torch1Backend:
    return Torch1Backend()
