"""MXNet 1.x on the CPU: a symbol bound once, as in its Module interface. In the syntax of Python 3.6.

Calls enqueue work in MXNet's engine and return; its own thread runs it. So timestamps wait for the engine: this costs
only the time in which Python enqueues the next step, about 0.1 ms.
"""

import ctypes
import os
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np

from deepstone.backends import base
from deepstone.backends.cpu_backend import PhasedCpuBackend, TableLowering
from deepstone.backends.effective import listed, precisions
from deepstone.backends.isolated import Isolation, Program
from deepstone.backends.wire_graph import LOSS, WireGraph, WireLayer, lowered_outputs, refuse_other_ops
from deepstone.setups.honoured import HONOURED

NAME = "mxnet " + str(mx.__version__)


_LABELS = "labels of the batch"
_LOWEST = float(np.finfo(np.float32).min)  # MXNet pads with a finite number only; every window also contains a pixel


class WaitingTimestamps(base.Timestamps):
    def set(self, position: int) -> None:
        before = self._clock()
        mx.nd.waitall()
        self._times[position] = self._clock()
        self.waited_s += self._times[position] - before


class Lowering(TableLowering):
    """Lowers layers to symbols. Arrays that a symbol reads are variables named `layer/array`."""

    def __init__(self, graph: WireGraph, dtype: Any, training: bool, dropout: bool) -> None:
        super(Lowering, self).__init__(graph, None, dtype, training, dropout)
        self.constants: Dict[str, Any] = {}  # by the name of their variable

    def _short(self) -> Dict[str, Callable[..., Any]]:
        return {
            "relu": lambda layer, x: mx.sym.Activation(x, act_type="relu"),
            "global_pool": lambda layer, x: mx.sym.Pooling(x, kernel=(1, 1), global_pool=True, pool_type="avg"),
            "add": lambda layer, *xs: mx.sym.add_n(*xs),
            "concat": lambda layer, *xs: mx.sym.concat(*xs, dim=1),
            "flatten": lambda layer, x: mx.sym.Flatten(x),
        }

    def _own(self, layer: WireLayer, name: str) -> Any:
        return mx.sym.var(_key(layer.name, name))

    def _given(self, layer: WireLayer) -> Dict[str, Any]:
        arrays = {name: self._own(layer, name) for name in layer.parameters}
        return dict(arrays, no_bias="bias" not in arrays)

    def _conv(self, layer: WireLayer, x: Any) -> Any:
        has = layer.has
        pad = (has["pad"][0], has["pad"][2])
        if not layer.pad_is_even():
            x, pad = _padded(x, has["pad"], 0.0), (0, 0)
        return mx.sym.Convolution(
            x,
            kernel=has["kernel"],
            stride=has["stride"],
            dilate=has["dilation"],
            pad=pad,
            num_filter=has["channels"],
            num_group=has["groups"],
            **self._given(layer),
        )

    def _dense(self, layer: WireLayer, x: Any) -> Any:
        return mx.sym.FullyConnected(x, num_hidden=layer.has["features"], flatten=False, **self._given(layer))

    def _batch_norm(self, layer: WireLayer, x: Any) -> Any:
        return mx.sym.BatchNorm(
            x,
            gamma=self._own(layer, "weight"),
            beta=self._own(layer, "bias"),
            moving_mean=self._own(layer, "running_mean"),
            moving_var=self._own(layer, "running_var"),
            eps=layer.has["epsilon"],
            momentum=1 - layer.has["momentum"],
            fix_gamma=False,
        )

    def _pool(self, layer: WireLayer, x: Any, pad: Tuple[int, int], **how: Any) -> Any:
        has = layer.has
        convention = "full" if has["ceil_mode"] else "valid"
        pooled = mx.sym.Pooling(
            x, kernel=has["kernel"], stride=has["stride"], pad=pad, pooling_convention=convention, **how
        )
        if not layer.ends_outside(self._graph.shape(layer.inputs[0])):
            return pooled
        return mx.sym.slice(pooled, begin=(None, None, 0, 0), end=(None, None, layer.output[1], layer.output[2]))

    def _max_pool(self, layer: WireLayer, x: Any) -> Any:
        pad = layer.has["pad"]
        if layer.pad_is_even():
            return self._pool(layer, x, (pad[0], pad[2]), pool_type="max")
        return self._pool(layer, _padded(x, pad, _LOWEST), (0, 0), pool_type="max")

    def _average_pool(self, layer: WireLayer, x: Any) -> Any:
        pad, counts = layer.has["pad"], layer.has["count_pad"]
        if layer.pad_is_even():
            return self._pool(layer, x, (pad[0], pad[2]), pool_type="avg", count_include_pad=counts)

        def means(of: Any) -> Any:  # over the part of each window that lies in the padded image
            return self._pool(layer, _padded(of, pad, 0.0), (0, 0), pool_type="avg", count_include_pad=True)

        if counts:
            return means(x)
        name, ones = _key(layer.name, "share"), mx.sym.var("ones")
        shape = (1, 1) + tuple(self._graph.shape(layer.inputs[0])[1:])
        given = {"ones": mx.nd.ones(shape, dtype=self._dtype)}
        self.constants[name] = means(ones).bind(mx.cpu(), given).forward()[0]  # of that part, what is image
        return mx.sym.broadcast_div(means(x), mx.sym.var(name))

    def _lrn(self, layer: WireLayer, x: Any) -> Any:
        size, alpha, beta, k = (layer.has[name] for name in ("size", "alpha", "beta", "k"))
        half, squares = size // 2, mx.sym.square(x)  # a window that leaves the image is divided by its whole size
        if layer.has["within_channel"]:
            means = mx.sym.Pooling(squares, kernel=(size, size), stride=(1, 1), pad=(half, half), pool_type="avg")
        elif self._dtype == np.float32:
            normed = mx.sym.LRN(x, nsize=size, alpha=alpha, beta=beta, knorm=k)
            # Its gradient is wrong where the upstream one lies in oneDNN's blocks of channels, as from a convolution or
            # a pool. A slice of everything hands it over in plain order; a reshape does so before a pool only.
            return mx.sym.slice(normed, begin=(None,) * 4, end=(None,) * 4) if self._training else normed
        else:  # MXNet's own knows float32 only; the mean over channels is that of a pool over the first of three sides
            solid = mx.sym.expand_dims(squares, axis=1)
            pooled = mx.sym.Pooling(solid, kernel=(size, 1, 1), stride=(1, 1, 1), pad=(half, 0, 0), pool_type="avg")
            means = mx.sym.squeeze(pooled, axis=1)
        return x * (means * alpha + k) ** -beta

    def _drop(self, layer: WireLayer, x: Any) -> Any:
        return mx.sym.Dropout(x, p=layer.has["rate"]) if self._dropout else mx.sym.identity(x)

    def _loss(self, layer: WireLayer, x: Any, labels: Any) -> Any:
        picked = mx.sym.pick(mx.sym.log_softmax(x, axis=-1), labels, axis=-1)
        return mx.sym.mean(picked) * -layer.has["weight"]


class MxnetBackend(PhasedCpuBackend):
    _executor: Any
    _outputs: Optional[Dict[str, Any]]  # of all layers that others read
    _update: Callable[[], None]

    def versions(self) -> Dict[str, Any]:
        enabled = [feature.name for feature in mx.runtime.feature_list() if feature.enabled]
        return {"name": "mxnet", "version": mx.__version__, "numpy": np.__version__, "build": " ".join(enabled)}

    def build(self, job: base.Job) -> None:
        request = self._begin(job, HONOURED["mxnet"], NAME)
        graph = self._graph
        mx.random.seed(request["seed"])
        self._dtype = np.float64 if request["precision"] == "fp64" else np.float32
        lowering = self._new_lowering()
        refuse_other_ops(graph, lowering.ops, NAME)
        given = {graph.input.name: mx.nd.array(job.samples, dtype=self._dtype), _LABELS: self._labels()}
        wanted = [graph.input.name] if self._training and request["input_grad"] == "on" else []
        _, losses = _symbols(graph, lowering)
        loss = mx.sym.make_loss(losses[0] if len(losses) == 1 else mx.sym.add_n(*losses))
        self._executor = self._bound(loss, lowering, graph.layers, given, wanted, self._training)
        self._samples = self._executor.arg_dict[graph.input.name]
        self._outputs = None
        self._steps_done = 0
        self._update = self._make_update() if request["phase"] == "train" else _nothing

    def _new_lowering(self) -> Lowering:
        return Lowering(self._graph, self._dtype, self._training, self._job.request["dropout"] == "on")

    def _labels(self) -> Any:
        return mx.nd.array(self._job.labels, dtype=self._dtype)

    def _bound(
        self,
        symbol: Any,
        lowering: Lowering,
        layers: Iterable[WireLayer],
        given: Dict[str, Any],
        wanted: Sequence[str],
        trained: bool,
    ) -> Any:
        """Bind the symbol to its arrays, with gradients of the `wanted` inputs, and of all parameters if `trained`."""
        arrays, with_gradient = dict(given), list(wanted)
        buffers: Dict[str, Any] = {}
        for layer in layers:
            for name in layer.parameters:
                own = self._job.weights[layer.name][name]
                arrays[_key(layer.name, name)] = mx.nd.array(own, dtype=self._dtype)
                if trained:
                    with_gradient.append(_key(layer.name, name))
            for name in layer.buffers:
                start = mx.nd.ones if name == "running_var" else mx.nd.zeros
                buffers[_key(layer.name, name)] = start(layer.parameters["weight"], dtype=self._dtype)
        arrays.update(lowering.constants)
        gradients = {name: mx.nd.zeros(arrays[name].shape, dtype=self._dtype) for name in with_gradient}
        needed = set(symbol.list_arguments())
        return symbol.bind(
            mx.cpu(),
            args={name: array for name, array in arrays.items() if name in needed},
            args_grad=gradients or None,
            grad_req={name: "write" if name in gradients else "null" for name in needed},
            aux_states=buffers,
        )

    def _make_update(self) -> Callable[[], None]:
        """Return the update by MXNet's own operators, one array after the other."""
        kind = self._job.request["optimizer"]
        momentum = base.MOMENTUM if kind == "momentum" else 0.0
        keys = [_key(layer.name, name) for layer in self._graph.layers for name in layer.parameters]
        pairs = [(self._executor.arg_dict[key], self._executor.grad_dict[key]) for key in keys]
        if kind != "adam" and self._dtype == np.float64:
            return _written_out(pairs, momentum)
        if kind == "adam":
            optimizer = mx.optimizer.Adam(learning_rate=base.ADAM_LEARNING_RATE)
        else:
            optimizer = mx.optimizer.SGD(learning_rate=base.LEARNING_RATE, momentum=momentum)
        states = [optimizer.create_state(number, weight) for number, (weight, _) in enumerate(pairs)]
        plan = [(number, weight, gradient, states[number]) for number, (weight, gradient) in enumerate(pairs)]
        update_one = optimizer.update

        def update() -> None:
            for number, weight, gradient, state in plan:
                update_one(number, weight, gradient, state)

        return update

    def step(self, program: str) -> Callable[[], None]:
        assert program == self.phase(), "mxnet times phases one by one, so it has one program"
        executor, update, training = self._executor, self._update, self._training
        fetch = self._fetch if self._job.request["input"] == "host" else None

        def step() -> None:
            if fetch is not None:
                fetch()
            executor.forward(is_train=training)
            if training:
                executor.backward()
                update()
                self._steps_done += 1

        return step

    def _fetch(self) -> None:
        self._samples[:] = self._job.samples

    def step_in_phases(self, set_timestamp: Callable[[int], None]) -> None:
        if self._job.request["input"] == "host":
            self._fetch()
        set_timestamp(0)
        self._executor.forward(is_train=self._training)
        set_timestamp(1)
        if self._training:
            self._executor.backward()
            self._steps_done += 1
            set_timestamp(2)
        if self.phase() == "train":
            self._update()
            set_timestamp(3)

    def synchronize(self) -> None:
        mx.nd.waitall()

    def timestamps(self, count: int) -> base.Timestamps:
        return WaitingTimestamps(count, self.clock)

    def observe(self) -> Dict[str, Dict[str, Any]]:
        has_onednn = mx.runtime.Features().is_enabled("MKLDNN") and self._dtype == np.float32  # it knows no float64
        set_to = {
            "engine": "onednn" if has_onednn else "native",
            "compile": "graph",
            "inter_threads": int(os.environ.get("MXNET_CPU_WORKER_NTHREADS", "1")),
        }
        arrays = [self._loss()] + list(self._executor.arg_dict.values())
        observed = {
            "framework": "mxnet@" + str(mx.__version__),
            "device": " and ".join(sorted({str(array.context.device_type) for array in arrays})),
            "precision": listed(precisions(np.dtype(array.dtype).name for array in arrays)),
            "threads": int(ctypes.CDLL(mx.libinfo.find_lib_path()[0]).omp_get_max_threads()),
        }
        return self._effective(set_to, observed)

    def _loss(self) -> Any:
        return self._executor.outputs[0]

    def loss(self) -> float:
        return float(self._loss().asnumpy().reshape(()))

    def arrays(self, kind: str) -> Dict[str, Any]:
        if kind == "buffers":
            return self._buffers(self._executor, self._graph.layers, self._steps_done)
        own_arrays = self._executor.grad_dict if kind == "gradients" else self._executor.arg_dict
        keys = [(layer, name) for layer in self._graph.layers for name in layer.parameters]
        found = {"%s/%s" % (layer.name, name): own_arrays.get(_key(layer.name, name)) for layer, name in keys}
        return {name: array.asnumpy() for name, array in found.items() if array is not None}

    def _buffers(self, executor: Any, layers: Iterable[WireLayer], steps: int) -> Dict[str, Any]:
        """Return the buffers in the graph's form. MXNet stores the biased variance. Both averages are linear in the
        variances and begin at 1, so one follows from the other and the number of steps."""
        found: Dict[str, Any] = {}
        for layer in layers:
            for name in layer.buffers:
                array = executor.aux_dict[_key(layer.name, name)].asnumpy()
                if name == "running_var" and steps:
                    values = len(self._job.labels) * layer.output[1] * layer.output[2]
                    unbiased = values / (values - 1.0)
                    array = (unbiased * array + (1 - unbiased) * (1 - layer.has["momentum"]) ** steps).astype(
                        self._dtype
                    )
                found["%s/%s" % (layer.name, name)] = array
        return found

    def layer(self, name: str, inputs: Dict[str, Any], upstream: Optional[Any]) -> base.LayerResult:
        layer = self._graph.by_name[name]
        wanted = list(inputs) if upstream is not None else []
        given = {source: mx.nd.array(array, dtype=self._dtype) for source, array in inputs.items()}
        executor = self._single(layer, given, wanted, self._training)
        output = executor.forward(is_train=upstream is not None)[0]
        if upstream is not None:
            executor.backward([self._shaped(upstream, output)])
        own_arrays = (
            executor.grad_dict if wanted or (self._training and layer.parameters) else {}
        )  # MXNet has no empty one
        gradients = {key: array.asnumpy() for key, array in own_arrays.items() if array is not None}
        buffers = self._buffers(executor, [layer], 1 if upstream is not None else 0)
        return base.LayerResult(
            output.asnumpy().reshape((len(self._job.labels),) + layer.output if layer.op != LOSS else ()),
            inputs={source: gradients[source] for source in wanted},
            parameters={own: gradients[_key(name, own)] for own in layer.parameters if _key(name, own) in gradients},
            buffers={key[len(name) + 1 :]: array for key, array in buffers.items()},
        )

    def _single(self, layer: WireLayer, inputs: Dict[str, Any], wanted: Sequence[str], trained: bool) -> Any:
        """Bind the isolated layer, with gradients of those inputs, and of the weights if `trained`."""
        lowering, given = self._new_lowering(), dict(inputs)
        variables = {source: mx.sym.var(source) for source in layer.sources}
        symbols = [variables[source] for source in layer.inputs]
        if layer.op == LOSS:
            symbols.append(mx.sym.var(_LABELS))
            given[_LABELS] = self._labels()
        return self._bound(lowering.lower(layer, *symbols), lowering, [layer], given, wanted, trained)

    def _shaped(self, upstream: Any, output: Any) -> Any:
        return mx.nd.array(np.asarray(upstream).reshape(output.shape), dtype=self._dtype)

    def isolated_layer(self, name: str) -> base.IsolatedLayer:
        isolation = Isolation(self._graph, name, self._job.request, len(self._job.labels))
        training, with_forward = isolation.training, isolation.training and not self._runs_back_again(isolation)

        def forward() -> Program:
            wanted = isolation.sources if training else []
            run = self._single(isolation.layer, self._met_by(isolation.layer), wanted, training).forward
            return lambda: run(is_train=training)

        def backward(sources: Sequence[str], trained: bool) -> Program:
            executor, upstream = self._gone_forward(isolation, sources, trained)

            def both() -> None:
                executor.forward(is_train=True)
                executor.backward(upstream)

            return both if with_forward else lambda: executor.backward(upstream)

        return base.IsolatedLayer(isolation.programs(forward, backward, with_forward), self)

    def _met_by(self, layer: WireLayer) -> Dict[str, Any]:
        """Return the layer's inputs in a step, in their memory order: oneDNN returns images in blocks of channels, and
        a pool with inputs in plain order can be a hundred times as fast as in the network."""
        if self._outputs is None:
            lowering = self._new_lowering()
            symbols, _ = _symbols(self._graph, lowering)
            names = [name for name in symbols if self._graph.takers(name)]
            images, group = self._graph.input.name, mx.sym.Group([symbols[name] for name in names])
            # With a gradient of something, or MXNet would fuse layers into one.
            given = {images: self._samples.copy()}
            executor = self._bound(group, lowering, self._graph.layers, given, [images], False)
            self._outputs = dict(zip(names, executor.forward(is_train=self._training)))
        return {source: self._outputs[source] for source in layer.sources}

    def _gone_forward(self, isolation: Isolation, sources: Sequence[str], trained: bool) -> Tuple[Any, Any]:
        """Return the layer after a forward, and the gradient of its output, as the next layer's backward returns it."""
        executor = self._single(isolation.layer, self._met_by(isolation.layer), sources, trained)
        output = executor.forward(is_train=True)[0]
        name = isolation.layer.name
        takers = [layer for layer in self._graph.layers if name in layer.inputs]
        if not takers:
            return executor, self._shaped(isolation.upstream(), output)
        taker = self._single(takers[0], self._met_by(takers[0]), [name], False)
        taker.backward(
            [mx.nd.random.normal(shape=one.shape, dtype=self._dtype) for one in taker.forward(is_train=True)]
        )
        return executor, taker.grad_dict[name]

    def _runs_back_again(self, isolation: Isolation) -> bool:
        """Whether a second backward from one forward returns the same as the first. MXNet may overwrite values that
        forward saved with a gradient: the mask of a dropout, a norm made of several symbols."""
        if not (isolation.sources or isolation.layer.parameters):
            return True
        executor, upstream = self._gone_forward(isolation, isolation.sources, True)
        own_arrays = [array for array in executor.grad_dict.values() if array is not None]
        found: List[List[Any]] = []
        for _ in range(2):
            executor.backward(upstream)
            found.append([array.asnumpy() for array in own_arrays])
        return all(np.allclose(first, second, 1e-3, 1e-5) for first, second in zip(*found))

    def is_out_of_memory(self, error: BaseException) -> bool:
        of_mxnet = isinstance(error, mx.base.MXNetError) and "allocate" in str(error).lower()
        return of_mxnet or super(MxnetBackend, self).is_out_of_memory(error)


def _written_out(pairs: Sequence[Tuple[Any, Any]], momentum: float) -> Callable[[], None]:
    """Update in double precision: MXNet's own operator takes the learning rate as a float32."""
    plan = [(weight, gradient, mx.nd.zeros_like(weight)) for weight, gradient in pairs]

    def update() -> None:
        for weight, gradient, velocity in plan:
            velocity *= momentum
            velocity += gradient
            weight -= velocity * base.LEARNING_RATE

    return update


def _symbols(graph: WireGraph, lowering: Lowering) -> Tuple[Dict[str, Any], List[Any]]:
    """Return by layer its output as a symbol of the images and the labels; and the losses."""
    return lowered_outputs(graph, lowering.lower, mx.sym.var(graph.input.name), mx.sym.var(_LABELS))


def _padded(x: Any, pad: Sequence[int], value: float) -> Any:
    return mx.sym.pad(x, mode="constant", constant_value=value, pad_width=(0, 0, 0, 0) + tuple(pad))


def _key(layer: str, array: str) -> str:
    """Return the name of a variable. It begins with an array's name, so it never equals that of a layer's output."""
    return "%s of %s" % (array, layer)


def _nothing() -> None:
    """Do nothing: the update of a step without one."""


def make_backend() -> MxnetBackend:
    return MxnetBackend()
