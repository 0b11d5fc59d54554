"""Caffe 1.0 on the CPU: a network in its own format, and its own solvers. In the syntax of Python 3.6."""

import ctypes
import os
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

os.environ.setdefault("GLOG_minloglevel", "2")  # otherwise it logs every layer of every network, from the import on

import caffe
import numpy as np
from caffe.proto import caffe_pb2

from deepstone.backends import base
from deepstone.backends.cpu_backend import CpuBackend
from deepstone.backends.isolated import Isolation, Program
from deepstone.backends.legacy.caffe1_network import Network
from deepstone.backends.wire_graph import LOSS, WireGraph, WireLayer, refuse_other_ops
from deepstone.setups.honoured import HONOURED

NAME = "caffe " + str(caffe.__version__)


_METHOD = "a stamp after each layer of Caffe, which runs them one by one in any case"
_RULE = (
    "nothing is shared: each layer has the time since the stamp before it; sums are of the gradients that meet where "
    "one output feeds several layers"
)
_SUMS, _FORGETTING = "sums of gradients", "forgetting the gradients"
_DATA, _UPDATE = "data", "update"

_Piece = Tuple[Tuple[str, str], Callable[[], Any]]  # of a step: the layer and the pass, or no layer and what it is for


class Running:
    """A network of Caffe with its arrays."""

    def __init__(self, network: Network, net: Any) -> None:
        self._network = network
        self.net = net
        self.last = len(net.layers) - 1
        for blob, array in network.constants.items():
            net.blobs[blob].data[...] = array

    def load(self, graph: WireGraph, weights: Dict[str, Dict[str, Any]]) -> None:
        for layer, arrays in self._network.parameters.items():
            for name in arrays:
                self._array(layer, name).data[...] = weights[layer][name]
        for layer, written in self._network.norms.items():
            # Caffe keeps sums and how much went into them, s, which grows to 1 / momentum. Begun there, with the sums
            # of what the graph begins with, every mean over them is the graph's.
            means, variances, counted = self.net.params[written]
            counted.data[...] = 1 / graph.by_name[layer].has["momentum"]
            means.data[...] = 0
            variances.data[...] = counted.data[0]

    def feed(self, blob: str, array: Any) -> None:
        self.net.blobs[blob].data[...] = array

    def owners(self) -> List[str]:
        """Map each layer of Caffe to its layer of the graph; layers that Caffe inserts have none."""
        return [self._network.owners.get(str(name), "") for name in self.net._layer_names]

    def output(self, layer: str) -> Any:
        return self.net.blobs[self._network.blobs[layer]]

    def loss(self) -> float:
        return float(sum(self.net.blobs[blob].data * weight for blob, weight in self._network.losses.items()))

    def parameters(self, gradients: bool) -> Dict[str, Dict[str, Any]]:
        return {
            layer: {name: _copy(self._array(layer, name), gradients) for name in arrays}
            for layer, arrays in self._network.parameters.items()
        }

    def buffers(self) -> Dict[str, Dict[str, Any]]:
        found: Dict[str, Dict[str, Any]] = {}
        for layer, written in self._network.norms.items():
            means, variances, counted = (blob.data for blob in self.net.params[written])
            found[layer] = {"running_mean": means / counted, "running_var": variances / counted}
        return found

    def _array(self, layer: str, name: str) -> Any:
        written, number = self._network.parameters[layer][name]
        return self.net.params[written][number]


class CaffeBackend(CpuBackend):
    _solver: Any = None
    _running: Running

    def versions(self) -> Dict[str, Any]:
        return {"name": "caffe", "version": caffe.__version__, "numpy": np.__version__}

    def build(self, job: base.Job) -> None:
        request = self._begin(job, HONOURED["caffe"], NAME)
        graph = self._graph
        caffe.set_mode_cpu()
        caffe.set_random_seed(request["seed"])
        network = self._network(len(job.samples))
        refuse_other_ops(graph, network.ops, NAME)
        for layer in graph.layers:
            network.write(layer)
        network.proto.force_backward = request["input_grad"] == "on"
        if request["phase"] == "train":
            self._solver = self._make_solver(network)
            self._running = Running(network, self._solver.net)
        else:
            self._running = self._run(network)
        self._running.load(graph, job.weights)
        self._samples = self._running.net.blobs[network.blobs[graph.input.name]]
        self._label = self._running.net.blobs[network.label]
        self._fetch()

    def _network(self, batch: int) -> Network:
        return Network(self._graph, batch, self._job.request["dropout"] == "on")

    def _run(self, network: Network) -> Running:
        path = self._written("net.prototxt", network.proto)
        return Running(network, caffe.Net(path, caffe.TRAIN if self._training else caffe.TEST))

    def _make_solver(self, network: Network) -> Any:
        solver, kind = caffe_pb2.SolverParameter(), self._job.request["optimizer"]
        solver.net_param.CopyFrom(network.proto)
        solver.type = "Adam" if kind == "adam" else "SGD"
        solver.base_lr, solver.lr_policy = base.ADAM_LEARNING_RATE if kind == "adam" else base.LEARNING_RATE, "fixed"
        solver.momentum = 0 if kind == "sgd" else base.MOMENTUM
        solver.random_seed = self._job.request["seed"]
        solver.solver_mode = caffe_pb2.SolverParameter.CPU
        return caffe.get_solver(self._written("solver.prototxt", solver))

    def _written(self, name: str, message: Any) -> str:
        path = os.path.join(self._job.scratch, name)
        with open(path, "w") as file:
            file.write(str(message))
        return path

    def _fetch(self) -> None:
        self._samples.data[...] = self._job.samples
        self._label.data[...] = self._job.labels

    def step(self, program: str) -> Callable[[], None]:
        """Return the step. A training step is one call of the solver, which leaves updates in place of gradients."""
        net, last = self._running.net, self._running.last
        fetch = self._fetch if self._job.request["input"] == "host" else None

        def forward() -> None:
            net._forward(0, last)

        def gradient() -> None:
            net.clear_param_diffs()
            net._forward(0, last)
            net._backward(last, 0)

        def train() -> None:
            self._solver.step(1)

        run = {"forward": forward, "gradient": gradient, "train": train}[program]
        if fetch is None:
            return run

        def fetch_and_run() -> None:
            fetch()
            run()

        return fetch_and_run

    def observe(self) -> Dict[str, Dict[str, Any]]:
        set_to = {"device": "cpu", "compile": "off"}
        observed = {
            "framework": "caffe@" + str(caffe.__version__),
            "precision": "fp32" if self._samples.data.dtype == np.float32 else str(self._samples.data.dtype),
            "threads": _openblas_threads(),
        }
        return self._effective(set_to, observed)

    def loss(self) -> float:
        return self._running.loss()

    def arrays(self, kind: str) -> Dict[str, Any]:
        if kind == "buffers":
            own_arrays = self._running.buffers()
        elif kind == "gradients" and self.phase() != "gradient":
            own_arrays = {}
        else:
            own_arrays = self._running.parameters(kind == "gradients")
        return {
            "%s/%s" % (layer, name): array for layer, arrays in own_arrays.items() for name, array in arrays.items()
        }

    def layer(self, name: str, inputs: Dict[str, Any], upstream: Optional[Any]) -> base.LayerResult:
        network = self._single_network(self._graph.by_name[name])
        network.proto.force_backward = upstream is not None
        running = self._fed(network, inputs)
        running.net._forward(0, running.last)
        weight = network.losses.get(name, 1.0)
        output = running.output(name)
        result = base.LayerResult(output.data * np.float32(weight), buffers=running.buffers().get(name, {}))
        if upstream is not None:
            output.diff[...] = np.asarray(upstream).reshape(output.diff.shape) * weight
            running.net.clear_param_diffs()
            running.net._backward(running.last, 0)
            result.inputs = {source: _copy(running.net.blobs[source], True) for source in inputs}
            result.parameters = running.parameters(True).get(name, {})
        return result

    def _single_network(self, layer: WireLayer, wanted: Sequence[str] = ()) -> Network:
        network = self._network(len(self._job.samples))
        for source in layer.sources:
            network.blobs[source] = network.feed(source, (len(self._job.samples),) + self._graph.shape(source))
        for source in wanted:
            network.want(source)
        network.write(layer)
        return network

    def _fed(self, network: Network, inputs: Dict[str, Any]) -> Running:
        running = self._run(network)
        running.load(self._graph, self._job.weights)
        for source, array in inputs.items():
            running.feed(source, array)
        if network.label:
            running.feed(network.label, self._job.labels)
        return running

    def isolated_layer(self, name: str) -> base.IsolatedLayer:
        isolation = Isolation(self._graph, name, self._job.request, len(self._job.labels))

        def forward() -> Program:
            running = self._fed(self._single_network(isolation.layer), isolation.inputs())
            net, last = running.net, running.last

            def run() -> None:
                net._forward(0, last)

            return run

        def backward(sources: Sequence[str], trained: bool) -> Program:
            network = self._single_network(isolation.layer, sources)
            if not trained:
                network.want_no_weights()
            if isolation.layer.op == "batch_norm":
                network.end_apart(isolation.layer)
            if isolation.layer.op != LOSS:
                network.proto.layer[-1].loss_weight.append(1)  # Caffe computes only gradients that lead to a loss
            running = self._fed(network, isolation.inputs())
            net, last, output = running.net, running.last, running.output(name)
            first = next(number for number, owner in enumerate(running.owners()) if owner)
            net._forward(0, last)
            output.diff[...] = isolation.upstream().reshape(output.diff.shape)

            def run() -> None:
                net.clear_param_diffs()  # as in a step: Caffe adds to what is there
                net._backward(last, first)

            return run

        return base.IsolatedLayer(isolation.programs(forward, backward), self)

    def in_place(self, steps: int) -> base.InPlace:
        if self.phase() == "train" and self._job.request["optimizer"] == "adam":
            raise base.Unsupported("Caffe's Adam counts the steps that it runs as a whole only")
        pieces = self._pieces()
        return base.InPlace(_METHOD, _RULE, [self._account(pieces) for _ in range(steps)])

    def _pieces(self) -> List[_Piece]:
        """Return the pieces of a step, in its order."""
        net, numbered, run_back = self._running.net, list(enumerate(self._running.owners())), self._run_back()
        pieces: List[_Piece] = []
        if self._job.request["input"] == "host":
            pieces.append((("", _DATA), self._fetch))
        if self._training:
            pieces.append((("", _FORGETTING), net.clear_param_diffs))
        for number, owner in numbered:
            owner_and_pass = (
                ("", _DATA) if owner == self._graph.input.name else (owner, "forward") if owner else ("", _SUMS)
            )
            pieces.append((owner_and_pass, partial(net._forward, number, number)))
        for number, owner in reversed(numbered) if self._training else []:
            if not owner or owner in run_back:
                owner_and_pass = (owner, "backward") if owner else ("", _SUMS)
                pieces.append((owner_and_pass, partial(net._backward, number, number)))
        if self._solver is not None:
            pieces.append((("", _UPDATE), self._solver.apply_update))
        return pieces

    def _run_back(self) -> Set[str]:
        """Return the names of layers that have a gradient to compute."""
        names = {self._graph.input.name} if self._job.request["input_grad"] == "on" else set()
        for layer in self._graph.layers:
            if layer.parameters or names.intersection(layer.inputs):
                names.add(layer.name)
        return names - {self._graph.input.name}

    def _account(self, pieces: Sequence[_Piece]) -> base.StepAccount:
        timestamps = [self.clock()]
        for _, run in pieces:
            run()
            timestamps.append(self.clock())
        taken_s: Dict[Tuple[str, str], float] = {}
        for (owner_and_pass, _), before, after in zip(pieces, timestamps, timestamps[1:]):
            taken_s[owner_and_pass] = taken_s.get(owner_and_pass, 0.0) + after - before
        unowned_s = {what: taken for (owner, what), taken in taken_s.items() if not owner}
        return base.StepAccount(
            timestamps[-1] - timestamps[0],
            {owner_and_pass: taken for owner_and_pass, taken in taken_s.items() if owner_and_pass[0]},
            data_s=unowned_s.pop(_DATA),
            update_s=unowned_s.pop(_UPDATE, 0.0),
            other=unowned_s,
        )


def _copy(blob: Any, gradient: bool) -> Any:
    return np.array(blob.diff if gradient else blob.data)


def _openblas_threads() -> int:
    return int(ctypes.CDLL("libopenblas.so.0").openblas_get_num_threads())


def make_backend() -> CaffeBackend:
    return CaffeBackend()
