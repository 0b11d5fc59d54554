"""The interface between a backend and the worker. In the syntax of Python 3.6, since old frameworks need old Pythons.

A backend module defines `make_backend()`, which imports the framework and returns a Backend.
The worker (worker/serve.py) owns the protocol, the clock and the files; a backend owns the framework.
"""

import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

STEP_PHASES = ("data", "forward", "backward", "update")  # of a whole training step, in order

# The update of a training step. The learning rate does not affect speed, but with 0.01, networks without batch norm
# overflow within five steps (docs/decisions/0009).
LEARNING_RATE = 1e-4
MOMENTUM = 0.9
ADAM_LEARNING_RATE = 1e-4
ADAMW_DECAY = 0.01  # of the weights, separate from the gradient: w = w - lr * decay * w, then as Adam


class Unsupported(Exception):
    """The framework cannot do what the job asks; the message is the reason. Becomes the outcome `unsupported`."""


class Missing(Exception):
    """A device or library that the job names is missing; the message says how to install it."""


def as_observed(value: Any) -> Dict[str, Any]:
    """Return an effective value that was read back from the framework."""
    return {"value": value, "source": "observed"}


def as_set(value: Any, seen: bool = False) -> Dict[str, Any]:
    """Return an effective value that we set and the framework accepted; `seen`: it was also read back."""
    return {"value": value, "source": "observed" if seen else "set"}


def phases_of(phase: str) -> Tuple[str, ...]:
    """Return the phases of a step of `forward`, `gradient` or `train`."""
    return STEP_PHASES[: {"forward": 2, "gradient": 3, "train": 4}[phase]]


def memory_on_cpu() -> Dict[str, Any]:
    """Return the answer of `Backend.memory` for a device without its own memory."""
    absent = {"absent": "the step ran on the CPU; see host_peak_bytes"}
    return {"device_allocated_bytes": absent, "device_reserved_bytes": absent}


class Group:
    """The processes that train together, as one of them knows them."""

    def __init__(
        self,
        rank: int,
        world: int,
        local_rank: int,
        addresses: Sequence[str],
        request: Dict[str, Any],
        role: str,
        share: int,
        shares: int,
    ) -> None:
        self.rank = rank
        self.local_rank = local_rank  # among those of its node
        self.world = world  # how many there are
        self.addresses = list(addresses)  # `host:port` of every rank; port 0 where it has opened none
        self.request = request  # every axis, `auto` included; `batch` is that of the whole job
        # `worker`; `server`, which keeps parameters for the workers; `driver`, which makes them step: it has the last
        # rank and the whole batch
        self.role = role
        self.share = share  # which part of the batch this process has
        self.shares = shares  # into how many parts the batch is shared out

    @property
    def device(self) -> str:
        return str(self.request["device"])

    @property
    def transport(self) -> str:
        return str(self.request["transport"])

    @property
    def interface(self) -> str:
        return str(self.request["interface"])

    @property
    def address(self) -> str:
        """The host of rank 0, where the others look for it."""
        return self.addresses[0].rpartition(":")[0]

    @property
    def port(self) -> int:
        """That of rank 0."""
        return int(self.addresses[0].rpartition(":")[2])


def own_gpu(device: str, group: Optional[Group], seen: int) -> int:
    """Return the number of the GPU of a process: the one that `device` names, else that of its place on its node.

    `seen`: how many GPUs the framework finds. Raises Missing if there are too few.
    """
    place = 0 if group is None else group.local_rank
    index = place if device == "auto" else int(device.partition(":")[2])
    if index < seen:
        return index
    if group is None:
        raise Missing(f"device {device}: the framework sees {seen} GPU(s); use gpu:0 to the last of them")
    raise Missing(
        f"device gpu:{index}: rank {group.rank} is process {place + 1} of its node, and the framework sees {seen} "
        "GPU(s) there; every process needs one of its own: use fewer processes or device=cpu, or let each process see "
        "all GPUs of its node"
    )


class Job:
    """The job of one worker."""

    def __init__(
        self,
        graph: Dict[str, Any],
        weights: Dict[str, Dict[str, Any]],
        samples: Any,
        labels: Any,
        request: Dict[str, Any],
        scratch: str,
        group: Optional[Group] = None,
        keeps_gradients: bool = False,
        data_seed: int = 0,
        perturbation: float = 0.0,
        like_photographs: bool = False,
    ) -> None:
        self.graph = graph  # as Graph.to_worker_json() gives it
        self.weights = weights  # layer -> parameter -> float32 array (read-only)
        self.samples = samples  # float32, N C H W; None if a user's file defines the inputs
        self.labels = labels  # int64; None with samples
        self.request = request  # every axis
        self.scratch = scratch  # a private folder of this job
        self.keeps_gradients = keeps_gradients  # after a step of phase=train, to be dumped; a timed step need not
        self.data_seed = data_seed  # that of the batch; the axis `seed` unless a check wants other data
        self.perturbation = (
            perturbation  # the share by which `weights` are changed; those of a user's module are not yet
        )
        self.like_photographs = like_photographs  # whether `samples` are; those of a user's file are not made yet
        self.group = group  # None where one process trains alone; else `batch` of the request is this process' share


class LayerResult:
    """The result of one layer for given inputs, as NumPy arrays in the order of the graph (channels first)."""

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
        self.buffers = buffers or {}  # after the step


class Timestamps:
    """Timestamps of the device's own clock. This class uses the host's clock, for synchronous devices."""

    def __init__(self, count: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times = [0.0] * count
        self.waited_s = 0.0  # how long taking timestamps has waited for the device

    def set(self, position: int) -> None:
        self._times[position] = self._clock()

    def set_after(self, phase: int) -> None:
        """Set the timestamp of the end of a phase; position 0 is the start of the step."""
        self.set(phase + 1)

    def gaps_s(self) -> List[float]:
        """Return the seconds between each timestamp and the next. Call it after synchronizing."""
        return [after - before for before, after in zip(self._times, self._times[1:])]


class TracedStep:
    """When a step of a group and its parts began and ended, in seconds of the worker's clock.

    A span is (kind, begin, end, bytes). Kinds: `data`, `forward`, `backward` (only its computing), `update`; `buffers`
    (sent by rank 0 before forward), `pack` and `unpack` (gradients into a buffer and back, after backward's computing),
    `reduce` (one bucket, from when it is ready until its sum is there). Only `reduce` has bytes, and only it may run
    beside others.
    """

    def __init__(self, begin_s: float, end_s: float, spans: List[Tuple[str, float, float, int]]) -> None:
        self.begin_s = begin_s
        self.end_s = end_s
        self.spans = spans


class StepAccount:
    """The times of the parts of one step, in seconds. Every part was measured; none is a remainder."""

    def __init__(
        self,
        total_s: float,
        layers: Dict[Tuple[str, str], float],
        data_s: float = 0.0,
        update_s: float = 0.0,
        gaps_s: float = 0.0,
        other: Optional[Dict[str, float]] = None,
    ) -> None:
        self.total_s = total_s  # from the start of the step to its end
        self.layers = layers  # (name of the layer, "forward" or "backward") -> seconds
        self.data_s = data_s
        self.update_s = update_s
        self.gaps_s = gaps_s  # time in which none of the above ran
        self.other = other or {}  # parts that belong to no single layer, by name


class ModulePart:
    """A part of a user's own module: an innermost submodule, or a function that is called outside of these."""

    def __init__(self, name: str, op: str, path: str, parameters: int, flops: Dict[str, Any]) -> None:
        self.name = name  # as StepAccount.layers calls it
        self.op = op  # its class, or the function with ()
        self.path = path  # of the submodule, or of the one whose forward calls the function; "" is the whole module
        self.parameters = parameters
        self.flops = flops  # "forward" and "backward" -> a number, or {"absent": reason}


class InPlace:
    """Times of layers inside whole steps, and the method of measurement."""

    def __init__(self, method: str, rule: str, steps: List[StepAccount]) -> None:
        self.method = method  # in a few words
        self.rule = rule  # how the time of fused layers is divided, in a sentence
        self.steps = steps
        self.parts: List[ModulePart] = []  # where the model is a user's own module and the framework can look inside
        self.containers: Dict[str, str] = {}  # the class of each submodule that has parts, by its path


class IsolatedLayer:
    """One isolated layer on its real shapes, ready to be timed.

    Programs are `forward`, `backward` (all gradients) and, for layers with weights, `data` (only the gradient of the
    input) and `weight` (only those of the weights). A framework that cannot run backward without forward has
    `forward+backward`, `forward+data`, `forward+weight` instead, and the controller subtracts.
    """

    def __init__(self, programs: Dict[str, Callable[[], None]], timing: Any, beside: str = "") -> None:
        self.programs = programs
        self.timing = timing  # has synchronize(), timestamps(count) and clock(), as a Backend does
        self.beside = beside  # overhead included in each time, in a few words


class ConvolutionTrial:
    """One isolated pass of one convolution, and the algorithms to try on it.

    `attempt` runs an algorithm once and returns its program and facts about it: `workspace_bytes`, `relative_error`
    (each a number or {"absent": reason}) and others. It raises Unsupported if the algorithm does not apply.
    """

    def __init__(
        self,
        facts: Dict[str, Any],
        attempt: Callable[[str], Tuple[Callable[[], Any], Dict[str, Any]]],
        timing: Any,
    ) -> None:
        self.facts = facts  # `algorithms` [[name, formula of its count]], `picked`, `device`, `precision`, `layout`
        self.programs: Dict[str, Callable[[], Any]] = {}
        self.timing = timing  # as in IsolatedLayer
        self._attempt = attempt

    def attempt(self, algorithm: str) -> Dict[str, Any]:
        self.programs[algorithm], known = self._attempt(algorithm)
        return known


class Backend:
    """Runs one job on one framework. Methods are in the order in which the worker calls them."""

    def versions(self) -> Dict[str, Any]:
        """Return facts about the framework for the record: `name` and `version` at least."""
        raise NotImplementedError

    def preload(self) -> None:
        """Import what `build` would import. It must not touch a device: another worker may be computing there."""

    def keep_programs(self, folder: str) -> None:
        """From now on, keep compiled programs in this folder, and take them from there. Frameworks that compile
        nothing, or quickly, need not."""

    def open_rendezvous(self, address: str, rank: int, world: int) -> int:
        """Be ready for the others at a port of this address; 0 if nobody looks for this rank."""
        raise Unsupported("this backend trains in one process only")

    def join(self, group: Group) -> Dict[str, Any]:
        """Meet the other processes. `world` and `rank`: how many there are and which one this is, read back from the
        library; `transport`, and what the `library` calls itself."""
        raise Unsupported("this backend trains in one process only")

    def barrier(self) -> None:
        """Wait until all processes are here. Only called after `join`."""

    def buckets(self) -> List[int]:
        """The bytes of each group of gradients that are exchanged together, in order; empty where it is not known. A
        framework may arrange them anew after its first steps."""
        return []

    def assignment(self) -> Dict[str, Any]:
        """What this process has and must send in a step, where processes differ: `stages`, a list of {"stage", "layers"
        (how many), "first", "last", "share" (of the cost of all), "method"}, and `sends`, a list of [rank, bytes]."""
        return {"stages": [], "sends": []}

    def transfer(self, operation: str, size: int) -> Dict[str, Any]:
        """Make ready to send `size` bytes between processes by `operation` (setups/transfers.py), and do it once with
        numbers whose result is known. `program`: what `step` calls it from now on; `wrong`: what is wrong with the
        result, or nothing."""
        raise Unsupported("this backend does not time communication apart from training")

    def beside(self, transfer: str, transfers: int, program: str, steps: int) -> Dict[str, Any]:
        """Run `transfers` transfers in one thread and `steps` steps of a program in another, at the same time; -1:
        steps until the transfers are done. `transfer_s` and `step_s`: how long each took while both ran."""
        raise Unsupported("this backend does not compute and communicate in two threads")

    def restore(self) -> None:
        """Have all processes take the parameters, buffers and optimizer state of rank 0."""

    def open_timeline(self) -> Sequence[str]:
        """Get ready for steps that tell when their parts begin and end, after all timed ones. All processes of a group
        are called together. Returns the programs: `train`, `local` (without communication) and, where gradients are
        packed inside backward, `pack` (everything but the reductions). May raise Unsupported."""
        raise Unsupported("this backend does not tell when the parts of a step begin and end")

    def timeline_step(self, program: str) -> Callable[[], TracedStep]:
        """Return the function that runs one such step. Its time is never reported as speed."""
        raise NotImplementedError

    def logged_times(self, steps: int) -> Dict[str, List[float]]:
        """Run `steps` plain steps, and return what the framework itself logs of each, in seconds: `forward_s`,
        `backward_s` (its computing), `communication_s` (from the first bucket to the last) and `overlap_s`."""
        raise Unsupported("this framework logs no times of its own")

    def close_timeline(self) -> None:
        """Let go of what `open_timeline` made."""

    def build(self, job: Job) -> None:
        """Lower the graph, load the weights, place the batch. May raise Unsupported or Missing."""
        raise NotImplementedError

    def step(self, program: str) -> Callable[[], None]:
        """Return the function that runs one step of `forward`, `gradient` or `train`, without waiting for the device.

        The job's own phase always exists; the others only if `phases` is None, to time phases by difference. In a
        group there are also `local`, the step without any communication, and `meet`, in which processes only wait for
        each other.
        """
        raise NotImplementedError

    def first_step(self) -> None:
        """Run the job's first step and wait for it. A backend that can observe its steps does so here."""
        self.step(self.phase())()
        self.synchronize()

    def observe_again(self) -> None:
        """Run one more observed step at the end of a run, if later steps may differ from the first."""

    def phase(self) -> str:
        raise NotImplementedError

    def observe(self) -> Dict[str, Dict[str, Any]]:
        """Return {"value": …, "source": "observed" | "set"} for every axis, after the first step."""
        raise NotImplementedError

    def details(self) -> Dict[str, Any]:
        """Return further facts about the first step, for the record's environment."""
        return {}

    def phases(self) -> Optional[Sequence[str]]:
        """Return the phases that `step_in_phases` times, in order, or None if a step is one program."""
        raise NotImplementedError

    def step_in_phases(self, set_timestamp: Callable[[int], None]) -> None:
        """Run one step of the job that calls set_timestamp(i) at the end of phase i."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait until the device has finished all its work."""

    def timestamps(self, count: int) -> Timestamps:
        return Timestamps(count, self.clock)

    def clock(self) -> float:
        """Return monotonic seconds."""
        return time.perf_counter()

    def loss(self) -> float:
        """Return the loss of the last step, read back from the device. Where a driver makes workers step, only it is
        asked."""
        raise NotImplementedError

    def arrays(self, kind: str) -> Dict[str, Any]:
        """Return NumPy arrays by `layer/array`; kind is `parameters`, `gradients` or `buffers`.

        They are in float64 if the job is, else in float32. Gradients are those of the last step; a backend whose step
        is one program has them only in phase=gradient, or if the job says that steps keep them.
        """
        raise NotImplementedError

    def layer(self, name: str, inputs: Dict[str, Any], upstream: Optional[Any]) -> "LayerResult":
        """Run one isolated layer of the job, lowered as in the network, with the job's weights and labels.

        `inputs` are NumPy arrays by the name of their source layer, batch first, channels first. `upstream` is the
        gradient of the layer's output; None if the job has no backward pass.
        """
        raise Unsupported("this backend does not run single layers")

    def in_place(self, steps: int) -> InPlace:
        """Run `steps` steps of the job's phase, and return the time of each layer in each of them."""
        raise Unsupported("this backend does not time layers inside a step")

    def isolated_layer(self, name: str) -> IsolatedLayer:
        """Return the layer with the job's weights and shapes on arrays of the job's precision, layout and device."""
        raise Unsupported("this backend does not time single layers")

    def trace(self, steps: int, path: str) -> Dict[str, Any]:
        """Run `steps` steps under the framework's own profiler; write its Chrome trace to `path` if not empty.

        Returns `kernels` and `calls` (lists of {"name", "kind", "count", "total_s"}, kernels with "layers" if known),
        `busy_s` and `span_s` of the device, and `idle` ({"waiting for the host", "between kernels"} in seconds), each
        over all steps; unknown values are {"absent": reason}.
        """
        raise Unsupported("this backend has no profiler that Deepstone reads")

    def ceiling(self, wanted: Dict[str, Any]) -> IsolatedLayer:
        """Return one program, named by `wanted["kind"]`, that measures one ceiling of the job's device.

        `product`: two square matrices of `size` in `precision` (fp32, tf32, bf16, fp16 or fp64); `copy`: `bytes` read
        and as many written; `link`: `bytes` sent to the GPU with the number `peer`.
        """
        raise Unsupported("this backend does not measure a machine's ceilings")

    def convolution(self, name: str, direction: str) -> ConvolutionTrial:
        """Return the isolated pass `forward`, `data` or `weight` of the convolution in layer `name`."""
        raise Unsupported("this framework does not let an algorithm be chosen for a convolution")

    def memory_by_layer(self) -> List[Tuple[str, Dict[str, Any]]]:
        """Run one step, and return kept_bytes and workspace_bytes, or {"absent": reason}, for each layer.

        Kept bytes are the layer's arrays that are kept for backward, without weights; the workspace is memory that the
        layer allocated while it ran and freed again.
        """
        raise Unsupported("this framework does not tell which layer takes which memory")

    def available_bytes(self) -> Any:
        """Return the device memory that this process has or could have, or {"absent": reason}."""
        return {"absent": "this framework does not tell how much memory a device has"}

    def memory(self) -> Dict[str, Any]:
        """Return device_allocated_bytes and device_reserved_bytes: peaks since the first step, or {"absent":
        reason}."""
        raise NotImplementedError

    def is_unsupported(self, error: BaseException) -> bool:
        """Whether the error means that the framework does not implement the request."""
        return isinstance(error, NotImplementedError)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError)

    def close(self) -> None:
        """Release everything."""
