"""CNTK 2.7 on the CPU: a static graph and a Trainer, channels first. In the syntax of Python 3.6.

Convolutions and batch norm are primitives of the MKL of 2017 in CNTK, which is not MKL-DNN: the engine is native. If
the padding of an image differs between sides, CNTK unrolls it for a matrix product instead.
"""

from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple

import cntk as C
import numpy as np

from deepstone.backends.base import ADAM_LEARNING_RATE, LEARNING_RATE, MOMENTUM, IsolatedLayer, Job, LayerResult
from deepstone.backends.cpu_backend import CpuBackend, TableLowering
from deepstone.backends.isolated import Isolation, Program
from deepstone.backends.wire_graph import LOSS, WireGraph, WireLayer, lowered_outputs, refuse_other_ops
from deepstone.setups.honoured import HONOURED

NAME = "cntk " + str(C.__version__)

_LOWEST = float(np.finfo(np.float32).min)  # padding of max pools; every window also contains a pixel


class Arrays:
    """The parameters and the running statistics in CNTK's order: dense weights are (inputs, features)."""

    def __init__(
        self, layers: Iterable[WireLayer], weights: Dict[str, Dict[str, Any]], dtype: Any, trained: bool = True
    ) -> None:
        self.parameters: Dict[Tuple[str, str], Any] = {}
        self.buffers: Dict[Tuple[str, str], Any] = {}
        self._shapes: Dict[Tuple[str, str], Tuple[int, ...]] = {}
        for layer in layers:
            for name, shape in layer.parameters.items():
                array = np.asarray(weights[layer.name][name], dtype=dtype)
                if layer.op == "dense" and name == "weight":
                    array = np.ascontiguousarray(array.T)
                elif layer.op == "conv" and name == "bias":
                    array = array.reshape(-1, 1, 1)
                self.parameters[layer.name, name] = C.parameter(init=array) if trained else C.constant(array)
                self._shapes[layer.name, name] = shape
            for name in layer.buffers:
                start = np.ones if name == "running_var" else np.zeros
                self.buffers[layer.name, name] = C.constant(start(layer.parameters["weight"], dtype))

    def as_the_graph_has_it(self, key: Tuple[str, str], array: Any) -> Any:
        """A parameter or its gradient."""
        shape = self._shapes[key]
        return np.ascontiguousarray(array.T) if len(shape) == 2 else array.reshape(shape)


class Lowering(TableLowering):
    """Lowers layers to functions. `samples` is the batch: CNTK's sum over it must become a mean."""

    def __init__(self, graph: WireGraph, arrays: Arrays, dtype: Any, samples: int, dropout: bool) -> None:
        super(Lowering, self).__init__(graph, arrays, dtype, True, dropout)
        self._samples = samples

    def _short(self) -> Dict[str, Callable[..., Any]]:
        return {
            "relu": lambda layer, x: C.relu(x),
            "global_pool": lambda layer, x: C.reduce_mean(x, axis=(1, 2)),
            "add": lambda layer, *xs: C.plus(*xs),
            "concat": lambda layer, *xs: C.splice(*xs, axis=0),
            "flatten": lambda layer, x: C.reshape(x, layer.output),
        }

    def _own(self, layer: WireLayer, name: str) -> Any:
        return self._arrays.parameters[layer.name, name]

    def _constant(self, value: Any) -> Any:
        return C.constant(np.asarray(value, dtype=self._dtype))

    def _source(self, layer: WireLayer) -> Tuple[int, ...]:
        return self._graph.shape(layer.inputs[0])

    def _conv(self, layer: WireLayer, x: Any) -> Any:
        has, weight = layer.has, self._own(layer, "weight")
        if has["dilation"] != (1, 1):
            weight = _spread(weight, layer.parameters["weight"], has["dilation"])
        automatic = _pads_automatically(layer, self._source(layer), weight.shape[2:])
        x = _padded(x, _without(has["pad"], automatic), 0.0)
        y = C.convolution(
            weight, x, strides=(1,) + has["stride"], auto_padding=[False] + automatic, groups=has["groups"]
        )
        return y + self._own(layer, "bias") if has["bias"] else y

    def _dense(self, layer: WireLayer, x: Any) -> Any:
        y = C.times(x, self._own(layer, "weight"))
        return y + self._own(layer, "bias") if layer.has["bias"] else y

    def _batch_norm(self, layer: WireLayer, x: Any) -> Any:
        mean, var = (self._arrays.buffers[layer.name, name] for name in layer.buffers)
        return C.batch_normalization(
            x,
            self._own(layer, "weight"),
            self._own(layer, "bias"),
            mean,
            var,
            spatial=True,
            normalization_time_constant=_time_constant(layer.has["momentum"], self._samples),
            running_count=self._constant(1),  # with 0 the first batch would count in full
            epsilon=layer.has["epsilon"],
        )

    def _pool(self, layer: WireLayer, x: Any, kind: Any, automatic: List[bool], **more: Any) -> Any:
        has = layer.has
        return C.pooling(x, kind, has["kernel"], has["stride"], auto_padding=[False] + automatic, **more)

    def _max_pool(self, layer: WireLayer, x: Any) -> Any:
        has, source = layer.has, self._source(layer)
        if _rounds_up_automatically(layer, source):
            return self._pool(layer, x, C.MAX_POOLING, [False, False], ceil_out_dim=True)
        automatic = _pads_automatically(layer, source, has["kernel"])
        framed = _padded(x, _without(_room(layer, source), automatic), _LOWEST)
        return self._pool(layer, framed, C.MAX_POOLING, automatic)

    def _average_pool(self, layer: WireLayer, x: Any) -> Any:
        has, source = layer.has, self._source(layer)
        if _rounds_up_automatically(layer, source):
            return self._pool(layer, x, C.AVG_POOLING, [False, False], ceil_out_dim=True)
        automatic, room = _pads_automatically(layer, source, has["kernel"]), _room(layer, source)
        rows, columns = layer.places_that_count(source)
        correction = has["kernel"][0] * has["kernel"][1] / np.outer(rows, columns)
        if not any(_without(room, automatic)) and (not has["count_pad"] or np.all(correction == 1)):
            return self._pool(layer, x, C.AVG_POOLING, automatic, include_pad=has["count_pad"])
        means = self._pool(layer, _padded(x, room, 0.0), C.AVG_POOLING, [False, False])
        return means * self._constant(correction[None])

    def _lrn(self, layer: WireLayer, x: Any) -> Any:
        size, alpha, beta, k = (layer.has[name] for name in ("size", "alpha", "beta", "k"))
        if layer.has["within_channel"]:  # a window that leaves the image is divided by its whole size, as in Caffe
            squares = _padded(C.square(x), (size // 2,) * 4, 0.0)
            means = C.pooling(squares, C.AVG_POOLING, (size, size), (1, 1))
        elif size <= layer.output[0]:
            return C.local_response_normalization(x, size // 2, k, alpha, beta)  # divides, though its docs do not
        else:  # CNTK's own makes its window as small as the channels, and then off centre
            channels = np.arange(layer.output[0])
            band = np.abs(channels[:, None] - channels) <= size // 2
            kernel = self._constant(band[:, :, None, None] / size)
            means = C.convolution(kernel, C.square(x), auto_padding=[False])
        scale = means * self._constant(alpha) + self._constant(k)
        return x * C.exp(C.log(scale) * self._constant(-beta))  # the gradient of CNTK's pow is not a number

    def _drop(self, layer: WireLayer, x: Any) -> Any:
        return C.dropout(x, layer.has["rate"]) if self._dropout else C.alias(x)

    def _loss(self, layer: WireLayer, x: Any, labels: Any) -> Any:
        """Return each sample's part of the mean, since CNTK sums losses and gradients over the batch."""
        return C.cross_entropy_with_softmax(x, labels) * self._constant(layer.has["weight"] / self._samples)


class CntkBackend(CpuBackend):
    _losses: Any  # of each sample in CNTK's memory, or the trainer that knows their mean

    def versions(self) -> Dict[str, Any]:
        return {"name": "cntk", "version": C.__version__, "numpy": np.__version__}

    def build(self, job: Job) -> None:
        request = self._begin(job, HONOURED["cntk"], NAME)
        graph = self._graph
        C.device.try_set_default_device(C.device.cpu())
        C.cntk_py.set_fixed_random_seed(request["seed"])
        if request["threads"] != "auto":
            C.cntk_py.set_max_num_cputhreads(int(request["threads"]))
        self._dtype = np.float64 if request["precision"] == "fp64" else np.float32
        self._batch_size = len(job.labels)
        self._arrays, lowering = self._lowered(graph.layers)
        refuse_other_ops(graph, lowering.ops, NAME)
        self._samples = self._input(graph.input.output, request["input_grad"] == "on")
        self._labels = self._labels_input()
        _, losses = lowered_outputs(graph, lowering.lower, self._samples, self._labels)
        self._loss = losses[0] if len(losses) == 1 else C.plus(*losses)
        self._wanted: List[Any] = list(self._arrays.parameters.values())
        if request["input_grad"] == "on":
            self._wanted.append(self._samples)
        self._host = job.samples.astype(self._dtype)
        self._resident = {self._samples: C.Value(batch=self._host), self._labels: self._one_hot()}
        self._gradients: Dict[Any, Any] = {}
        self._programs: Dict[str, Callable[[], None]] = {}

    def _lowered(self, layers: Sequence[WireLayer], trained: bool = True) -> Tuple[Arrays, Lowering]:
        own_arrays = Arrays(layers, self._job.weights, self._dtype, trained)
        dropout = self._job.request["dropout"] == "on"
        return own_arrays, Lowering(self._graph, own_arrays, self._dtype, self._batch_size, dropout)

    def _input(self, shape: Sequence[int], needs_gradient: bool) -> Any:
        return C.input_variable(tuple(shape), dtype=self._dtype, needs_gradient=needs_gradient)

    def _classes(self) -> int:
        scores = next(layer.inputs[0] for layer in self._graph.layers if layer.op == LOSS)
        return self._graph.shape(scores)[0]

    def _labels_input(self) -> Any:
        return C.input_variable(self._classes(), dtype=self._dtype, is_sparse=True)

    def _one_hot(self) -> Any:
        return C.Value.one_hot(self._job.labels.tolist(), self._classes(), dtype=self._dtype)

    def _feed(self) -> Dict[Any, Any]:
        """Return the batch in CNTK's memory, or arrays that CNTK copies."""
        if self._job.request["input"] == "resident":
            return self._resident
        return {self._samples: self._host, self._labels: self._one_hot()}

    def _make_learner(self) -> Any:
        """Make the learner with rates per sample: CNTK applies these unchanged to the sum over the batch, which here is
        the mean."""
        kind, parameters = self._job.request["optimizer"], list(self._arrays.parameters.values())
        if kind == "adam":
            rate = C.learning_parameter_schedule_per_sample(ADAM_LEARNING_RATE)
            decays = [C.momentum_schedule(decay, minibatch_size=self._batch_size) for decay in (0.9, 0.999)]
            return C.adam(parameters, rate, decays[0], variance_momentum=decays[1])
        rate = C.learning_parameter_schedule_per_sample(LEARNING_RATE)
        if kind == "sgd":
            return C.sgd(parameters, rate)
        momentum = C.momentum_schedule(MOMENTUM, minibatch_size=self._batch_size)
        return C.momentum_sgd(parameters, rate, momentum, unit_gain=False)

    def step(self, program: str) -> Callable[[], None]:
        if program not in self._programs:
            makers = {"forward": self._forward_step, "gradient": self._gradient_step, "train": self._train_step}
            self._programs[program] = makers[program]()
        return self._programs[program]

    def _forward_step(self) -> Callable[[], None]:
        forward, feed, output = self._loss.forward, self._feed, self._loss.output
        # CNTK runs in training mode only if arrays are saved for a backward pass.
        saved = {output} if self._training else None

        def step() -> None:
            _, outputs = forward(feed(), [output], saved, as_numpy=False)
            self._losses = outputs[output]

        return step

    def _gradient_step(self) -> Callable[[], None]:
        gradients, feed, output, wanted = self._loss.grad, self._feed, self._loss.output, self._wanted
        several = len(wanted) > 1  # of one CNTK gives the bare value

        def step() -> None:
            found, self._losses = gradients(feed(), wrt=wanted, outputs=[output], as_numpy=False)
            self._gradients = found if several else {wanted[0]: found}

        return step

    def _train_step(self) -> Callable[[], None]:
        trainer = C.Trainer(None, (self._loss,), [self._make_learner()])
        train, feed = trainer.train_minibatch, self._feed

        def step() -> None:
            train(feed())
            self._losses = trainer

        return step

    def observe(self) -> Dict[str, Dict[str, Any]]:
        set_to = {"device": "cpu", "compile": "graph"}
        observed = {
            "framework": "cntk@" + str(C.__version__),
            "precision": "fp64" if self._loss.dtype == np.float64 else "fp32",
            "threads": int(C.cntk_py.get_max_num_cputhreads()),
        }
        return self._effective(set_to, observed)

    def loss(self) -> float:
        if isinstance(self._losses, C.Trainer):
            return float(self._losses.previous_minibatch_loss_average * self._batch_size)
        return float(np.sum(_array(self._losses)))

    def arrays(self, kind: str) -> Dict[str, Any]:
        if kind == "buffers":
            return {"%s/%s" % key: buffer.value for key, buffer in self._arrays.buffers.items()}
        found: Dict[str, Any] = {}
        for key, parameter in self._arrays.parameters.items():
            if kind == "parameters":
                found["%s/%s" % key] = self._arrays.as_the_graph_has_it(key, parameter.value)
            elif parameter in self._gradients:
                found["%s/%s" % key] = self._arrays.as_the_graph_has_it(key, _array(self._gradients[parameter]))
        return found

    def layer(self, name: str, inputs: Dict[str, Any], upstream: Optional[Any]) -> LayerResult:
        layer = self._graph.by_name[name]
        function, given, own_arrays, feed = self._single_function(layer, layer.sources, True)
        feed.update({given[source]: array.astype(self._dtype) for source, array in inputs.items()})
        output = function.output
        if upstream is None:
            return LayerResult(_of_the_batch(layer, function.eval(feed)))
        state, outputs = function.forward(feed, [output], {output})
        wanted = set(given.values()) | set(own_arrays.parameters.values())
        found = function.backward(state, {output: self._of_each_sample(upstream, output)}, wanted)
        return LayerResult(
            _of_the_batch(layer, outputs[output]),
            inputs={source: np.asarray(found[variable]) for source, variable in given.items()},
            parameters={
                key[1]: own_arrays.as_the_graph_has_it(key, np.asarray(found[parameter]))
                for key, parameter in own_arrays.parameters.items()
            },
            buffers={key[1]: buffer.value for key, buffer in own_arrays.buffers.items()},
        )

    def _single_function(
        self, layer: WireLayer, sources: Sequence[str], trained: bool
    ) -> Tuple[Any, Dict[str, Any], Arrays, Dict[Any, Any]]:
        """Return the layer as a function, with gradients of those inputs, and of its weights if `trained`; its inputs
        by source, its weights, and labels if it takes them."""
        own_arrays, lowering = self._lowered([layer], trained)
        given = {source: self._input(self._graph.shape(source), source in sources) for source in layer.sources}
        arguments, feed = [given[source] for source in layer.inputs], {}
        if layer.op == LOSS:
            arguments.append(self._labels_input())
            feed[arguments[-1]] = self._one_hot()
        return lowering.lower(layer, *arguments), given, own_arrays, feed

    def _of_each_sample(self, upstream: Any, output: Any) -> Any:
        shape = (self._batch_size,) + tuple(output.shape)
        return np.ascontiguousarray(np.broadcast_to(np.asarray(upstream, dtype=self._dtype), shape))

    def isolated_layer(self, name: str) -> IsolatedLayer:
        """Return the programs. Backward includes a forward pass, which CNTK requires each time. CNTK copies the
        arguments of a function: the inputs in forward, the gradient of the output in backward. So every program here
        copies, even where a step gets the array from the layer before."""
        isolation = Isolation(self._graph, name, self._job.request, self._batch_size)

        def ready(sources: Sequence[str], trained: bool) -> Tuple[Any, Dict[Any, Any], Any, Set[Any]]:
            function, given, own_arrays, feed = self._single_function(isolation.layer, sources, trained)
            arrays = isolation.inputs()
            feed.update({given[source]: C.Value(batch=arrays[source].astype(self._dtype)) for source in given})
            wanted = {given[source] for source in sources} | set(own_arrays.parameters.values() if trained else ())
            return function, feed, function.output, wanted

        def forward() -> Program:
            function, feed, output, _ = ready(isolation.sources if isolation.training else [], isolation.training)
            call, saved = function.forward, {output} if isolation.training else None

            def run() -> None:
                call(feed, [output], saved, as_numpy=False)

            return run

        def backward(sources: Sequence[str], trained: bool) -> Program:
            function, feed, output, wanted = ready(sources, trained)
            there, back, saved = function.forward, function.backward, {output}
            root = {output: C.Value(batch=self._of_each_sample(isolation.upstream(), output))}

            def run() -> None:
                state, _ = there(feed, [output], saved, as_numpy=False)
                back(state, root, wanted, as_numpy=False)

            return run

        programs = isolation.programs(forward, backward, with_forward=True)
        return IsolatedLayer(programs, self, beside="a copy of what the layer is given")

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError) or "bad_alloc" in str(error)


def _of_the_batch(layer: WireLayer, values: Any) -> Any:
    return np.sum(values) if layer.op == LOSS else np.asarray(values)


def _array(value: Any) -> Any:
    """Copy an array from CNTK's own memory."""
    return value.asarray()


def _time_constant(share: float, samples: int) -> float:
    """Return the time constant that gives a new batch this share in the running statistics: 1 - exp(-samples /
    constant)."""
    if share in (0, 1):
        return 0.0 if share else float("inf")
    return float(-samples / np.log1p(-share))


def _spread(weight: Any, shape: Sequence[int], dilation: Sequence[int]) -> Any:
    """Return the kernel with zeros between its values: CNTK has no dilated convolution on CPUs."""
    maps, channels, height, width = shape
    (down, across), nothing = dilation, (0, 0)
    parted = C.reshape(weight, (maps, channels, height, 1, width, 1))
    wide = C.pad(parted, [nothing, nothing, nothing, (0, down - 1), nothing, (0, across - 1)])
    whole = C.reshape(wide, (maps, channels, height * down, width * across))
    return C.slice(whole, [2, 3], [0, 0], [(height - 1) * down + 1, (width - 1) * across + 1])


def _pads_automatically(layer: WireLayer, source: Sequence[int], kernel: Sequence[int]) -> List[bool]:
    """Return for height and width whether CNTK's automatic padding equals the graph's.

    CNTK places a window at every stride-th pixel, with equal distances to the first and the last pixel; no window is
    wider than the image.
    """
    found: List[bool] = []
    for side in (0, 1):
        before, size, stride = layer.has["pad"][2 * side], source[1 + side], layer.has["stride"][side]
        count = (size - 1) // stride + 1
        spare = size - ((count - 1) * stride + 1)
        starts_right = (kernel[side] - 1) // 2 - spare // 2 == before
        found.append(starts_right and count == layer.output[1 + side] and kernel[side] <= size)
    return found


def _rounds_up_automatically(layer: WireLayer, source: Sequence[int]) -> bool:
    return layer.has["ceil_mode"] and not any(layer.has["pad"]) and not layer.ends_outside(source)


def _room(layer: WireLayer, source: Sequence[int]) -> Tuple[int, ...]:
    """Return the padding with which exactly the graph's windows fit."""
    kernel, stride, pad = layer.has["kernel"], layer.has["stride"], layer.has["pad"]
    reach = [(layer.output[1 + side] - 1) * stride[side] + kernel[side] for side in (0, 1)]
    return pad[0], max(0, reach[0] - pad[0] - source[1]), pad[2], max(0, reach[1] - pad[2] - source[2])


def _without(pad: Sequence[int], automatic: Sequence[bool]) -> Tuple[int, ...]:
    """Return the padding that must be added explicitly."""
    top, bottom, left, right = pad
    height, width = automatic
    return ((0, 0) if height else (top, bottom)) + ((0, 0) if width else (left, right))


def _padded(x: Any, pad: Sequence[int], value: float) -> Any:
    if not any(pad):
        return x
    top, bottom, left, right = pad
    return C.pad(x, [(0, 0), (top, bottom), (left, right)], constant_value=value)


def make_backend() -> CntkBackend:
    return CntkBackend()
