"""Shared code of backends that run only on the CPU and read the graph as JSON.

In the syntax of Python 3.6: the legacy frameworks use it, and Paddle and ONNX Runtime.
"""

from typing import Any, Callable, ContextManager, Dict, List, Mapping, Optional, Sequence, Tuple

from deepstone.backends.base import Backend, Job, memory_on_cpu, phases_of
from deepstone.backends.effective import effective, refuse_other_values
from deepstone.backends.wire_graph import LOSS, WireGraph, WireLayer
from deepstone.setups.honoured import ON_CPU

HONOURED_ON_CPU = ON_CPU  # for backends in packages of their own

# The effective values of `auto` in most of them.
_IN_EFFECT = {"engine": "native", "layout": "nchw", "algorithm": "heuristic", "inter_threads": 1, "isa": "no limit"}


class CpuBackend(Backend):
    """A step is one program, unless the backend extends PhasedCpuBackend. `build` begins with `_begin`."""

    _job: Job
    _graph: WireGraph
    _training: bool

    def _begin(self, job: Job, honoured: Mapping[str, Sequence[Any]], framework: str) -> Dict[str, Any]:
        """Refuse values that are not honoured, and read the graph. Return the request."""
        refuse_other_values(job.request, honoured, framework)
        self._job = job
        self._graph = WireGraph(job.graph)
        self._training = job.request["phase"] != "forward"
        return job.request

    def phase(self) -> str:
        return str(self._job.request["phase"])

    def phases(self) -> Optional[Sequence[str]]:
        return None

    def _effective(self, set_to: Dict[str, Any], observed: Dict[str, Any]) -> Dict[str, Dict[str, Any]]:
        """Return the answer of `observe`."""
        return effective(self._job.request, dict(_IN_EFFECT, **set_to), observed)

    def memory(self) -> Dict[str, Any]:
        return memory_on_cpu()


class PhasedCpuBackend(CpuBackend):
    """The phases of a step run one after the other, so each can be timed."""

    def phases(self) -> Optional[Sequence[str]]:
        return phases_of(self.phase())


class EagerBackend(PhasedCpuBackend):
    """The framework runs one operation after the other, and records them for backward.

    A backend sets these fields in `build` and ends it with `_prepare_step`.
    """

    _network: Callable[[Any, Any], Any]
    _samples: Any
    _labels: Any
    _update: Optional[Callable[[], None]]
    _loss: Any = None

    def _recording(self, on: bool) -> ContextManager[Any]:
        """Return a context in which operations are recorded, or not."""
        raise NotImplementedError

    def _backward_function(self) -> Callable[[Any], None]:
        """Return the function that drops the previous gradients and computes those of a loss."""
        raise NotImplementedError

    def _prepare_step(self) -> None:
        self._get, self._backward = self._get_function(), self._backward_function()
        self._step = self._make_step()

    def _get_function(self) -> Callable[[], Tuple[Any, Any]]:
        """Return the data phase: the batch itself, or a copy of it."""
        samples, labels = self._samples, self._labels
        if self._job.request["input"] == "resident":
            return lambda: (samples, labels)
        return lambda: (samples.clone(), labels.clone())

    def _make_step(self) -> Callable[[], None]:
        network, get, backward, update = self._network, self._get, self._backward, self._update

        def forward() -> None:
            with self._recording(False):
                samples, labels = get()
                self._loss = network(samples, labels)

        def gradient() -> None:
            samples, labels = get()
            self._loss = loss = network(samples, labels)
            backward(loss)

        def train() -> None:
            gradient()
            assert update is not None
            update()

        return {"forward": forward, "gradient": gradient, "train": train}[self.phase()]

    def step(self, program: str) -> Callable[[], None]:
        assert program == self.phase(), "its phases are timed one by one, so it has one program"
        return self._step

    def step_in_phases(self, set_timestamp: Callable[[int], None]) -> None:
        """Dropping gradients counts as backward, which makes new ones."""
        with self._recording(self._training):
            samples, labels = self._get()
            set_timestamp(0)
            self._loss = self._network(samples, labels)
            set_timestamp(1)
        if self._training:
            self._backward(self._loss)
            set_timestamp(2)
        if self._update is not None:
            self._update()
            set_timestamp(3)


class TableLowering:
    """Lowers layers by a table with one function for each operation.

    A backend writes these functions, and `_short` for the operations that are one call of its framework.
    """

    _conv: Callable[..., Any]
    _dense: Callable[..., Any]
    _batch_norm: Callable[..., Any]
    _max_pool: Callable[..., Any]
    _average_pool: Callable[..., Any]
    _lrn: Callable[..., Any]
    _drop: Callable[..., Any]
    _loss: Callable[..., Any]

    def __init__(self, graph: WireGraph, arrays: Any, dtype: Any, training: bool, dropout: bool) -> None:
        self._graph = graph
        self._arrays = arrays  # parameters and buffers, as the framework has them
        self._dtype = dtype
        self._training = training
        self._dropout = dropout

    def _short(self) -> Dict[str, Callable[..., Any]]:
        """relu, global_pool, add, concat and flatten."""
        raise NotImplementedError

    def _table(self) -> Dict[str, Callable[..., Any]]:
        table = {
            "conv": self._conv,
            "dense": self._dense,
            "batch_norm": self._batch_norm,
            "max_pool": self._max_pool,
            "average_pool": self._average_pool,
            "lrn": self._lrn,
            "dropout": self._drop,
            LOSS: self._loss,
        }
        table.update(self._short())
        return table

    @property
    def ops(self) -> List[str]:
        return ["input"] + list(self._table())

    def lower(self, layer: WireLayer, *inputs: Any) -> Any:
        """Return the layer's output in frameworks with graphs, else the function that computes it from the inputs."""
        return self._table()[layer.op](layer, *inputs)

    def _weights(self, layer: WireLayer) -> Tuple[Any, Any]:
        """Return the weight, and the bias or None."""
        parameters = self._arrays.parameters[layer.name]
        return parameters["weight"], parameters.get("bias")

    def _statistics(self, layer: WireLayer) -> Tuple[Any, Any]:
        """Return the running mean and variance."""
        buffers = self._arrays.buffers[layer.name]
        return buffers["running_mean"], buffers["running_var"]


def add_all(first: Any, *others: Any) -> Any:
    """Add with the framework's own operator."""
    for other in others:
        first = first + other
    return first
