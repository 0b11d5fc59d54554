"""What a backend supplies to the worker. Written in the syntax of Python 3.6, since old frameworks run in old Pythons.

A backend module defines `make_backend()`, which imports the framework and returns a Backend.
The worker (worker/serve.py) owns the protocol, the clock and the files; a backend owns the framework.
"""

import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

STEP_PHASES = ("data", "forward", "backward", "update")  # of a whole training step, in order

# The update of a training step. The learning rate decides nothing about speed, but with 0.01 the networks
# without batch norm leave the range of numbers within five steps (docs/decisions/0009).
LEARNING_RATE = 1e-4
MOMENTUM = 0.9
ADAM_LEARNING_RATE = 1e-4
ADAMW_DECAY = 0.01  # of the weights, apart from the gradient: w = w - lr * decay * w, then as Adam


class Unsupported(Exception):
    """The framework cannot do what the job asks; the message is the reason. Becomes the outcome `unsupported`."""


class Missing(Exception):
    """A device or library that the job names is not there; the message says how to get it."""


def as_observed(value: Any) -> Dict[str, Any]:
    """An effective value that was read back from the framework."""
    return {"value": value, "source": "observed"}


def as_set(value: Any, seen: bool = False) -> Dict[str, Any]:
    """An effective value that we set and the framework took; `seen`: it was read back as well."""
    return {"value": value, "source": "observed" if seen else "set"}


def phases_of(phase: str) -> Tuple[str, ...]:
    """What a step of `forward`, `gradient` or `train` goes through."""
    return STEP_PHASES[: {"forward": 2, "gradient": 3, "train": 4}[phase]]


def memory_on_cpu() -> Dict[str, Any]:
    """The answer of `Backend.memory` where the device has no memory of its own."""
    absent = {"absent": "the step ran on the CPU; see host_peak_bytes"}
    return {"device_allocated_bytes": absent, "device_reserved_bytes": absent}


class Group:
    """The processes that train together, as one of them knows them."""

    def __init__(self, rank: int, world: int, transport: str, interface: str, address: str, port: int) -> None:
        self.rank = rank
        self.world = world  # how many there are
        self.transport = transport  # as the request has it, `auto` included
        self.interface = interface
        self.address = address  # where rank 0 waits for the others
        self.port = port


class Job:
    """What one worker is to run."""

    def __init__(
        self,
        graph: Dict[str, Any],
        weights: Dict[str, Dict[str, Any]],
        samples: Any,
        labels: Any,
        request: Dict[str, Any],
        scratch: str,
        group: Optional[Group] = None,
    ) -> None:
        self.graph = graph  # as Graph.to_worker_json() gives it
        self.weights = weights  # layer -> parameter -> float32 array (read-only)
        self.samples = samples  # float32, N C H W; None where a user's file says what the inputs are
        self.labels = labels  # int64; None with samples
        self.request = request  # every axis
        self.scratch = scratch  # a folder of this job's own
        self.group = group  # None where one process trains alone; else `batch` of the request is this process' share


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


class Timestamps:
    """Timestamps of the device's own clock. These are of the host's, for devices that work when they are told."""

    def __init__(self, count: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times = [0.0] * count
        self.waited_s = 0.0  # how long taking timestamps has waited for the device

    def set(self, position: int) -> None:
        self._times[position] = self._clock()

    def set_after(self, phase: int) -> None:
        """The end of a phase; position 0 is the start of the step."""
        self.set(phase + 1)

    def gaps_s(self) -> List[float]:
        """Seconds between each timestamp and the next. Call it after synchronizing."""
        return [after - before for before, after in zip(self._times, self._times[1:])]


class StepAccount:
    """Where the time of one step went, in seconds. Every part was measured; none is what was left over."""

    def __init__(
        self,
        total_s: float,
        layers: Dict[Tuple[str, str], float],
        data_s: float = 0.0,
        update_s: float = 0.0,
        gaps_s: float = 0.0,
        other: Optional[Dict[str, float]] = None,
    ) -> None:
        self.total_s = total_s  # from the step's first moment to its last
        self.layers = layers  # (name of the layer, "forward" or "backward") -> seconds
        self.data_s = data_s
        self.update_s = update_s
        self.gaps_s = gaps_s  # when nothing of the above ran
        self.other = other or {}  # what belongs to no single layer, by what it is


class ModulePart:
    """A part of a user's own module: an innermost submodule, or a function that is called outside of these."""

    def __init__(self, name: str, op: str, path: str, parameters: int, flops: Dict[str, Any]) -> None:
        self.name = name  # as StepAccount.layers calls it
        self.op = op  # its class, or the function with ()
        self.path = path  # of the submodule, or of the one whose forward calls the function; "" is the whole module
        self.parameters = parameters
        self.flops = flops  # "forward" and "backward" -> a number, or {"absent": reason}


class InPlace:
    """What layers took inside whole steps, and how that was found out."""

    def __init__(self, method: str, rule: str, steps: List[StepAccount]) -> None:
        self.method = method  # in a few words
        self.rule = rule  # how time that several layers have in common is shared among them, in a sentence
        self.steps = steps
        self.parts: List[ModulePart] = []  # where the model is a user's own module and the framework can look inside
        self.containers: Dict[str, str] = {}  # the class of each submodule that has parts, by its path


class IsolatedLayer:
    """One layer in isolation on its real shapes, ready to be timed.

    Programs are `forward`, `backward` (all gradients) and, for layers with weights, `data` (the gradient of the input
    alone) and `weight` (those of the weights alone). A framework that cannot run the latter without the former has
    `forward+backward`, `forward+data`, `forward+weight` instead, and the controller subtracts.
    """

    def __init__(self, programs: Dict[str, Callable[[], None]], timing: Any, beside: str = "") -> None:
        self.programs = programs
        self.timing = timing  # has synchronize(), timestamps(count) and clock(), as a Backend does
        self.beside = beside  # what each program does that a step does not, in a few words


class ConvolutionTrial:
    """One pass of one convolution in isolation, and the algorithms that can be tried on it.

    `attempt` runs an algorithm once and gives its program and what is known of it: `workspace_bytes`, `relative_error`
    (each a number or {"absent": reason}) and what else there is. It raises Unsupported where the algorithm cannot.
    """

    def __init__(
        self,
        facts: Dict[str, Any],
        attempt: Callable[[str], Tuple[Callable[[], Any], Dict[str, Any]]],
        timing: Any,
    ) -> None:
        self.facts = facts  # `algorithms` [[name, formula of its count]], `picked`, `device`, `precision`, `layout`
        self.programs: Dict[str, Callable[[], Any]] = {}
        self.timing = timing  # as an IsolatedLayer has it
        self._attempt = attempt

    def attempt(self, algorithm: str) -> Dict[str, Any]:
        self.programs[algorithm], known = self._attempt(algorithm)
        return known


class Backend:
    """One framework running one job. Methods come in the order in which the worker calls them."""

    def versions(self) -> Dict[str, Any]:
        """Facts about the framework for the record: `version` at least."""
        raise NotImplementedError

    def open_rendezvous(self, address: str) -> int:
        """Rank 0 waits for the others; the port at which they find it."""
        raise Unsupported("this backend trains in one process only")

    def join(self, group: Group) -> Dict[str, Any]:
        """Meet the other processes. `world`: how many there are, read back from the library; `transport`."""
        raise Unsupported("this backend trains in one process only")

    def barrier(self) -> None:
        """Wait until all processes are here. Only called after `join`."""

    def restore(self) -> None:
        """Have all processes take the parameters, buffers and optimizer state of rank 0."""

    def build(self, job: Job) -> None:
        """Lower the graph, load the weights, place the batch. May raise Unsupported or Missing."""
        raise NotImplementedError

    def step(self, program: str) -> Callable[[], None]:
        """The function that runs one step of `forward`, `gradient` or `train`, without waiting for the device.

        The job's own phase is always there; the others only where `phases` is None, to time phases by difference. In a
        group there are also `local`, the step without any communication, and `meet`, in which processes only wait for
        each other.
        """
        raise NotImplementedError

    def first_step(self) -> None:
        """Run the job's first step and wait for it. A backend that can observe its steps does so here."""
        self.step(self.phase())()
        self.synchronize()

    def observe_again(self) -> None:
        """One more observed step at the end of a run, where a later step may do something else than the first."""

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

    def timestamps(self, count: int) -> Timestamps:
        return Timestamps(count, self.clock)

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
        """One layer of the job in isolation, lowered as it is in the network, with the job's weights and labels.

        `inputs` are NumPy arrays by the name of the layer they come from, batch first, channels first. `upstream` is
        the gradient of the layer's output; None where the job has no backward pass.
        """
        raise Unsupported("this backend does not run single layers")

    def in_place(self, steps: int) -> InPlace:
        """Run `steps` steps of the job's phase, and tell what each layer took in each of them."""
        raise Unsupported("this backend does not time layers inside a step")

    def isolated_layer(self, name: str) -> IsolatedLayer:
        """The layer with the job's weights and shapes on arrays of the job's precision, layout and device."""
        raise Unsupported("this backend does not time single layers")

    def trace(self, steps: int, path: str) -> Dict[str, Any]:
        """Run `steps` steps under the framework's own profiler; write its Chrome trace to `path` if not empty.

        Gives `kernels` and `calls` (lists of {"name", "kind", "count", "total_s"}, kernels with "layers" where known),
        `busy_s` and `span_s` of the device, and `idle` ({"waiting for the host", "between kernels"} in seconds), each
        over all steps; what is not known is {"absent": reason}.
        """
        raise Unsupported("this backend has no profiler that Deepstone reads")

    def ceiling(self, wanted: Dict[str, Any]) -> IsolatedLayer:
        """One program, named by `wanted["kind"]`, that does nothing but one thing the job's device has a limit for.

        `product`: two square matrices of `size` in `precision` (fp32, tf32, bf16, fp16 or fp64); `copy`: `bytes` read
        and as many written; `link`: `bytes` sent to the GPU with the number `peer`.
        """
        raise Unsupported("this backend does not measure a machine's ceilings")

    def convolution(self, name: str, direction: str) -> ConvolutionTrial:
        """The pass `forward`, `data` or `weight` of the convolution in layer `name`, in isolation."""
        raise Unsupported("this framework does not let an algorithm be chosen for a convolution")

    def memory_by_layer(self) -> List[Tuple[str, Dict[str, Any]]]:
        """Run one step, and tell for each layer kept_bytes and workspace_bytes, or {"absent": reason}.

        Kept is what the step holds on to for its backward pass beside weights, in arrays that the layer made;
        workspace is what it took for itself while it ran, and gave back.
        """
        raise Unsupported("this framework does not tell which layer takes which memory")

    def available_bytes(self) -> Any:
        """What of the device's memory this process has or could have, or {"absent": reason}."""
        return {"absent": "this framework does not tell how much memory a device has"}

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
