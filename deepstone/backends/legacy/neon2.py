"""Neon 2 on the CPU: its layers, on NumPy (engine=native) or on MKL's (engine=mkl). In the syntax of Python 3.6."""

import ctypes
import os
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import neon
import numpy as np
from neon.backends import gen_backend
from neon.backends.util.check_mkl import get_mkl_lib
from neon.initializers import Constant
from neon.layers.layer import Convolution
from neon.optimizers import Adam, GradientDescentMomentum

from deepstone.backends.base import (
    ADAM_LEARNING_RATE,
    LEARNING_RATE,
    MOMENTUM,
    InPlace,
    IsolatedLayer,
    Job,
    LayerResult,
    StepAccount,
    Unsupported,
)
from deepstone.backends.cpu_backend import HONOURED_ON_CPU, PhasedCpuBackend
from deepstone.backends.effective import listed, openblas_threads, precisions
from deepstone.backends.isolated import Isolation, Program
from deepstone.backends.legacy.neon2_layers import ConvNode, DenseNode, LossNode
from deepstone.backends.legacy.neon2_network import OPS, SUMS, Network
from deepstone.backends.legacy.neon2_node import Node, Settings
from deepstone.backends.wire_graph import LOSS, WireLayer, refuse_other_ops

NAME = "neon " + str(neon.__version__)

# Neon puts channels first and the batch last, which is neither of the axis' layouts.
_LAYOUT = "chwn"
_MKL_TOLERANCE = 1e-4
_METHOD = "a timestamp after each layer, which Neon runs one by one in any case"
_RULE = (
    "nothing is shared: each layer has the time since the timestamp before it; sums are of the gradients that meet "
    "where one output feeds several layers"
)


class NeonBackend(PhasedCpuBackend):
    _network: Network
    _isolated: Optional[Network]
    _update: Optional[Callable[[], None]]

    def versions(self) -> Dict[str, Any]:
        versions = {"name": "neon", "version": neon.__version__, "numpy": np.__version__}
        library = _library("mkl_rt") or _library("mklml")
        return dict(versions, mkl=_mkl_version(library)) if library and get_mkl_lib() else versions

    def build(self, job: Job) -> None:
        engines = _engines(job.request)
        honoured = dict(HONOURED_ON_CPU, layout=("auto",), engine=("auto",) + engines)
        request = self._begin(job, honoured, NAME)
        refuse_other_ops(self._graph, OPS, NAME)
        for layer in self._graph.layers:
            if layer.op == "conv" and layer.has["groups"] != 1:
                raise Unsupported("%s has no lowering of: conv in groups (layer %r)" % (NAME, layer.name))
        self._engine = engines[0] if request["engine"] == "auto" else str(request["engine"])
        dtype = np.float64 if request["precision"] == "fp64" else np.float32
        batch = len(job.labels)
        be = gen_backend(
            backend="mkl" if self._engine == "mkl" else "cpu",
            batch_size=batch,
            rng_seed=request["seed"],
            datatype=dtype,
        )
        self._be, self._dtype, self._isolated = be, dtype, None
        self._settings = Settings(be, self._graph, batch, self._training, request["dropout"] == "on")
        self._host = job.samples.reshape(batch, -1).astype(dtype)
        self._samples = be.array(np.ascontiguousarray(self._host.T), dtype=dtype)
        self._labels = self._one_hot(job.labels)
        self._network = self._lowered(self._graph.layers, self._needs_gradient())
        self._update = self._make_update() if request["phase"] == "train" else None

    def _one_hot(self, labels: Any) -> Any:
        classes = max(self._graph.shape(layer.inputs[0])[0] for layer in self._graph.layers if layer.op == LOSS)
        return self._be.array(np.eye(classes, dtype=self._dtype)[:, labels], dtype=self._dtype)

    def _needs_gradient(self) -> Callable[[str], bool]:
        """Return whether the output of a layer needs one: it depends on weights, or on an image that does."""
        known: Dict[str, bool] = {}
        for layer in self._graph.layers:
            own = bool(layer.parameters) or (layer.op == "input" and self._job.request["input_grad"] == "on")
            known[layer.name] = own or any(known[source] for source in layer.inputs)
        return known.__getitem__

    def _lowered(self, layers: Sequence[WireLayer], wanted: Callable[[str], bool]) -> Network:
        network = Network(self._settings, layers, wanted)
        for node in network.nodes:
            if node.layer.parameters:
                node.load(self._job.weights[node.layer.name])
            if isinstance(node, LossNode):
                node.labels = self._labels
        return network

    def _make_update(self) -> Callable[[], None]:
        kind = self._job.request["optimizer"]
        if kind == "adam":
            optimizer = Adam(learning_rate=ADAM_LEARNING_RATE)
        else:
            optimizer = GradientDescentMomentum(LEARNING_RATE, 0.0 if kind == "sgd" else MOMENTUM)
        layers = [layer for node in self._network.nodes for layer in node.optimized]
        return lambda: optimizer.optimize(layers, 0)

    def _fetch(self) -> None:
        """The data phase, as Neon's own iterator over arrays has it: the batch is turned as it is copied."""
        self._samples[:] = self._be.array(self._host, dtype=self._dtype).T

    def step(self, program: str) -> Callable[[], None]:
        assert program == self.phase(), "its phases are timed one by one, so it has one program"
        fetch = self._fetch if self._job.request["input"] == "host" else None
        network, samples, update, training = self._network, self._samples, self._update, self._training

        def step() -> None:
            if fetch is not None:
                fetch()
            network.forward(samples)
            if training:
                network.backward()
            if update is not None:
                update()

        return step

    def step_in_phases(self, set_timestamp: Callable[[int], None]) -> None:
        if self._job.request["input"] == "host":
            self._fetch()
        set_timestamp(0)
        self._network.forward(self._samples)
        set_timestamp(1)
        if self._training:
            self._network.backward()
            set_timestamp(2)
        if self._update is not None:
            self._update()
            set_timestamp(3)

    def observe(self) -> Dict[str, Dict[str, Any]]:
        set_to: Dict[str, Any] = {"engine": self._engine, "compile": "off", "layout": _LAYOUT}
        tensors = [tensor for node in self._network.nodes for tensor in node.parameters.values()]
        observed: Dict[str, Any] = {
            "framework": "neon@" + str(neon.__version__).partition("+")[0],  # without the commit
            "device": "cpu",
            "precision": listed(precisions(np.dtype(tensor.dtype).name for tensor in tensors + [self._samples])),
            "engine": self._observed_engine(),
        }
        threads = _mkl_threads() if self._engine == "mkl" else openblas_threads()
        if threads is None:
            asked = self._job.request["threads"]
            set_to["threads"] = len(os.sched_getaffinity(0)) if asked == "auto" else asked
        else:
            observed["threads"] = threads
        return self._effective(set_to, observed)

    def _observed_engine(self) -> str:
        """A convolution that MKL does not have falls back to NumPy, and says so afterwards."""
        convolutions = [node for node in self._network.nodes if isinstance(node, ConvNode)]
        on_mkl = {bool(node.neon.nglayer.get_is_mklop()) for node in convolutions} or {self._engine == "mkl"}
        return listed("mkl" if mkl else "native" for mkl in on_mkl)

    def loss(self) -> float:
        return float(sum(node.loss() for node in self._network.losses))

    def arrays(self, kind: str) -> Dict[str, Any]:
        found: Dict[str, Any] = {}
        for node in self._network.nodes:
            own = node.buffers() if kind == "buffers" else self._read(node, kind == "gradients")
            found.update({"%s/%s" % (node.layer.name, name): array for name, array in own.items()})
        return found

    def _read(self, node: Node, gradients: bool, divisor: Optional[float] = None) -> Dict[str, Any]:
        """Gradients are sums over the batch, of which the graph has means."""
        tensors = node.gradients if gradients else node.parameters
        divisor = divisor or (len(self._job.labels) if gradients else 1)
        return {
            name: np.ascontiguousarray(node.from_neon(name, tensors[name].get() / self._dtype(divisor)))
            for name in node.layer.parameters
        }

    def layer(self, name: str, inputs: Dict[str, Any], upstream: Optional[Any]) -> LayerResult:
        layer = self._graph.by_name[name]
        network = self._lowered([layer], lambda source: True)
        node = network.by_name[name]
        given = {source: self._tensor(array) for source, array in inputs.items()}
        output = node.forward([given[source] for source in layer.inputs])
        if isinstance(node, LossNode):
            result = LayerResult(np.array(node.loss(), dtype=self._dtype))
        else:
            result = LayerResult(self._array(output, layer.output), buffers=node.buffers())
        if upstream is None:
            return result
        factor = float(upstream) / len(self._job.labels) if layer.op == LOSS else 1.0
        for source, found in zip(layer.inputs, node.backward(None if layer.op == LOSS else self._tensor(upstream))):
            array = self._array(found, self._graph.shape(source)) * self._dtype(factor)
            result.inputs[source] = result.inputs[source] + array if source in result.inputs else array
        result.parameters = self._read(node, True, 1.0)
        return result

    def _tensor(self, array: Any) -> Any:
        flat = np.ascontiguousarray(array.reshape(len(array), -1).T, dtype=self._dtype)
        return self._be.array(flat, dtype=self._dtype)

    def _array(self, tensor: Any, shape: Tuple[int, ...]) -> Any:
        return np.ascontiguousarray(tensor.get().T).reshape((-1,) + shape)

    def in_place(self, steps: int) -> InPlace:
        return InPlace(_METHOD, _RULE, [self._account() for _ in range(steps)])

    def _account(self) -> StepAccount:
        layers: Dict[Tuple[str, str], float] = {}
        other: Dict[str, float] = {}
        last = [self.clock()]
        start = last[0]

        def taken() -> float:
            now = self.clock()
            passed, last[0] = now - last[0], now
            return passed

        def stamp(layer: str, what: str) -> None:
            if layer:
                layers[layer, what] = taken()
            else:
                other[what] = other.get(what, 0.0) + taken()

        if self._job.request["input"] == "host":
            self._fetch()
        data_s = taken()
        self._network.forward(self._samples, stamp)
        if self._training:
            self._network.backward(stamp)
        stamp("", SUMS)  # that of the image's gradients, if it has some
        update_s = 0.0
        if self._update is not None:
            self._update()
            update_s = taken()
        return StepAccount(last[0] - start, layers, data_s=data_s, update_s=update_s, other=other)

    def isolated_layer(self, name: str) -> IsolatedLayer:
        """The layer as it stands in a network of its own after a step: MKL's layers know their neighbours' layouts."""
        isolation = Isolation(self._graph, name, self._job.request, len(self._job.labels))
        if isolation.layer.op == "input":
            return IsolatedLayer({}, self)
        node = self._stepped().by_name[name]

        def forward() -> Program:
            inputs = node.inputs

            def run() -> None:
                node.forward(inputs)

            return run

        def backward(sources: Sequence[str], trained: bool) -> Program:
            error: Any = node.error
            run: Callable[[Any], Any] = node.backward
            if isinstance(node, (ConvNode, DenseNode)):
                run = node.backward_data if not trained else run if sources else node.backward_weight
            return lambda: _run(run, error)

        moves = isolation.layer.op == "flatten" and self._engine == "mkl" and _moves(node)
        return IsolatedLayer(isolation.programs(forward, backward, moves_to_flatten=moves), self)

    def _stepped(self) -> Network:
        if self._isolated is None:
            self._isolated = self._lowered(self._graph.layers, self._needs_gradient())
            self._isolated.forward(self._samples)
            if self._training:
                self._isolated.backward()
        return self._isolated


def _run(function: Callable[[Any], Any], error: Any) -> None:
    function(error)


def _moves(node: Node) -> bool:
    """Whether flattening converts from MKL's layout: one pixel per channel is in order in every layout."""
    return bool(node.inputs[0].primitive[2]) and node.source()[1:] != (1, 1)


def _engines(request: Dict[str, Any]) -> Tuple[str, ...]:
    """Return the engines, the best first, as Neon's own scripts choose. MKL's layers know float32 only."""
    if request["precision"] == "fp64" or not get_mkl_lib():
        return ("native",)
    if _mkl_computes():
        return ("mkl", "native")
    if request["engine"] == "mkl":
        raise Unsupported(
            "the MKL that this Neon was built with computes wrong numbers on this CPU; build it with another release "
            "of MKL, or use engine=native"
        )
    return ("native",)


_tried: Dict[str, bool] = {}


def _mkl_computes() -> bool:
    """Whether convolutions of MKL are right here. MKL 2018.0.0 leaves their results unset on a CPU that is not Intel's,
    and says nothing."""
    if "mkl" not in _tried:
        shapes = ((3, 5), (16, 16))
        _tried["mkl"] = all(_distance(*shape) < _MKL_TOLERANCE for shape in shapes)
    return _tried["mkl"]


def _distance(inputs: int, outputs: int) -> float:
    """Return how far a convolution of MKL, and the gradients of it, are from those of Neon on NumPy."""
    random = np.random.RandomState(0)
    results: List[List[Any]] = []
    image, weight = random.randn(inputs * 6 * 7, 3), random.randn(inputs * 9, outputs)
    error = random.randn(outputs * 6 * 7, 3)
    for engine in ("cpu", "mkl"):
        be = gen_backend(backend=engine, batch_size=3, datatype=np.float32)
        layer = Convolution((3, 3, outputs), padding=1, init=Constant(0))
        layer.configure((inputs, 6, 7))
        layer.allocate()
        layer.W[:] = weight.astype(np.float32)
        layer.deltas = be.zeros(image.shape)
        output = layer.fprop(be.array(image))
        found = layer.bprop(be.array(error))
        results.append([output.get(), found.get(), layer.dW.get()])
    distances = [float(np.linalg.norm(ours - theirs) / np.linalg.norm(ours)) for ours, theirs in zip(*results)]
    return max(distance if np.isfinite(distance) else float("inf") for distance in distances)


def _library(name: str) -> str:
    """Return the path of a loaded library with this word in its name, or nothing."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(None, 5)[5].strip() for line in maps if name in line and ".so" in line}
    return min(paths) if paths else ""


def _mkl_version(path: str) -> str:
    text = ctypes.create_string_buffer(200)
    ctypes.CDLL(path).mkl_get_version_string(text, len(text))
    return text.value.decode("utf-8", "replace").strip()


def _mkl_threads() -> Optional[int]:
    path = _library("mkl_rt") or _library("mklml")
    return int(ctypes.CDLL(path).mkl_get_max_threads()) if path else None


def make_backend() -> NeonBackend:
    return NeonBackend()
