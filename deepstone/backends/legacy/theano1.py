"""Theano on the CPU: a step is one function that it compiles to C++. In the syntax of Python 3.6.

Convolutions are im2col and a matrix product (CorrMM) that a BLAS does. In 1.0, with more than one thread, OpenMP shares
the images among them. 0.8 knows neither groups nor dilation, and its convolutions pad both ends alike: there they are
built from others, as its users did.
"""

import ctypes
import os
import sys
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as np
import theano
import theano.tensor as T
from theano.sandbox.rng_mrg import MRG_RandomStreams
from theano.tensor.nnet import bn
from theano.tensor.signal.pool import pool_2d

from deepstone.backends.base import (
    ADAM_LEARNING_RATE,
    LEARNING_RATE,
    MOMENTUM,
    IsolatedLayer,
    Job,
    LayerResult,
    Missing,
)
from deepstone.backends.cpu_backend import CpuBackend
from deepstone.backends.isolated import Isolation, Program
from deepstone.backends.wire_graph import LOSS, WireGraph, WireLayer, refuse_other_ops
from deepstone.setups.honoured import HONOURED

NAME = "theano " + str(theano.__version__)

_IS_OLD = int(theano.__version__.split(".")[0]) < 1  # without the functions that came between 0.8 and 1.0

_DEEPEST = 20000  # Theano follows a network by recursion, and Python's own limit ends that in one of fifty layers

_Arrays = Dict[str, Any]
_PER_CHANNEL = ("x", 0, "x", "x")  # a vector as it is added to images


class Arrays:
    """The parameters and the running statistics of each layer, as shared variables."""

    def __init__(self, layers: Iterable[WireLayer], weights: Dict[str, Dict[str, Any]], dtype: Any) -> None:
        self.parameters: Dict[Tuple[str, str], Any] = {}
        self.buffers: Dict[Tuple[str, str], Any] = {}
        for layer in layers:
            for name in layer.parameters:
                array = np.array(weights[layer.name][name], dtype=dtype)
                self.parameters[layer.name, name] = theano.shared(array, borrow=True)
            for name, array in initial_buffers(layer, dtype).items():
                self.buffers[layer.name, name] = theano.shared(array, borrow=True)

    def of(self, layer: WireLayer) -> _Arrays:
        own = {name: self.parameters[layer.name, name] for name in layer.parameters}
        own.update({name: self.buffers[layer.name, name] for name in layer.buffers})
        return own


class Lowering:
    """Lowers layers to expressions. `own` are the layer's arrays by name, shared variables or not."""

    def __init__(self, graph: WireGraph, batch: int, dtype: Any, training: bool, dropout_seed: Optional[int]) -> None:
        self._graph = graph
        self._batch = batch
        self._dtype = dtype
        self._training = training
        self._random = None if dropout_seed is None else MRG_RandomStreams(dropout_seed)
        self.renewed: Dict[Tuple[str, str], Any] = {}  # running statistics as they are after the step
        self._table: Dict[str, Callable[..., Any]] = {
            "conv": self._conv,
            "dense": self._dense,
            "batch_norm": self._batch_norm,
            "relu": lambda layer, own, x: T.switch(x > 0, x, 0),  # nnet.relu has a gradient of 1/2 at zero
            "max_pool": self._max_pool,
            "average_pool": self._average_pool,
            "global_pool": lambda layer, own, x: x.mean(axis=(2, 3), keepdims=True),
            "lrn": self._lrn,
            "dropout": self._drop,
            "add": lambda layer, own, *xs: T.add(*xs),
            "concat": lambda layer, own, *xs: T.concatenate(xs, axis=1),
            "flatten": lambda layer, own, x: x.flatten(2),
            LOSS: self._loss,
        }

    @property
    def ops(self) -> List[str]:
        return ["input"] + list(self._table)

    def lower(self, layer: WireLayer, own: _Arrays, inputs: Sequence[Any]) -> Any:
        return self._table[layer.op](layer, own, *inputs)

    def _conv(self, layer: WireLayer, own: _Arrays, x: Any) -> Any:
        y = self._old_convolution(layer, own, x) if _IS_OLD else self._convolution(layer, own, x)
        return y + own["bias"].dimshuffle(*_PER_CHANNEL) if layer.has["bias"] else y

    def _convolution(self, layer: WireLayer, own: _Arrays, x: Any) -> Any:
        has = layer.has
        top, bottom, left, right = has["pad"]
        return T.nnet.conv2d(
            x,
            own["weight"],
            input_shape=(self._batch,) + self._graph.shape(layer.inputs[0]),
            filter_shape=layer.parameters["weight"],
            border_mode=(top, left) if layer.pad_is_even() else ((top, bottom), (left, right)),
            subsample=has["stride"],
            filter_flip=False,
            filter_dilation=has["dilation"],
            num_groups=has["groups"],
        )

    def _old_convolution(self, layer: WireLayer, own: _Arrays, x: Any) -> Any:
        has, weight = layer.has, own["weight"]
        border = (has["pad"][0], has["pad"][2])
        if not layer.pad_is_even():
            x, border = self._padded(layer, x, has["pad"], 0.0), (0, 0)
        if has["dilation"] != (1, 1):
            weight = self._dilated(layer, weight)
        channels, ins = (side // has["groups"] for side in (has["channels"], self._graph.shape(layer.inputs[0])[0]))
        parts = [
            T.nnet.conv2d(
                x[:, group * ins : (group + 1) * ins] if has["groups"] > 1 else x,
                weight[group * channels : (group + 1) * channels] if has["groups"] > 1 else weight,
                border_mode=border,
                subsample=has["stride"],
                filter_flip=False,
            )
            for group in range(has["groups"])
        ]
        return parts[0] if len(parts) == 1 else T.concatenate(parts, axis=1)

    def _dilated(self, layer: WireLayer, weight: Any) -> Any:
        """Return the kernel with zeros between its values."""
        filters, channels, height, width = layer.parameters["weight"]
        down, across = layer.has["dilation"]
        around = T.alloc(self._dtype(0), filters, channels, (height - 1) * down + 1, (width - 1) * across + 1)
        return T.set_subtensor(around[:, :, ::down, ::across], weight)

    def _dense(self, layer: WireLayer, own: _Arrays, x: Any) -> Any:
        y = T.dot(x, own["weight"].T)
        return y + own["bias"] if layer.has["bias"] else y

    def _batch_norm(self, layer: WireLayer, own: _Arrays, x: Any) -> Any:
        """Normalize over the batch by the operation behind bn.batch_normalization_train, whose check refuses an epsilon
        of 1e-5 because of cuDNN. 0.8 has neither."""
        weight, bias, mean, var = (
            own[name].dimshuffle(*_PER_CHANNEL) for name in ("weight", "bias", "running_mean", "running_var")
        )
        epsilon, share = self._dtype(layer.has["epsilon"]), self._dtype(layer.has["momentum"])
        if not self._training:
            return (x - mean) * (weight / T.sqrt(var + epsilon)) + bias
        if _IS_OLD:
            of_batch, biased = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
            y = (x - of_batch) * (weight * T.inv(T.sqrt(biased + epsilon))) + bias
            values = self._batch * layer.output[1] * layer.output[2]
            old_share = self._dtype(1 - layer.has["momentum"])
            new_mean = old_share * mean + share * of_batch
            new_var = old_share * var + share * self._dtype(values / (values - 1.0)) * biased
        else:
            normalization = bn.AbstractBatchNormTrain(axes=(0, 2, 3))
            y, _, _, new_mean, new_var = normalization(x, weight, bias, epsilon, share, mean, var)
        self.renewed[layer.name, "running_mean"] = new_mean.dimshuffle(1)
        self.renewed[layer.name, "running_var"] = new_var.dimshuffle(1)
        return y

    def _max_pool(self, layer: WireLayer, own: _Arrays, x: Any) -> Any:
        has, pad = layer.has, (layer.has["pad"][0], layer.has["pad"][2])
        if self._fits_as_is(layer):
            y = pool_2d(x, has["kernel"], not has["ceil_mode"], has["stride"], pad, "max")
        else:
            x = self._padded(layer, x, self._room(layer), -np.inf)
            y = pool_2d(x, has["kernel"], True, has["stride"], (0, 0), "max")
        return _shared_among_equals(x, y) if self._training and self._repeats_values(layer.inputs[0]) else y

    def _repeats_values(self, name: str) -> bool:
        """Whether neighbours may be equal and not zero: overlapping windows of a max pool have the same largest value.
        Equal zeros after a relu are harmless, because its gradient is zero there."""
        layer = self._graph.by_name[name]
        hands_on = layer.op in ("concat", "relu", "dropout")
        return layer.op == "max_pool" or (hands_on and any(self._repeats_values(source) for source in layer.inputs))

    def _average_pool(self, layer: WireLayer, own: _Arrays, x: Any) -> Any:
        """Pool by Theano's own averages, or by sums divided by counts, because its mode that excludes the padding has
        no gradient."""
        has, pad = layer.has, (layer.has["pad"][0], layer.has["pad"][2])
        fits = self._fits_as_is(layer)
        if fits and (has["count_pad"] or not any(pad)):
            return pool_2d(x, has["kernel"], not has["ceil_mode"], has["stride"], pad, "average_inc_pad")
        if not fits:
            x, pad = self._padded(layer, x, self._room(layer), 0.0), (0, 0)
        rows, columns = layer.places_that_count(self._graph.shape(layer.inputs[0]))
        share = (1.0 / np.outer(rows, columns)).astype(self._dtype)
        return pool_2d(x, has["kernel"], True, has["stride"], pad, "sum") * share[None, None]

    def _fits_as_is(self, layer: WireLayer) -> bool:
        """Whether the graph's pool equals Theano's, which pads both ends of a dimension equally and rounds up only
        without padding."""
        return layer.pad_is_even() and not (layer.has["ceil_mode"] and any(layer.has["pad"]))

    def _room(self, layer: WireLayer) -> Tuple[int, int, int, int]:
        """Return the padding with which exactly the graph's windows fit."""
        source, has = self._graph.shape(layer.inputs[0]), layer.has
        pad = has["pad"]
        reach = [(layer.output[1 + side] - 1) * has["stride"][side] + has["kernel"][side] for side in (0, 1)]
        return pad[0], max(0, reach[0] - pad[0] - source[1]), pad[2], max(0, reach[1] - pad[2] - source[2])

    def _padded(self, layer: WireLayer, x: Any, pad: Sequence[int], value: float) -> Any:
        channels, height, width = self._graph.shape(layer.inputs[0])
        top, bottom, left, right = pad
        frame = (self._batch, channels, top + height + bottom, left + width + right)
        around = T.alloc(self._dtype(value), *frame)
        return T.set_subtensor(around[:, :, top : top + height, left : left + width], x)

    def _lrn(self, layer: WireLayer, own: _Arrays, x: Any) -> Any:
        size, alpha, beta, k = (layer.has[name] for name in ("size", "alpha", "beta", "k"))
        half, squares = size // 2, T.sqr(x)
        channels, height, width = layer.output
        if layer.has["within_channel"]:
            sums = pool_2d(squares, (size, size), True, (1, 1), (half, half), "sum")
            return x / (k + alpha / size**2 * sums) ** beta
        around = T.alloc(self._dtype(0), self._batch, channels + 2 * half, height, width)
        padded = T.set_subtensor(around[:, half : half + channels], squares)
        sums = T.add(*[padded[:, first : first + channels] for first in range(size)])
        return x / (k + alpha / size * sums) ** beta

    def _drop(self, layer: WireLayer, own: _Arrays, x: Any) -> Any:
        if self._random is None:
            return x
        passed = 1 - layer.has["rate"]
        mask = self._random.binomial((self._batch,) + layer.output, p=passed, dtype=x.dtype)
        return x * mask / passed

    def _loss(self, layer: WireLayer, own: _Arrays, x: Any, labels: Any) -> Any:
        return T.nnet.categorical_crossentropy(T.nnet.softmax(x), labels).mean() * layer.has["weight"]


class TheanoBackend(CpuBackend):
    _last: List[Any]

    def versions(self) -> Dict[str, Any]:
        return {
            "name": "theano",
            "version": theano.__version__,
            "numpy": np.__version__,
            "compiler": theano.config.cxx,
            "flags": theano.config.gcc.cxxflags,
            "blas": theano.config.blas.ldflags,
        }

    def build(self, job: Job) -> None:
        request = self._begin(job, HONOURED["theano"], NAME)
        graph = self._graph
        if not theano.config.cxx:
            raise Missing("theano compiles what it runs, and there is no g++; on Debian: apt install g++")
        self._dtype = np.float64 if request["precision"] == "fp64" else np.float32
        sys.setrecursionlimit(_DEEPEST)
        theano.config.floatX = np.dtype(self._dtype).name  # which is what numbers in expressions become
        theano.config.openmp = self._threads() > 1
        self._lowering = self._lowered()
        refuse_other_ops(graph, self._lowering.ops, NAME)
        self._arrays = Arrays(graph.layers, job.weights, self._dtype)
        self._host = (job.samples.astype(self._dtype), job.labels.astype(np.int32))
        self._batch: List[Any] = [T.tensor4(), T.ivector()]
        if request["input"] == "resident":
            self._batch = [theano.shared(array) for array in self._host]
        self._loss = self._network()
        self._wanted = list(self._arrays.parameters.values())
        if request["input_grad"] == "on":
            self._wanted.append(self._batch[0])
        self._gradients: List[Any] = T.grad(self._loss, self._wanted) if self._training else []
        self._programs: Dict[str, Any] = {}
        self._isolated: Dict[Any, Any] = {}  # compiled layers

    def _threads(self) -> int:
        """Return the requested threads, or the libraries' own choice."""
        threads = self._job.request["threads"]
        return len(os.sched_getaffinity(0)) if threads == "auto" else int(threads)

    def _lowered(self) -> Lowering:
        request = self._job.request
        seed = request["seed"] + 1 if request["dropout"] == "on" and self._training else None  # 0 is not taken
        return Lowering(self._graph, len(self._job.labels), self._dtype, self._training, seed)

    def _network(self) -> Any:
        """Return the sum of all losses."""
        samples, labels = self._batch
        outputs: Dict[str, Any] = {self._graph.input.name: samples}
        losses: List[Any] = []
        for layer in self._graph.layers:
            inputs, own = [outputs[name] for name in layer.inputs], self._arrays.of(layer)
            if layer.op == LOSS:
                losses.append(self._lowering.lower(layer, own, inputs + [labels]))
            elif layer.op != "input":
                outputs[layer.name] = self._lowering.lower(layer, own, inputs)
        return losses[0] if len(losses) == 1 else T.add(*losses)

    def _updates(self) -> List[Tuple[Any, Any]]:
        """Return the update as expressions, as users of Theano wrote it."""
        kind, updates = self._job.request["optimizer"], []
        pairs = list(zip(self._arrays.parameters.values(), self._gradients))
        if kind == "adam":
            return _adam(pairs)
        for weight, gradient in pairs:
            change = gradient
            if kind == "momentum":
                velocity = _zeros_like(weight)
                change = MOMENTUM * velocity + gradient
                updates.append((velocity, change))
            updates.append((weight, weight - LEARNING_RATE * change))
        return updates

    def _compiled(self, program: str) -> Any:
        if program not in self._programs:
            updates = _renewals(self._arrays, self._lowering)
            results = [self._loss]
            if program == "gradient":
                results += self._gradients
            if program == "train":
                updates += self._updates()
                results += self._gradients[len(self._arrays.parameters) :]  # that of the image, if it is wanted
            inputs = [] if self._job.request["input"] == "resident" else self._batch
            self._programs[program] = theano.function(inputs, _borrowed(results), updates=updates)
        return self._programs[program]

    def step(self, program: str) -> Callable[[], None]:
        run = self._compiled(program)
        given = () if self._job.request["input"] == "resident" else self._host

        def step() -> None:
            self._last = run(*given)

        return step

    def observe(self) -> Dict[str, Dict[str, Any]]:
        set_to = {
            "compile": "default",
            "threads": self._threads(),
        }
        observed: Dict[str, Any] = {
            "framework": "theano@" + str(theano.__version__),
            "device": str(theano.config.device),
            "precision": "fp64" if self._last[0].dtype == np.float64 else "fp32",
        }
        blas = _blas_in_use()
        if blas is not None:
            observed["threads"] = int(ctypes.CDLL(blas).openblas_get_num_threads())
        return self._effective(set_to, observed)

    def details(self) -> Dict[str, Any]:
        """Return Theano's operations of the step, by name, and the library of their products."""
        counts: Dict[str, int] = {}
        for node in self._compiled(self.phase()).maker.fgraph.apply_nodes:
            name = type(node.op).__name__
            counts[name] = counts.get(name, 0) + 1
        return {
            "theano_operations": {name: counts[name] for name in sorted(counts)},
            "openmp": "on" if theano.config.openmp else "off",
            "blas": _blas_in_use() or {"absent": "no OpenBLAS is loaded"},
        }

    def loss(self) -> float:
        return float(self._last[0])

    def arrays(self, kind: str) -> Dict[str, Any]:
        own_arrays = self._arrays.buffers if kind == "buffers" else self._arrays.parameters
        if kind != "gradients":
            return {"%s/%s" % key: variable.get_value() for key, variable in own_arrays.items()}
        if self.phase() == "train":  # they went into the update
            return {}
        return {"%s/%s" % key: np.array(gradient) for key, gradient in zip(own_arrays, self._last[1:])}

    def layer(self, name: str, inputs: Dict[str, Any], upstream: Optional[Any]) -> LayerResult:
        layer = self._graph.by_name[name]
        arrays = {key: np.asarray(array, self._dtype) for key, array in self._job.weights.get(name, {}).items()}
        arrays.update(initial_buffers(layer, self._dtype))
        given = [np.asarray(inputs[source], self._dtype) for source in layer.sources] + list(arrays.values())
        given += [self._host[1]] if layer.op == LOSS else []
        given += [np.asarray(upstream, self._dtype)] if upstream is not None else []
        found = list(self._isolated_function(layer, list(arrays), upstream is not None)(*given))
        take = iter(found[1:])
        trained = upstream is not None
        return LayerResult(
            found[0],
            inputs={source: next(take) for source in layer.sources} if trained else {},
            parameters={own: next(take) for own in layer.parameters} if trained else {},
            buffers={own: next(take) for own in layer.buffers} if trained else {},
        )

    def _isolated_function(self, layer: WireLayer, names: Sequence[str], backward: bool) -> Any:
        """Return the layer as a function of its inputs, its arrays, the labels of a loss and the gradient of its
        output."""
        pattern = tuple(layer.inputs.index(source) for source in layer.inputs)  # `add` may take one twice
        shapes = tuple(self._graph.shape(source) for source in layer.inputs)
        key = (layer.op, repr(sorted(layer.has.items())), shapes, pattern, backward)
        if key in self._isolated:
            return self._isolated[key]
        lowering = self._lowered()
        sources = {source: _variable(1 + len(self._graph.shape(source))) for source in layer.sources}
        own = {name: _variable(len(layer.parameters.get(name, "1"))) for name in names}
        labels = [T.ivector()] if layer.op == LOSS else []
        output = lowering.lower(layer, own, [sources[source] for source in layer.inputs] + labels)
        arguments, results = list(sources.values()) + list(own.values()) + labels, [output]
        if backward:
            upstream = output.type()
            arguments.append(upstream)
            wanted = list(sources.values()) + [own[name] for name in layer.parameters]
            results += T.grad(None, wanted, known_grads={output: upstream})
            results += [lowering.renewed[layer.name, name] for name in layer.buffers]
        self._isolated[key] = theano.function(arguments, results, on_unused_input="ignore")
        return self._isolated[key]

    def isolated_layer(self, name: str) -> IsolatedLayer:
        """Return the programs. Backward includes a forward pass, because one function must keep its values. If that
        makes forward longer, because saved values cannot be fused away, the difference counts as backward."""
        isolation = Isolation(self._graph, name, self._job.request, len(self._job.labels))
        programs = isolation.programs(
            lambda: self._isolated_program(isolation),
            lambda *wanted: self._isolated_program(isolation, *wanted),
            with_forward=True,
        )
        return IsolatedLayer(programs, self)

    def _isolated_program(self, isolation: Isolation, sources: Sequence[str] = (), trained: bool = False) -> Program:
        layer, lowering = isolation.layer, self._lowered()
        own_arrays = Arrays([layer], self._job.weights, self._dtype)
        given = {source: theano.shared(array.astype(self._dtype)) for source, array in isolation.inputs().items()}
        labels = [theano.shared(self._host[1])] if layer.op == LOSS else []
        output = lowering.lower(layer, own_arrays.of(layer), [given[source] for source in layer.inputs] + labels)
        wanted = [given[source] for source in sources] + (list(own_arrays.parameters.values()) if trained else [])
        results = [output]
        if wanted:
            upstream = theano.shared(isolation.upstream().astype(self._dtype), broadcastable=output.broadcastable)
            results += T.grad(None, wanted, known_grads={output: upstream})
        program: Program = theano.function([], _borrowed(results), updates=_renewals(own_arrays, lowering))
        return program

    def is_out_of_memory(self, error: BaseException) -> bool:
        of_a_convolution = isinstance(error, RuntimeError) and "failed to allocate" in str(error)
        return of_a_convolution or super(TheanoBackend, self).is_out_of_memory(error)


def initial_buffers(layer: WireLayer, dtype: Any) -> Dict[str, Any]:
    starts = {"running_mean": np.zeros, "running_var": np.ones}
    return {name: starts[name](layer.parameters["weight"], dtype) for name in layer.buffers}


def _shared_among_equals(x: Any, y: Any) -> Any:
    """Return a max pool's output whose gradient is shared among the equal largest values of a window. Theano gives all
    of it to each of them; their count is the derivative of its result."""
    given = T.zeros_like(y)
    count = T.grad(T.grad(None, x, known_grads={y: given}).sum(), given)
    value, count = theano.gradient.disconnected_grad(y), theano.gradient.disconnected_grad(count)
    return value + (y - value) / count


def _adam(pairs: Sequence[Tuple[Any, Any]]) -> List[Tuple[Any, Any]]:
    first_decay, second_decay, epsilon = 0.9, 0.999, 1e-8
    steps = theano.shared(np.zeros((), theano.config.floatX))
    done = steps + 1
    updates = [(steps, done)]
    for weight, gradient in pairs:
        mean, square = _zeros_like(weight), _zeros_like(weight)
        new_mean = first_decay * mean + (1 - first_decay) * gradient
        new_square = second_decay * square + (1 - second_decay) * T.sqr(gradient)
        scale = T.sqrt(new_square / (1 - second_decay**done)) + epsilon
        change = ADAM_LEARNING_RATE * (new_mean / (1 - first_decay**done)) / scale
        updates += [(mean, new_mean), (square, new_square), (weight, weight - change)]
    return updates


def _variable(dimensions: int) -> Any:
    return T.TensorType(theano.config.floatX, (False,) * dimensions)()


def _borrowed(results: Sequence[Any]) -> List[Any]:
    return [theano.Out(result, borrow=True) for result in results]


def _renewals(arrays: Arrays, lowering: Lowering) -> List[Tuple[Any, Any]]:
    return [(arrays.buffers[key], new) for key, new in lowering.renewed.items()]


def _zeros_like(variable: Any) -> Any:
    return theano.shared(np.zeros_like(variable.get_value(borrow=True)), borrow=True)


def _blas_in_use() -> Optional[str]:
    """Return the OpenBLAS that compiled code is linked with. NumPy's wheel contains another one, with other names for
    everything."""
    named = [part[3:] for part in theano.config.blas.ldflags.split() if part.startswith("-l:")]
    with open("/proc/self/maps") as maps:
        loaded = {line.split()[-1] for line in maps if "openblas" in line}
    for path in sorted(loaded):
        if os.path.basename(path) in named:
            return path
    return None


def make_backend() -> TheanoBackend:
    return TheanoBackend()
