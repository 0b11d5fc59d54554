"""Chainer 7: define-by-run, on NumPy, and on MKL-DNN if iDeep is installed. In the syntax of Python 3.6."""

import ctypes
import os
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import chainer
import chainer.functions as F
import numpy as np
from chainer.backends import intel64

from deepstone.backends.base import ADAM_LEARNING_RATE, LEARNING_RATE, MOMENTUM, IsolatedLayer, Job, LayerResult
from deepstone.backends.cpu_backend import PhasedCpuBackend, TableLowering
from deepstone.backends.effective import listed, openblas_threads, precisions
from deepstone.backends.isolated import Isolation, Program
from deepstone.backends.onednn_log import OnednnLog, logging_onednn
from deepstone.backends.wire_graph import LOSS, InTurn, WireLayer, refuse_other_ops
from deepstone.setups.honoured import HONOURED

NAME = "chainer " + str(chainer.__version__)

_Op = Callable[..., Any]


class Arrays:
    """The parameters and the running statistics of each layer."""

    def __init__(
        self, layers: Iterable[WireLayer], weights: Dict[str, Dict[str, Any]], dtype: Any, device: Any, trained: bool
    ) -> None:
        self.parameters: Dict[str, Dict[str, Any]] = {}
        self.buffers: Dict[str, Dict[str, Any]] = {}
        for layer in layers:
            if layer.parameters:
                own = weights[layer.name]
                self.parameters[layer.name] = {
                    name: _weight(np.array(own[name], dtype=dtype), trained) for name in layer.parameters
                }
            if layer.buffers:
                shape = layer.parameters["weight"]
                starts = {"running_mean": np.zeros, "running_var": np.ones}
                self.buffers[layer.name] = {name: starts[name](shape, dtype) for name in layer.buffers}
        for parameter in self.flat():
            parameter.to_device(device)

    def flat(self) -> List[Any]:
        return [parameter for arrays in self.parameters.values() for parameter in arrays.values()]


def _weight(array: Any, trained: bool) -> Any:
    return chainer.Parameter(array) if trained else chainer.Variable(array, requires_grad=False)


class Plain(chainer.FunctionNode):
    """Converts to plain NumPy arrays, forward and backward. A product of iDeep's own arrays looks correct, but a
    convolution or gradient computed from it is wrong; with plain arrays it is correct."""

    def forward(self, inputs: Tuple[Any, ...]) -> Tuple[Any, ...]:
        return (np.array(inputs[0]) if isinstance(inputs[0], intel64.mdarray) else inputs[0],)

    def backward(self, target_input_indexes: Any, grad_outputs: Tuple[Any, ...]) -> Tuple[Any, ...]:
        return (_plain(grad_outputs[0]),)


def _plain(x: Any) -> Any:
    return Plain().apply((x,))[0]


class Lowering(TableLowering):
    def _short(self) -> Dict[str, Callable[..., Any]]:
        return {
            "relu": lambda layer: F.relu,
            "global_pool": lambda layer: lambda x: F.average_pooling_2d(x, x.shape[2:]),
            "add": lambda layer: F.add,
            "concat": lambda layer: lambda *xs: F.concat(xs, axis=1),
            "flatten": lambda layer: lambda x: F.reshape(x, (x.shape[0], -1)),
        }

    def _conv(self, layer: WireLayer) -> _Op:
        (weight, bias), has = self._weights(layer), layer.has
        more = {"stride": has["stride"], "dilate": has["dilation"], "groups": has["groups"]}
        if layer.pad_is_even():
            pad = (has["pad"][0], has["pad"][2])
            return lambda x: F.convolution_2d(x, weight, bias, pad=pad, **more)
        sides = _sides(has["pad"])
        return lambda x: F.convolution_2d(_padded(x, sides, 0.0), weight, bias, **more)

    def _dense(self, layer: WireLayer) -> _Op:
        weight, bias = self._weights(layer)
        return lambda x: F.linear(x, weight, bias)

    def _batch_norm(self, layer: WireLayer) -> _Op:
        (weight, bias), (mean, var) = self._weights(layer), self._statistics(layer)
        epsilon, decay = layer.has["epsilon"], 1 - layer.has["momentum"]
        if not self._training:
            return lambda x: F.fixed_batch_normalization(x, weight, bias, mean, var, eps=epsilon)
        return lambda x: F.batch_normalization(
            x, weight, bias, eps=epsilon, running_mean=mean, running_var=var, decay=decay
        )

    def _max_pool(self, layer: WireLayer) -> _Op:
        has = layer.has
        kernel, stride, ceil = has["kernel"], has["stride"], has["ceil_mode"]
        outside = layer.ends_outside(self._graph.shape(layer.inputs[0]))
        if layer.pad_is_even() and not outside:
            pad = (has["pad"][0], has["pad"][2])
            return lambda x: F.max_pooling_2d(x, kernel, stride, pad, cover_all=ceil)
        sides, height, width = _sides(has["pad"]), layer.output[1], layer.output[2]

        def pool(x: Any) -> Any:
            pooled = F.max_pooling_2d(_padded(x, sides, -np.inf), kernel, stride, cover_all=ceil)
            return pooled[:, :, :height, :width] if outside else pooled

        return pool

    def _average_pool(self, layer: WireLayer) -> _Op:
        """Pool by averages. Chainer's own pool divides by the whole window and never rounds up; otherwise the image is
        padded until all windows fit, and the mean is corrected by the counted share of each window."""
        has = layer.has
        kernel, stride, pad = has["kernel"], has["stride"], has["pad"]
        if layer.pad_is_even() and not has["ceil_mode"] and (has["count_pad"] or not any(pad)):
            even = (pad[0], pad[2])
            return lambda x: F.average_pooling_2d(x, kernel, stride, even)
        source = self._graph.shape(layer.inputs[0])
        reach = [(layer.output[1 + side] - 1) * stride[side] + kernel[side] for side in (0, 1)]
        below, beside = (max(0, reach[side] - pad[2 * side] - source[1 + side]) for side in (0, 1))
        sides, height, width = _sides((pad[0], below, pad[2], beside)), layer.output[1], layer.output[2]
        rows, columns = layer.places_that_count(source)
        correction = (kernel[0] * kernel[1] / np.outer(rows, columns)).astype(self._dtype)

        def pool(x: Any) -> Any:
            means = F.average_pooling_2d(_padded(x, sides, 0.0), kernel, stride)[:, :, :height, :width]
            return means * np.broadcast_to(correction, means.shape)

        return pool

    def _lrn(self, layer: WireLayer) -> _Op:
        size, alpha, beta, k = (layer.has[name] for name in ("size", "alpha", "beta", "k"))
        if not layer.has["within_channel"]:
            return lambda x: F.local_response_normalization(x, size, k, alpha / size, beta)

        def norm(x: Any) -> Any:  # a window that leaves the image is divided by its whole size, as in Caffe
            x = _plain(x)
            means = _plain(F.average_pooling_2d(_plain(F.square(x)), size, 1, size // 2))
            return _plain(x * (means * alpha + k) ** -beta)

        return norm

    def _drop(self, layer: WireLayer) -> _Op:
        if not self._dropout:
            return lambda x: x
        rate = layer.has["rate"]
        return lambda x: F.dropout(x, rate)

    def _loss(self, layer: WireLayer) -> _Op:
        weight = layer.has["weight"]
        return lambda x, labels: F.softmax_cross_entropy(x, labels) * weight


class Met:
    """The inputs of one layer in a step, in their memory layout."""

    def __init__(self, layer: WireLayer, arguments: Sequence[Any], output: Any) -> None:
        self.inputs = {source: one.array for source, one in zip(layer.inputs, arguments)}
        self.upstream = output.grad  # None if it is not needed


class ChainerBackend(PhasedCpuBackend):
    _step: Callable[[], None]
    _update: Optional[Callable[[], None]]
    _met: Optional[Dict[str, "Met"]]
    _loss: Any = None

    def versions(self) -> Dict[str, Any]:
        versions = {"name": "chainer", "version": chainer.__version__, "numpy": np.__version__}
        return dict(versions, ideep4py=intel64.ideep.__version__) if intel64.is_ideep_available() else versions

    def build(self, job: Job) -> None:
        engines = _engines(job.request)
        request = self._begin(job, dict(HONOURED["chainer"], engine=("auto",) + engines), NAME)
        graph = self._graph
        self._onednn_log, self._met = OnednnLog(), None
        self._engine = engines[0] if request["engine"] == "auto" else str(request["engine"])
        chainer.global_config.use_ideep = "auto" if self._engine == "onednn" else "never"
        self._device = chainer.get_device("@intel64" if self._engine == "onednn" else "@numpy")
        np.random.seed(request["seed"])  # which is where Chainer's dropout draws from
        self._dtype = np.float64 if request["precision"] == "fp64" else np.float32
        chainer.global_config.train = self._training
        chainer.global_config.enable_backprop = self._training
        self._arrays, lowering = self._lowered(graph.layers)
        refuse_other_ops(graph, lowering.ops, NAME)
        self._network = InTurn(graph, lowering.lower)
        self._labels = job.labels.astype(np.int32)
        self._samples = job.samples.astype(self._dtype)
        self._resident = chainer.Variable(self._samples, requires_grad=request["input_grad"] == "on")
        self._update = self._make_update() if request["phase"] == "train" else None

    def _lowered(self, layers: Sequence[WireLayer], trained: bool = True) -> Tuple[Arrays, Lowering]:
        own_arrays = Arrays(layers, self._job.weights, self._dtype, self._device, trained)
        dropout = self._job.request["dropout"] == "on"
        return own_arrays, Lowering(self._graph, own_arrays, self._dtype, self._training, dropout)

    def _make_update(self) -> Callable[[], None]:
        kind = self._job.request["optimizer"]
        if kind == "adam":
            optimizer = chainer.optimizers.Adam(alpha=ADAM_LEARNING_RATE)
        elif kind == "momentum":
            optimizer = chainer.optimizers.MomentumSGD(lr=LEARNING_RATE, momentum=MOMENTUM)
        else:
            optimizer = chainer.optimizers.SGD(lr=LEARNING_RATE)
        owner = chainer.Link()
        with owner.init_scope():
            for number, parameter in enumerate(self._arrays.flat()):
                setattr(owner, "parameter%d" % number, parameter)
        optimizer.setup(owner)
        update: Callable[[], None] = optimizer.update
        return update

    def _get(self) -> Tuple[Any, Any]:
        """Return the batch, or a copy of it: the data phase."""
        if self._job.request["input"] == "resident":
            return self._resident, self._labels
        return chainer.Variable(self._samples.copy(), requires_grad=False), self._labels.copy()

    def _backward(self) -> None:
        for parameter in self._arrays.flat():
            parameter.cleargrad()
        self._resident.cleargrad()
        self._loss.backward()
        self._loss.unchain_backward()  # or the graph would live until the next step is through its forward

    def step(self, program: str) -> Callable[[], None]:
        assert program == self.phase(), "chainer times phases one by one, so it has one program"
        network, get, training, update = self._network, self._get, self._training, self._update

        def step() -> None:
            samples, labels = get()
            self._loss = network(samples, labels)
            if training:
                self._backward()
            if update is not None:
                update()

        return step

    def first_step(self) -> None:
        step = self.step(self.phase())
        if self._engine == "native":
            step()
            return
        with logging_onednn(_ideep_library("libmkldnn.so.0")) as self._onednn_log:
            step()

    def step_in_phases(self, set_timestamp: Callable[[int], None]) -> None:
        samples, labels = self._get()
        set_timestamp(0)
        self._loss = self._network(samples, labels)
        set_timestamp(1)
        if self._training:
            self._backward()
            set_timestamp(2)
        if self._update is not None:
            self._update()
            set_timestamp(3)

    def observe(self) -> Dict[str, Dict[str, Any]]:
        set_to: Dict[str, Any] = {"engine": self._engine, "compile": "off"}
        observed: Dict[str, Any] = {
            "framework": "chainer@" + str(chainer.__version__),
            "device": self._observed_device(),
            "precision": listed(precisions(np.dtype(variable.dtype).name for variable in self._variables())),
        }
        if not intel64.should_use_ideep(">=auto"):
            observed["engine"] = "native"
        if self._onednn_log.available:
            observed["engine"] = "onednn" if self._onednn_log.primitives else "native"
            if self._onednn_log.isa is not None:
                observed["isa"] = self._onednn_log.isa
        threads = openblas_threads() if self._engine == "native" else _openmp_threads()
        if threads is None:
            set_to["threads"] = self._job.request["threads"]
            if set_to["threads"] == "auto":
                set_to["threads"] = len(os.sched_getaffinity(0))
        else:
            observed["threads"] = threads
        return self._effective(set_to, observed)

    def _variables(self) -> List[Any]:
        """Return the loss of the last step and all parameters."""
        return [self._loss] + [own for arrays in self._arrays.parameters.values() for own in arrays.values()]

    def _observed_device(self) -> str:
        on_cpu = (chainer.backend.CpuDevice, chainer.backend.Intel64Device)
        devices = [variable.device for variable in self._variables()]
        return " and ".join(sorted({"cpu" if isinstance(device, on_cpu) else str(device) for device in devices}))

    def details(self) -> Dict[str, Any]:
        return {"onednn_primitives": self._onednn_log.primitives}

    def loss(self) -> float:
        return float(self._loss.array)

    def arrays(self, kind: str) -> Dict[str, Any]:
        found: Dict[str, Any] = {}
        if kind == "buffers":
            for layer, arrays in self._arrays.buffers.items():
                found.update({"%s/%s" % (layer, name): array for name, array in arrays.items()})
            return found
        for layer, parameters in self._arrays.parameters.items():
            for name, parameter in parameters.items():
                taken = parameter.grad if kind == "gradients" else parameter.array
                if taken is not None:
                    found["%s/%s" % (layer, name)] = _numpy(taken)
        return found

    def layer(self, name: str, inputs: Dict[str, Any], upstream: Optional[Any]) -> LayerResult:
        layer = self._graph.by_name[name]
        own_arrays, lowering = self._lowered([layer])
        given = {source: chainer.Variable(array.astype(self._dtype)) for source, array in inputs.items()}
        output = self._call(layer, lowering, given)()
        result = np.array(_numpy(output.array))
        if upstream is not None:
            output = F.identity(output)  # of a layer that hands on its input, the gradient would be set by hand
            output.grad = np.asarray(upstream, dtype=self._dtype).reshape(output.shape)
            output.backward()
        parameters = own_arrays.parameters.get(name, {})
        return LayerResult(
            result,
            inputs={source: _numpy(one.grad) for source, one in given.items() if one.grad is not None},
            parameters={key: _numpy(one.grad) for key, one in parameters.items() if one.grad is not None},
            buffers=own_arrays.buffers.get(name, {}),
        )

    def _call(self, layer: WireLayer, lowering: Lowering, given: Dict[str, Any]) -> Callable[[], Any]:
        arguments: List[Any] = [given[source] for source in layer.inputs]
        if layer.op == LOSS:
            arguments.append(self._labels)
        function = lowering.lower(layer)
        return lambda: function(*arguments)

    def isolated_layer(self, name: str) -> IsolatedLayer:
        isolation = Isolation(self._graph, name, self._job.request, len(self._labels))

        def forward() -> Program:
            call, _ = self._ready(isolation, isolation.sources, True)

            def run() -> None:
                call()

            return run

        def backward(sources: Sequence[str], trained: bool) -> Program:
            call, wanted = self._ready(isolation, sources, trained)
            output, upstream = call(), chainer.Variable(self._meetings()[name].upstream)

            def run() -> None:
                for variable in wanted:
                    variable.cleargrad()
                output.grad_var = upstream  # which is taken from it by the time it returns
                output.backward()

            return run

        moves = isolation.layer.op == "flatten" and _is_scattered(next(iter(self._meetings()[name].inputs.values())))
        return IsolatedLayer(isolation.programs(forward, backward, moves_to_flatten=moves), self)

    def _ready(
        self, isolation: Isolation, sources: Sequence[str], trained: bool
    ) -> Tuple[Callable[[], Any], List[Any]]:
        """Return the isolated layer, and the arrays with a gradient: those inputs, and the weights if `trained`."""
        own_arrays, lowering = self._lowered([isolation.layer], trained)
        given = {
            source: chainer.Variable(array, requires_grad=source in sources)
            for source, array in self._meetings()[isolation.layer.name].inputs.items()
        }
        wanted = [given[source] for source in sources] + (own_arrays.flat() if trained else [])
        return self._call(isolation.layer, lowering, given), wanted

    def _meetings(self) -> Dict[str, Met]:
        """Return the inputs by layer, from one separate step: Chainer's convolutions return images with channels last,
        MKL-DNN's in blocks of channels, and a pool with inputs in another order takes up to a hundred times as long."""
        if self._met is None:
            seen: List[Tuple[WireLayer, Sequence[Any], Any]] = []
            lowering = self._lowered(self._graph.layers)[1]

            def lower(layer: WireLayer) -> _Op:
                function = lowering.lower(layer)

                def call(*arguments: Any) -> Any:
                    output = function(*arguments)
                    seen.append((layer, arguments, output))
                    return output

                return call

            samples = chainer.Variable(self._samples, requires_grad=self._job.request["input_grad"] == "on")
            loss = InTurn(self._graph, lower)(samples, self._labels)
            if self._training:
                loss.backward(retain_grad=True)
            self._met = {layer.name: Met(layer, arguments, output) for layer, arguments, output in seen}
        return self._met


def _engines(request: Dict[str, Any]) -> Tuple[str, ...]:
    """Return the engines, the best first. iDeep, which calls MKL-DNN, leaves all but float32 to NumPy."""
    on_ideep = intel64.is_ideep_available() and request["precision"] != "fp64"
    return ("onednn", "native") if on_ideep else ("native",)


def _ideep_library(library: str) -> str:
    return os.path.join(os.path.dirname(intel64.ideep.__file__), "lib", library)


def _openmp_threads() -> int:
    """Return the threads of Intel's OpenMP, which MKL-DNN uses."""
    return int(ctypes.CDLL(_ideep_library("libiomp5.so")).omp_get_max_threads())


def _numpy(array: Any) -> Any:
    """Convert to NumPy: an array of iDeep has MKL-DNN's blocks of channels."""
    return chainer.get_device("@numpy").send(array)


def _is_scattered(images: Any) -> bool:
    """Whether flattening moves data: one pixel per channel is in order in every layout."""
    in_order = isinstance(images, np.ndarray) and images.flags.c_contiguous
    return not in_order and images.shape[2:] != (1, 1)


def _sides(pad: Sequence[int]) -> Tuple[Tuple[int, int], ...]:
    top, bottom, left, right = pad
    return (0, 0), (0, 0), (top, bottom), (left, right)


def _padded(x: Any, sides: Tuple[Tuple[int, int], ...], value: float) -> Any:
    return F.pad(x, sides, "constant", constant_values=value)


def make_backend() -> ChainerBackend:
    return ChainerBackend()
