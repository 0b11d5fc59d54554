"""What a backend supplies to the worker. Written in the syntax of Python 3.6, since old frameworks run in old Pythons.

A backend module defines `make_backend()`, which imports the framework and returns a Backend.
The worker (worker/serve.py) owns the protocol, the clock and the files; a backend owns the framework.
"""

import time
from typing import Any, Callable, Dict, List, Optional, Sequence

PHASES = ("data", "forward", "backward", "update")

# The update of a training step. The learning rate decides nothing about speed, but with 0.01 the networks
# without batch norm leave the range of numbers within five steps (docs/decisions/0009).
LEARNING_RATE = 1e-4
MOMENTUM = 0.9
ADAM_LEARNING_RATE = 1e-4


class Unsupported(Exception):
    """The framework cannot do what the job asks; the message is the reason. Becomes the outcome `unsupported`."""


def as_observed(value: Any) -> Dict[str, Any]:
    """An effective value that was read back from the framework."""
    return {"value": value, "source": "observed"}


def as_set(value: Any, seen: bool = False) -> Dict[str, Any]:
    """An effective value that we set and the framework took; `seen`: it was read back as well."""
    return {"value": value, "source": "observed" if seen else "set"}


class Missing(Exception):
    """A device or library that the job names is not there; the message says how to get it."""


class Job:
    """What one worker is to run."""

    def __init__(
        self,
        graph: Dict[str, Any],
        weights: Dict[str, Dict[str, Any]],
        images: Any,
        labels: Any,
        request: Dict[str, Any],
        scratch: str,
    ) -> None:
        self.graph = graph  # as Graph.to_worker_json() gives it
        self.weights = weights  # layer -> parameter -> float32 array (read-only)
        self.images = images  # float32, N C H W
        self.labels = labels  # int64
        self.request = request  # every axis
        self.scratch = scratch  # a folder of this job's own


class LayerResult:
    """What one layer gave for given inputs, as NumPy arrays in the order of the graph (channels first)."""

    def __init__(
        self,
        output: Any,
        inputs: Optional[Dict[str, Any]] = None,
        parameters: Optional[Dict[str, Any]] = None,
        buffers: Optional[Dict[str, Any]] = None,
    ) -> None:
        self.output = output
        self.inputs = inputs or {}  # the gradient of each input, by the name of the layer it comes from
        self.parameters = parameters or {}  # the gradient of each parameter
        self.buffers = buffers or {}  # as they are after the step


class Marks:
    """Points in time on the device's own clock. This one is the host's, for devices that work when they are told."""

    def __init__(self, count: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times = [0.0] * count
        self.waited_s = 0.0  # how long setting marks has waited for the device

    def set(self, position: int) -> None:
        self._times[position] = self._clock()

    def set_after(self, phase: int) -> None:
        """Mark the end of a phase; position 0 is the start of the step."""
        self.set(phase + 1)

    def gaps_s(self) -> List[float]:
        """Seconds between each mark and the next. Call it after synchronizing."""
        return [after - before for before, after in zip(self._times, self._times[1:])]


class Backend:
    """One framework running one job. Methods come in the order in which the worker calls them."""

    def versions(self) -> Dict[str, Any]:
        """Facts about the framework for the record: `version` at least."""
        raise NotImplementedError

    def build(self, job: Job) -> None:
        """Lower the graph, load the weights, place the batch. May raise Unsupported or Missing."""
        raise NotImplementedError

    def step(self, program: str) -> Callable[[], None]:
        """The function that runs one step of `forward`, `gradient` or `train`, without waiting for the device.

        The job's own phase is always there; the others only where `phases` is None, to time phases by difference.
        """
        raise NotImplementedError

    def first_step(self) -> None:
        """Run the job's first step and wait for it. A backend that can watch itself does so here."""
        self.step(self.phase())()
        self.synchronize()

    def phase(self) -> str:
        raise NotImplementedError

    def observe(self) -> Dict[str, Dict[str, Any]]:
        """For every axis {"value": …, "source": "observed" | "set"}, after the first step."""
        raise NotImplementedError

    def details(self) -> Dict[str, Any]:
        """What else the first step showed, for the record's environment."""
        return {}

    def phases(self) -> Optional[Sequence[str]]:
        """The phases `step_in_phases` marks, in order, or None where a step is one program."""
        raise NotImplementedError

    def step_in_phases(self, mark: Callable[[int], None]) -> None:
        """One step of the job that calls mark(i) at the end of phase i."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait until the device has done all it was told."""

    def marks(self, count: int) -> Marks:
        return Marks(count, self.clock)

    def clock(self) -> float:
        """Monotonic seconds."""
        return time.perf_counter()

    def loss(self) -> float:
        """The loss of the last step, read back from the device."""
        raise NotImplementedError

    def arrays(self, kind: str) -> Dict[str, Any]:
        """NumPy arrays named `layer/array`; kind is `parameters`, `gradients` or `buffers`.

        In float64 when the job is, else in float32. Gradients are those of the last step, which a backend whose step
        is one program has in phase=gradient only.
        """
        raise NotImplementedError

    def layer(self, name: str, inputs: Dict[str, Any], upstream: Optional[Any]) -> "LayerResult":
        """One layer of the job by itself, lowered as it is in the network, with the job's weights and labels.

        `inputs` are NumPy arrays by the name of the layer they come from, batch first, channels first. `upstream` is
        the gradient of the layer's output; None where the job has no backward pass.
        """
        raise Unsupported("this backend does not run single layers")

    def memory(self) -> Dict[str, Any]:
        """device_allocated_bytes and device_reserved_bytes: peaks since the first step, or {"absent": reason}."""
        raise NotImplementedError

    def is_unsupported(self, error: BaseException) -> bool:
        """Whether the error says that the framework has no code for what was asked."""
        return isinstance(error, NotImplementedError)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError)

    def close(self) -> None:
        """Let go of everything."""
