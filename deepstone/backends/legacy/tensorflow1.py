"""TensorFlow 1.x on the CPU: a graph and a session, channels last, as its CPU kernels want it. Syntax of Python 3.6.

The stock builds have only convolutions of one group without dilation in NHWC, so groups are split and joined, as in the
AlexNets of the time.
"""

import os
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow

from deepstone.backends.base import ADAM_LEARNING_RATE, LEARNING_RATE, MOMENTUM, IsolatedLayer, Job, LayerResult
from deepstone.backends.cpu_backend import CpuBackend, TableLowering
from deepstone.backends.isolated import Isolation, Program
from deepstone.backends.wire_graph import LOSS, WireLayer, lowered_outputs, refuse_other_ops
from deepstone.setups.honoured import HONOURED

tf: Any = tensorflow  # the types known to the checks are those of TensorFlow 2

NAME = "tensorflow " + str(tf.__version__)

_HAS_DOUBLE = tuple(int(part) for part in tf.__version__.split(".")[:2]) >= (1, 5)  # of convolutions

_PRECISIONS = ("auto", "fp32", "fp64") if _HAS_DOUBLE else ("auto", "fp32")


class Arrays:
    """Variables in TensorFlow's order of axes. Their first values are fed, because a graph is limited to 2 GB."""

    def __init__(self, layers: Iterable[WireLayer], weights: Dict[str, Dict[str, Any]], dtype: Any) -> None:
        self.parameters: Dict[Tuple[str, str], Any] = {}
        self.buffers: Dict[Tuple[str, str], Any] = {}
        self._first: List[Tuple[Any, Any]] = []
        for layer in layers:
            for name in layer.parameters:
                array = kernel_last(np.asarray(weights[layer.name][name], dtype=dtype))
                self.parameters[layer.name, name] = self.variable(array, True)
            for name in layer.buffers:
                start = np.ones if name == "running_var" else np.zeros
                self.buffers[layer.name, name] = self.variable(start(layer.parameters["weight"], dtype), False)

    def variable(self, array: Any, trainable: bool) -> Any:
        fed = tf.placeholder(array.dtype, array.shape)
        variable = tf.Variable(fed, trainable=trainable)
        self._first.append((variable.initializer, {fed: array}))
        return variable

    def begin(self, session: Any) -> None:
        for initializer, feed in self._first:
            session.run(initializer, feed)
        self._first = []


class Lowering(TableLowering):
    def __init__(self, *given: Any) -> None:
        super(Lowering, self).__init__(*given)
        self.statistics: List[Any] = []  # operations that renew running means and variances

    def _short(self) -> Dict[str, Callable[..., Any]]:
        return {
            "relu": lambda layer, x: tf.nn.relu(x),
            "global_pool": self._global_pool,
            "add": lambda layer, *xs: tf.add_n(xs),
            "concat": lambda layer, *xs: _joined(xs),
            "flatten": self._flatten,
        }

    def _own(self, layer: WireLayer, name: str) -> Any:
        return self._arrays.parameters[layer.name, name]

    def _conv(self, layer: WireLayer, x: Any) -> Any:
        has, weight = layer.has, self._own(layer, "weight")
        how = self._padding(layer)
        if how == "VALID":
            x = _padded(x, has["pad"], 0.0)
        if has["groups"] == 1:
            y = _convolution(x, weight, has["stride"], has["dilation"], how)
        else:
            images, kernels = _parted(x, has["groups"]), _parted(weight, has["groups"])
            pairs = zip(images, kernels)
            y = _joined([_convolution(one, kernel, has["stride"], has["dilation"], how) for one, kernel in pairs])
        if not has["bias"]:
            return y
        if self._dtype == np.float64:  # or Intel's build would fuse them into an operation that knows float32 only
            return y + self._own(layer, "bias")
        return tf.nn.bias_add(y, self._own(layer, "bias"))

    def _dense(self, layer: WireLayer, x: Any) -> Any:
        y = tf.matmul(x, self._own(layer, "weight"), transpose_b=True)
        return tf.nn.bias_add(y, self._own(layer, "bias")) if layer.has["bias"] else y

    def _batch_norm(self, layer: WireLayer, x: Any) -> Any:
        weight, bias, epsilon = self._own(layer, "weight"), self._own(layer, "bias"), layer.has["epsilon"]
        mean, var = (self._arrays.buffers[layer.name, name] for name in layer.buffers)
        if not self._training:
            return tf.nn.batch_normalization(x, mean, var, bias, weight, epsilon)
        if self._dtype == np.float32:
            y, new_mean, new_var = tf.nn.fused_batch_norm(x, weight, bias, epsilon=epsilon)  # its variance is unbiased
        else:
            new_mean, biased = tf.nn.moments(x, [0, 1, 2])
            y = tf.nn.batch_normalization(x, new_mean, biased, bias, weight, epsilon)
            values = tf.cast(tf.size(x) // layer.output[0], self._dtype)
            new_var = biased * (values / (values - 1))
        for old, new in ((mean, new_mean), (var, new_var)):
            self.statistics.append(tf.assign_sub(old, (old - tf.stop_gradient(new)) * layer.has["momentum"]).op)
        return y

    def _max_pool(self, layer: WireLayer, x: Any) -> Any:
        lowest = float(np.finfo(np.float32).min)  # every window also contains a pixel
        how = self._padding(layer)
        if how == "VALID":
            x = _padded(x, self._room(layer), lowest)
        return tf.nn.max_pool(*_windows(layer, x, how))

    def _average_pool(self, layer: WireLayer, x: Any) -> Any:
        kernel = layer.has["kernel"]
        means = tf.nn.avg_pool(*_windows(layer, _padded(x, self._room(layer), 0.0), "VALID"))
        rows, columns = layer.places_that_count(self._graph.shape(layer.inputs[0]))
        correction = kernel[0] * kernel[1] / np.outer(rows, columns)
        return means if np.all(correction == 1) else means * correction[None, :, :, None].astype(self._dtype)

    def _room(self, layer: WireLayer) -> Tuple[int, int, int, int]:
        """Return the padding with which exactly the graph's windows fit."""
        source, has = self._graph.shape(layer.inputs[0]), layer.has
        pad = has["pad"]
        reach = [(layer.output[1 + side] - 1) * has["stride"][side] + has["kernel"][side] for side in (0, 1)]
        return pad[0], max(0, reach[0] - pad[0] - source[1]), pad[2], max(0, reach[1] - pad[2] - source[2])

    def _padding(self, layer: WireLayer) -> str:
        """Return SAME if TensorFlow's own padding of a convolution or a max pool equals the graph's, else VALID."""
        source, has = self._graph.shape(layer.inputs[0]), layer.has
        pad = has["pad"] if layer.op == "conv" else self._room(layer)
        if not any(pad) or has.get("dilation", (1, 1)) != (1, 1):
            return "VALID"
        for side in (0, 1):
            size, kernel, stride = source[1 + side], has["kernel"][side], has["stride"][side]
            total = max(0, (-(-size // stride) - 1) * stride + kernel - size)
            if stride > kernel or pad[2 * side : 2 * side + 2] != (total // 2, total - total // 2):
                return "VALID"
        return "SAME"

    def _is_among_blocks(self, layer: WireLayer) -> bool:
        takers = [taker for taker in self._graph.layers if layer.name in taker.inputs]
        return not self._training or all(self._takes_blocks(taker) for taker in takers)

    def _takes_blocks(self, layer: WireLayer) -> bool:
        """Whether MKL-DNN computes the layer without an operation of TensorFlow's own before it."""
        if layer.op == "conv":
            unpadded = self._padding(layer) == "SAME" or not any(layer.has["pad"])
            return unpadded and layer.has["groups"] == 1 and layer.has["dilation"] == (1, 1)
        return layer.op == "max_pool" and (self._padding(layer) == "SAME" or not any(self._room(layer)))

    def _global_pool(self, layer: WireLayer, x: Any) -> Any:
        return tf.reduce_mean(x, [1, 2], keep_dims=True)

    def _lrn(self, layer: WireLayer, x: Any) -> Any:
        size, alpha, beta, k = (layer.has[name] for name in ("size", "alpha", "beta", "k"))
        half = size // 2
        if layer.has["within_channel"]:
            squares = _padded(tf.square(x), (half, half, half, half), 0.0)
            means = tf.nn.avg_pool(squares, [1, size, size, 1], [1, 1, 1, 1], "VALID")
        elif self._dtype == np.float32 and (_engine() == "native" or self._is_among_blocks(layer)):
            return tf.nn.lrn(x, half, k, alpha / size, beta)
        else:  # TensorFlow's own knows float32 only, and Intel's has a wrong gradient before a tf.pad, for one
            squares = tf.pad(tf.square(x), [[0, 0], [0, 0], [0, 0], [half, half]])
            channels = layer.output[0]
            means = tf.add_n([squares[:, :, :, first : first + channels] for first in range(size)]) / size
        return x * tf.pow(means * alpha + k, -beta)

    def _drop(self, layer: WireLayer, x: Any) -> Any:
        return tf.nn.dropout(x, 1 - layer.has["rate"]) if self._dropout else tf.identity(x)

    def _flatten(self, layer: WireLayer, x: Any) -> Any:
        return tf.reshape(tf.transpose(x, [0, 3, 1, 2]), [-1, layer.output[0]])

    def _loss(self, layer: WireLayer, x: Any, labels: Any) -> Any:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x)
        return tf.reduce_mean(losses) * layer.has["weight"]


class Single:
    """One layer in the present graph, with its inputs in variables, as in a step."""

    def __init__(
        self, layer: WireLayer, arrays: Arrays, lowering: Lowering, inputs: Dict[str, Any], labels: Any
    ) -> None:
        self.arrays = arrays
        self.statistics = lowering.statistics
        self.inputs = {source: arrays.variable(channels_last(array), False) for source, array in inputs.items()}
        arguments: List[Any] = [self.inputs[source] for source in layer.inputs]
        if layer.op == LOSS:
            arguments.append(arrays.variable(labels, False))
        self.output = lowering.lower(layer, *arguments)

    def place_upstream(self, array: Any) -> None:
        placed = self.arrays.variable(channels_last(array), False)
        with tf.control_dependencies([self.output]):  # in a step, backward begins when forward has ended
            self._upstream = tf.identity(placed)

    def gradients(self, sources: Iterable[str], trained: bool, gated: bool = False) -> List[Any]:
        """Return the gradients of those inputs, and then of the weights if `trained`."""
        wanted = [self.inputs[source] for source in sources] + (
            list(self.arrays.parameters.values()) if trained else []
        )
        found: List[Any] = tf.gradients(self.output, wanted, self._upstream, gate_gradients=gated)
        return found


class Tensorflow1Backend(CpuBackend):
    _session: Any = None
    _last: float = float("nan")

    def versions(self) -> Dict[str, Any]:
        versions = {"name": "tensorflow", "version": tf.__version__, "numpy": np.__version__}
        return dict(versions, compiler=tf.__compiler_version__, engine=_engine())

    def build(self, job: Job) -> None:
        request = self._begin(
            job, dict(HONOURED["tensorflow 1"], precision=_PRECISIONS, engine=("auto", _engine())), NAME
        )
        graph = self._graph
        self.close()
        self._dtype = np.float64 if request["precision"] == "fp64" else np.float32
        self._programs: Dict[str, Callable[[], None]] = {}
        with tf.Graph().as_default():
            tf.set_random_seed(request["seed"])
            self._arrays, self._lowering = self._lowered(graph.layers)
            refuse_other_ops(graph, self._lowering.ops, NAME)
            self._batch = self._placed_batch()
            self._loss = tf.add_n(lowered_outputs(graph, self._lowering.lower, *self._batch)[1])
            self._wanted = list(self._arrays.parameters.values())
            if request["input_grad"] == "on":
                self._wanted.append(self._batch[0])
            # Gated, as optimizers do it: else a weight may be updated while the gradient of its layer's input reads it.
            gated = tf.gradients(self._loss, self._wanted, gate_gradients=True) if self._training else []
            self._gradients: List[Any] = gated
            self._update = self._make_update() if request["phase"] == "train" else None
            self._session = self._new_session()
            self._arrays.begin(self._session)
            self._begin_slots()

    def _lowered(self, layers: Sequence[WireLayer]) -> Tuple[Arrays, Lowering]:
        own_arrays = Arrays(layers, self._job.weights, self._dtype)
        dropout = self._job.request["dropout"] == "on"
        return own_arrays, Lowering(self._graph, own_arrays, self._dtype, self._training, dropout)

    def _placed_batch(self) -> Tuple[Any, Any]:
        """Return variables with the batch, or placeholders that every step feeds."""
        samples = np.ascontiguousarray(channels_last(self._job.samples.astype(self._dtype)))
        self._host = (samples, self._job.labels)
        if self._job.request["input"] == "resident":
            return self._arrays.variable(samples, False), self._arrays.variable(self._job.labels, False)
        return tf.placeholder(samples.dtype, samples.shape), tf.placeholder(np.int64, self._job.labels.shape)

    def _new_session(self) -> Any:
        request = self._job.request
        counts = {"intra_op_parallelism_threads": "threads", "inter_op_parallelism_threads": "inter_threads"}
        given = {name: int(request[axis]) for name, axis in counts.items() if request[axis] != "auto"}
        return tf.Session(config=tf.ConfigProto(device_count={"GPU": 0}, **given))

    def _make_update(self) -> Any:
        kind, exact = self._job.request["optimizer"], self._dtype  # a plain number would be rounded to float32
        if kind == "adam":
            optimizer = tf.train.AdamOptimizer(exact(ADAM_LEARNING_RATE))
        elif kind == "momentum":
            optimizer = tf.train.MomentumOptimizer(exact(LEARNING_RATE), exact(MOMENTUM))
        else:
            optimizer = tf.train.GradientDescentOptimizer(exact(LEARNING_RATE))
        return optimizer.apply_gradients(list(zip(self._gradients, self._arrays.parameters.values())))

    def _begin_slots(self) -> None:
        """Initialize the optimizer's state; the other variables were fed."""
        fed = set(list(self._arrays.parameters.values()) + list(self._arrays.buffers.values()) + list(self._batch))
        self._session.run([each.initializer for each in tf.global_variables() if each not in fed])

    def step(self, program: str) -> Callable[[], None]:
        if program not in self._programs:
            self._programs[program] = self._make_step(program)
        return self._programs[program]

    def _make_step(self, program: str) -> Callable[[], None]:
        # Fetch each separately: TensorFlow 1.12 does not compute results that only a group waits for.
        fetches: List[Any] = [self._loss] + self._lowering.statistics
        if program == "gradient":
            fetches += [gradient.op for gradient in self._gradients]
        if program == "train":
            fetches += [gradient.op for gradient in self._gradients[len(self._arrays.parameters) :]]  # of the images
            fetches.append(self._update)
        run, feed = self._session.run, self._feed()

        def step() -> None:
            self._last = run(fetches, feed)[0]

        return step

    def _feed(self) -> Optional[Dict[Any, Any]]:
        return None if self._job.request["input"] == "resident" else dict(zip(self._batch, self._host))

    def observe(self) -> Dict[str, Dict[str, Any]]:
        cores = len(os.sched_getaffinity(0))
        request = self._job.request
        set_to = {
            "device": "cpu",
            "layout": "nhwc",
            "compile": "graph",
            "engine": _engine(),
            "threads": cores if request["threads"] == "auto" else request["threads"],
            "inter_threads": cores if request["inter_threads"] == "auto" else request["inter_threads"],
        }
        observed = {
            "framework": "tensorflow@" + str(tf.__version__),
            "precision": "fp64" if self._loss.dtype == tf.float64 else "fp32",
        }
        return self._effective(set_to, observed)

    def loss(self) -> float:
        return float(self._last)

    def arrays(self, kind: str) -> Dict[str, Any]:
        own_arrays = self._arrays.buffers if kind == "buffers" else self._arrays.parameters
        names, taken = list(own_arrays), list(own_arrays.values())
        if kind == "gradients":
            if self.phase() == "train":  # they are gone with the step, and another would come after the update
                return {}
            taken = self._gradients[: len(names)]
        values = self._session.run(taken, self._feed()) if taken else []
        return {"%s/%s" % key: kernel_first(value) for key, value in zip(names, values)}

    def layer(self, name: str, inputs: Dict[str, Any], upstream: Optional[Any]) -> LayerResult:
        with tf.Graph().as_default():
            single = self._single(self._graph.by_name[name], inputs)
            gradients: List[Any] = []
            if upstream is not None:
                single.place_upstream(np.asarray(upstream, dtype=self._dtype))
                gradients = single.gradients(inputs, True)
            with self._new_session() as session:
                single.arrays.begin(session)
                result, found, _ = session.run([single.output, gradients, single.statistics])
                buffers = {key[1]: session.run(variable) for key, variable in single.arrays.buffers.items()}
        of_weights = zip(single.arrays.parameters, found[len(inputs) :])
        return LayerResult(
            channels_first(np.asarray(result)),
            inputs={source: channels_first(value) for source, value in zip(inputs, found)},
            parameters={key[1]: kernel_first(value) for key, value in of_weights},
            buffers=buffers,
        )

    def _single(self, layer: WireLayer, inputs: Dict[str, Any]) -> Single:
        own_arrays, lowering = self._lowered([layer])
        given = {source: array.astype(self._dtype) for source, array in inputs.items()}
        return Single(layer, own_arrays, lowering, given, self._job.labels)

    def isolated_layer(self, name: str) -> IsolatedLayer:
        """Return the programs. Forward results exist only within one run of a session, so every backward runs a forward
        first."""
        isolation = Isolation(self._graph, name, self._job.request, len(self._job.labels))
        if isolation.layer.op == "input":
            return IsolatedLayer({}, self)
        with tf.Graph().as_default():
            tf.set_random_seed(self._job.request["seed"])
            single = self._single(isolation.layer, isolation.inputs())
            if isolation.training:
                single.place_upstream(isolation.upstream().astype(self._dtype))
            session = self._new_session()
            single.arrays.begin(session)

            def program(gradients: Sequence[Any]) -> Program:
                results = [single.output.op] + single.statistics + [gradient.op for gradient in gradients]
                run: Program = session.make_callable(results)
                return run

            def backward(sources: Sequence[str], trained: bool) -> Program:
                return program(single.gradients(sources, trained))

            channels, height, width = (self._graph.shape(isolation.layer.inputs[0]) + (1, 1))[:3]
            moves = channels > 1 and height * width > 1  # to the order of the graph
            programs = isolation.programs(lambda: program([]), backward, with_forward=True, moves_to_flatten=moves)
            if "forward+backward" in programs:
                # Gated as in a step, where that makes 1.2 compute a gradient of the image which nobody reads.
                both = single.gradients(isolation.sources, bool(isolation.layer.parameters), gated=True)
                programs["forward+backward"] = program(both)
        into_blocks = "moving arrays into MKL-DNN's blocks of channels" if _engine() == "onednn" else ""
        return IsolatedLayer(programs, self, beside=into_blocks)

    def is_unsupported(self, error: BaseException) -> bool:
        unknown = isinstance(error, (tf.errors.InvalidArgumentError, tf.errors.NotFoundError))
        return unknown and "No OpKernel was registered" in str(error)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, (tf.errors.ResourceExhaustedError, MemoryError))

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def _engine() -> str:
    """Whether this build calls MKL-DNN: Intel's has a switch for it that the stock builds lack."""
    check = getattr(getattr(tf, "pywrap_tensorflow", None), "IsMklEnabled", None)
    return "onednn" if check is not None and check() else "native"


def _convolution(x: Any, weight: Any, stride: Sequence[int], dilation: Sequence[int], padding: str) -> Any:
    if tuple(dilation) == (1, 1):
        kernel = weight.shape.as_list()[:2]
        below, beside = (max(0, stride[side] - kernel[side]) for side in (0, 1))
        if _engine() == "onednn" and (below or beside) and kernel != [1, 1]:
            # MKL-DNN leaves the gradient of pixels that no window sees unset; with zeros in the kernel, all are seen.
            x = tf.pad(x, [[0, 0], [0, below], [0, beside], [0, 0]])
            weight = tf.pad(weight, [[0, below], [0, beside], [0, 0], [0, 0]])
        return tf.nn.conv2d(x, weight, [1, stride[0], stride[1], 1], padding)
    y = tf.nn.convolution(x, weight, "VALID", dilation_rate=dilation)  # which takes no stride beside a dilation
    return y[:, :: stride[0], :: stride[1], :]


def _parted(x: Any, groups: int) -> List[Any]:
    """Split along the channels; in slices if the gradient of a split would join what `_joined` cannot."""
    channels = x.shape.as_list()[3] // groups
    if _engine() == "native" or channels % 16 == 0:
        return list(tf.split(x, groups, 3))
    return [x[:, :, :, first * channels : (first + 1) * channels] for first in range(groups)]


def _joined(parts: Sequence[Any]) -> Any:
    """Join along the channels. Intel's operation cannot join images in MKL-DNN's blocks of 16 channels unless they are
    full; flat arrays it leaves to TensorFlow's own operation."""
    shapes = [part.shape.as_list() for part in parts]
    if _engine() == "native" or all(shape[3] % 16 == 0 for shape in shapes):
        return tf.concat(list(parts), 3)
    flat = tf.concat([tf.reshape(part, [-1, shape[3]]) for part, shape in zip(parts, shapes)], 1)
    return tf.reshape(flat, shapes[0][:3] + [sum(shape[3] for shape in shapes)])


def _windows(layer: WireLayer, x: Any, padding: str) -> Tuple[Any, List[int], List[int], str]:
    kernel, stride = layer.has["kernel"], layer.has["stride"]
    return x, [1, kernel[0], kernel[1], 1], [1, stride[0], stride[1], 1], padding


def _padded(x: Any, pad: Sequence[int], value: float) -> Any:
    if not any(pad):
        return x
    top, bottom, left, right = pad
    widths = [[0, 0], [top, bottom], [left, right], [0, 0]]
    padded = tf.pad(x, widths)
    if value == 0:
        return padded
    _, height, width, _ = x.shape.as_list()
    frame = np.pad(np.zeros((1, height, width, 1)), widths, "constant", constant_values=value)
    return padded + frame.astype(x.dtype.as_numpy_dtype)  # tf.pad of 1.2 pads with zeros only


def channels_last(array: Any) -> Any:
    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array


def channels_first(array: Any) -> Any:
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2)) if array.ndim == 4 else array


def kernel_last(array: Any) -> Any:
    return np.ascontiguousarray(array.transpose(2, 3, 1, 0)) if array.ndim == 4 else array


def kernel_first(array: Any) -> Any:
    return np.ascontiguousarray(array.transpose(3, 2, 0, 1)) if array.ndim == 4 else array


def make_backend() -> Tensorflow1Backend:
    return Tensorflow1Backend()
