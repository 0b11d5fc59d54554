"""What backends repeat whose frameworks run on the CPU alone and read the graph as JSON.

In the syntax of Python 3.6: the legacy frameworks are such, and Paddle and ONNX Runtime.
"""

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from deepstone.backends.base import Backend, Job, memory_on_cpu, phases_of
from deepstone.backends.effective import effective, refuse_other_values
from deepstone.backends.wire_graph import WireGraph, WireLayer

# What `auto` becomes in most of them; a backend gives what differs.
_IN_EFFECT = {"engine": "native", "layout": "nchw", "algorithm": "heuristic", "inter_threads": 1, "isa": "no limit"}


class CpuBackend(Backend):
    """A step is one program, unless the backend extends PhasedCpuBackend. `build` begins with `_begin`."""

    _job: Job
    _graph: WireGraph
    _training: bool

    def _begin(self, job: Job, honoured: Mapping[str, Sequence[Any]], framework: str) -> Dict[str, Any]:
        """Refuse what is not honoured, and read the graph. Gives the request."""
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
        """The answer of `observe`."""
        return effective(self._job.request, dict(_IN_EFFECT, **set_to), observed)

    def memory(self) -> Dict[str, Any]:
        return memory_on_cpu()


class PhasedCpuBackend(CpuBackend):
    """The phases of a step are called one after the other, so each can be timed."""

    def phases(self) -> Optional[Sequence[str]]:
        return phases_of(self.phase())


class TableLowering:
    """Lowers layers by a table with one function for each operation."""

    def __init__(self, graph: WireGraph, arrays: Any, dtype: Any, training: bool, dropout: bool) -> None:
        self._graph = graph
        self._arrays = arrays  # parameters and buffers, as the framework has them
        self._dtype = dtype
        self._training = training
        self._dropout = dropout

    def _table(self) -> Dict[str, Callable[..., Any]]:
        raise NotImplementedError

    @property
    def ops(self) -> List[str]:
        return ["input"] + list(self._table())

    def lower(self, layer: WireLayer, *inputs: Any) -> Any:
        """Of frameworks with graphs, the layer's output; of others, the function that gives it from the inputs."""
        return self._table()[layer.op](layer, *inputs)
