"""Training with parameter servers in TensorFlow.

    scheme=server-async   driver    gives out parts ▶ ▶ ▶ ▶ ▶ ▶ ▶       a step ends when all its parts are done; the
                          worker 0  fetch, compute, send │ fetch, …      driver is a few steps ahead, and no worker
                          worker 1  fetch, compute, send │ fetch, …      waits for another
                          server    updates with each gradient as it comes, which counts as one of n

    scheme=server         driver    gives out parts ▶ ▶ waits ··· has servers update
                          workers   fetch, compute, send │ wait          servers add gradients up until all are there

TensorFlow's strategy knows the first one only. The second is made of the same pieces: what workers send is added to a
variable beside each parameter, and the driver waits for all before it has the servers update.

A batch has as many parts as there are workers. Each worker has the whole batch in memory, and takes the part that the
driver names. Programs without communication run in each worker on a copy of the network that is made when it is first
asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import tensorflow as tf

from deepstone.backends.base import Job, Timestamps, Unsupported, as_set
from deepstone.backends.effective import effective
from deepstone.backends.tensorflow.arrays import Arrangement, Variables
from deepstone.backends.tensorflow.cluster import Cluster
from deepstone.backends.tensorflow.effective import Effects, Observed
from deepstone.backends.tensorflow.isa import widest_isa
from deepstone.backends.tensorflow.lower import Lowering
from deepstone.backends.tensorflow.network import Network
from deepstone.backends.tensorflow.settings import Settings
from deepstone.backends.tensorflow.training import Steps, make_update, zeros_like
from deepstone.graph.graph import Graph
from deepstone.setups.schemes import SERVER_ASYNC, scheme_of

Tensor: TypeAlias = Any

_AHEAD: Final = 4  # steps of which the driver has given out parts, and which are not done


class Member(ABC):
    """One process of the cluster: what the backend asks of it."""

    def __init__(self, job: Job, graph: Graph, settings: Settings, cluster: Cluster) -> None:
        if settings.input != "resident":
            raise Unsupported("with servers, workers of TensorFlow have their batch in memory; use input=resident")
        if settings.compile != "graph":
            raise Unsupported("what a driver sends to workers is a program; use compile=graph")
        self._job, self._graph, self._settings, self._cluster = job, graph, settings, cluster
        self._scheme = scheme_of(job.request).name
        self._is_async = self._scheme == SERVER_ASYNC
        self._arrangement = Arrangement(graph, channels_last=settings.channels_last)

    @abstractmethod
    def step(self, program: str) -> Callable[[], Any]: ...

    def synchronize(self) -> None:
        """Wait for all steps that were begun."""
        return

    def timestamps(self, count: int, clock: Callable[[], float]) -> Timestamps:
        return Timestamps(count, clock)

    def loss(self) -> float:
        raise NotImplementedError

    def arrays(self, kind: str) -> dict[str, Any]:
        """The driver answers for those of all servers."""
        return {}

    def buckets(self) -> list[int]:
        """The bytes of the parameters of each server."""
        owned = owned_by(self._graph, self._cluster.processes.servers)
        return [self._settings.weights.size * sum(values for _, _, values in own) for own in owned]

    def sends(self) -> list[tuple[int, float]]:
        """What this process must send in a step: to which rank, and how many bytes."""
        world = self._cluster.processes
        if self._cluster.role == "worker":
            return [(world.processes + number, float(size)) for number, size in enumerate(self.buckets())]
        if self._cluster.role == "server":
            size = self.buckets()[self._cluster.rank - world.processes]
            return [(worker, float(size)) for worker in range(world.processes)]
        return []

    def effective(self) -> dict[str, dict[str, Any]]:
        """Others than the driver only know what was set."""
        threads = self._settings.threads
        observed = {
            "framework": f"tensorflow@{tf.__version__}",
            "threads": threads.intra,
            "inter_threads": threads.inter,
        }
        set_to = {
            "device": self._settings.effective_device,
            "isa": widest_isa(),
            **{name: getattr(self._settings, name) for name in ("compile", "algorithm", "precision", "engine")},
            "layout": self._settings.data_format.lower(),
        }
        return effective(self._job.request, set_to, observed) | self._between()

    def _between(self) -> dict[str, dict[str, Any]]:
        return {**self._cluster.effective(), "scheme": as_set(self._scheme)}

    def _steps(self, variables: Variables, part: slice) -> Steps:
        lowering = Lowering(self._graph, self._arrangement, self._settings)
        network = Network(self._graph, lowering, variables, self._settings)
        samples = self._arrangement.value(self._graph.input.name, self._job.samples[part])
        return Steps(network, variables, samples, self._job.labels[part], self._settings)


class Driver(Member):
    """Has the variables, which are in the memory of the servers, and what workers compute with them."""

    def __init__(self, job: Job, graph: Graph, settings: Settings, cluster: Cluster) -> None:
        super().__init__(job, graph, settings, cluster)
        self._workers = cluster.processes.processes
        with cluster.strategy.scope():
            self._variables = Variables(graph, job.weights, self._arrangement, settings)
        self._sums = [] if self._is_async else zeros_like(self._variables.parameters)
        self._own = self._steps(self._variables, slice(0, len(job.samples) // self._workers))
        self._batch = iter(cluster.coordinator.create_per_worker_dataset(self._dataset))
        self._parts = [tf.constant(part) for part in range(self._workers)]
        self._clock: Callable[[], float] = lambda: 0.0
        self._running: deque[Any] = deque()  # what workers have not yet answered, step by step
        self._ended: list[Callable[[], None]] = []  # for each of them, who is told
        self._last: list[Any] = []  # answers of the last step that has ended
        self._gradients: list[Tensor] = []
        self._work = self._worker_program()
        self._update = self._update_program()

    def _dataset(self) -> Any:
        samples = self._arrangement.value(self._graph.input.name, self._job.samples)
        arrays = [tf.cast(np.ascontiguousarray(samples), self._settings.weights), tf.constant(self._job.labels)]
        parts = [tf.reshape(array, [self._workers, -1, *array.shape[1:]]) for array in arrays]
        return tf.data.Dataset.from_tensors(tuple(parts)).repeat()

    def _worker_program(self) -> Any:
        count, keeps, is_async = self._workers, self._job.keeps_gradients, self._is_async
        update = self._own.update
        assert update is not None

        def work(batch: Any, part: Tensor) -> tuple[Tensor, list[Tensor]]:
            samples, labels = next(batch)
            loss, gradients, _ = self._own.loss_and_gradients(samples[part], labels[part])
            gradients = [gradient / count for gradient in gradients]
            if is_async:
                update.apply(gradients)
            else:
                for total, gradient in zip(self._sums, gradients, strict=True):
                    total.assign_add(gradient, read_value=False)
            return loss, gradients if is_async and keeps else []

        return tf.function(work, autograph=False)

    def _update_program(self) -> Any:
        """What servers do once all gradients are there."""
        update, keeps = self._own.update, self._job.keeps_gradients
        assert update is not None

        def apply() -> list[Tensor]:
            gradients: list[Tensor] = []
            for total in self._sums:
                with tf.device(total.device):
                    gradients.append(tf.identity(total))
            update.apply(gradients)
            for total, gradient in zip(self._sums, gradients, strict=True):
                with tf.device(total.device), tf.control_dependencies([gradient]):
                    total.assign(tf.zeros_like(gradient), read_value=False)
            return gradients if keeps else []

        return tf.function(apply, autograph=False)

    def step(self, program: str) -> Callable[[], Any]:
        if program == "exchange":
            return self._exchange_program()
        return self._begin if self._is_async else self._synchronous_step

    def _begin(self) -> None:
        """Give out the parts of one more step."""
        self._running.append([self._given(self._work, part) for part in self._parts])
        while len(self._running) > _AHEAD:
            self._end()

    def _given(self, work: Any, part: Tensor) -> Any:
        return self._cluster.coordinator.schedule(work, args=(self._batch, part))

    def _end(self) -> None:
        """Wait for the oldest step that has not ended."""
        answers = self._running.popleft()
        for answer in answers:
            answer.get()
        self._last = answers
        if self._ended:
            self._ended.pop(0)()

    def _synchronous_step(self) -> None:
        self._last = [self._given(self._work, part) for part in self._parts]
        for answer in self._last:
            answer.get()
        self._gradients = self._update()

    def synchronize(self) -> None:
        while self._running:
            self._end()

    def timestamps(self, count: int, clock: Callable[[], float]) -> Timestamps:
        if not self._is_async:
            return super().timestamps(count, clock)
        return _WhenStepsEnd(count, clock, self)

    def at_end_of_last(self, tell: Callable[[], None]) -> None:
        """Call once all steps that were begun have ended."""
        missing = len(self._running) - len(self._ended)
        self._ended += [lambda: None] * missing
        if self._ended:
            before = self._ended[-1]
            self._ended[-1] = lambda: (before(), tell())[0]
        else:
            tell()

    def _exchange_program(self) -> Callable[[], None]:
        """Workers fetch all parameters and send them back."""
        parameters = self._variables.parameters

        def work(_batch: Any, one: Tensor) -> None:
            for parameter in parameters:  # a product with what only the call knows, so that no optimizer leaves it out
                parameter.assign(parameter * tf.cast(one, parameter.dtype), read_value=False)

        program, one = tf.function(work, autograph=False), tf.constant(1.0)

        def exchange() -> None:
            for answer in [self._given(program, one) for _ in range(self._workers)]:
                answer.get()

        return exchange

    def loss(self) -> float:
        """The mean over parts."""
        self.synchronize()
        return float(np.mean([answer.fetch()[0] for answer in self._last]))

    def arrays(self, kind: str) -> dict[str, Any]:
        self.synchronize()
        if kind == "buffers":
            return self._variables.buffer_arrays()
        if kind == "parameters":
            return self._variables.parameter_arrays()
        found = self._gradients
        if self._is_async:
            found = [tf.add_n(list(each)) for each in zip(*(answer.fetch()[1] for answer in self._last), strict=True)]
        return self._variables.parameter_arrays(found) if found else {}

    def effective(self) -> dict[str, dict[str, Any]]:
        loss = self._last[0].fetch()[0]
        known = Effects(
            self._job.request, self._settings, Observed(), None, self._variables.parameters, tf.constant(loss)
        )
        found = known.of_every_axis() | self._between()
        found["batch"] = as_set(len(self._job.samples))
        return found


class _WhenStepsEnd(Timestamps):
    """The time at which all steps have ended that were begun before: the driver is some steps ahead of its workers."""

    def __init__(self, count: int, clock: Callable[[], float], driver: Driver) -> None:
        super().__init__(count, clock)
        self._driver = driver

    def set(self, position: int) -> None:
        self._driver.at_end_of_last(lambda: super(_WhenStepsEnd, self).set(position))


class Served(Member):
    """A worker or a server. It runs what the driver sends in threads of TensorFlow; what it does itself are programs
    without communication."""

    def __init__(self, job: Job, graph: Graph, settings: Settings, cluster: Cluster) -> None:
        super().__init__(job, graph, settings, cluster)
        self._alone: Steps | None = None
        self._update: Callable[[], Any] | None = None

    def step(self, program: str) -> Callable[[], Any]:
        if program == "train":
            return lambda: None
        if self._cluster.role == "server":
            repeats = self._cluster.processes.processes if self._is_async and program == "local" else 1
            update = self._update_alone()
            return lambda: [update() for _ in range(repeats)]
        if self._alone is None:
            variables = Variables(self._graph, self._job.weights, self._arrangement, self._settings)
            self._alone = self._steps(variables, slice(None))
        return self._alone.program("gradient" if program == "local" else program)

    def _update_alone(self) -> Callable[[], Any]:
        """An update of as many numbers as this server has, and not of the real ones."""
        if self._update is None:
            number = self._cluster.rank - self._cluster.processes.processes
            owned = owned_by(self._graph, self._cluster.processes.servers)[number]
            zeros = [tf.zeros([values], self._settings.weights) for _, _, values in owned]
            update = make_update(self._settings.optimizer, [tf.Variable(each) for each in zeros])
            program: Any = tf.function(lambda: update.apply(zeros), autograph=False)
            self._update = program.get_concrete_function()
        assert self._update is not None
        return self._update


def owned_by(graph: Graph, servers: int) -> list[list[tuple[str, str, int]]]:
    """Layer, name and number of values of the parameters that each server has. TensorFlow hands out parameters and
    buffers in turns."""
    found: list[list[tuple[str, str, int]]] = [[] for _ in range(servers)]
    turn = 0
    for layer in graph.layers:
        for name, shape in graph.parameters(layer).items():
            found[turn % servers].append((layer.name, name, int(np.prod(shape))))
            turn += 1
        turn += len(graph.buffers(layer))
    return found


def member_of(job: Job, graph: Graph, settings: Settings, cluster: Cluster) -> Member:
    return (Driver if cluster.role == "driver" else Served)(job, graph, settings, cluster)
