"""The TensorFlow backend: connects lowering, settings, steps and observation to the worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from deepstone.backends.base import Group, IsolatedLayer, Job, LayerResult, Timestamps, memory_on_cpu
from deepstone.backends.ports import ReservedPort
from deepstone.backends.tensorflow.arrays import Arrangement, Variables
from deepstone.backends.tensorflow.cluster import Cluster
from deepstone.backends.tensorflow.effective import Effects, Observed, observing
from deepstone.backends.tensorflow.isolated import LayerRunner
from deepstone.backends.tensorflow.lower import Lowering
from deepstone.backends.tensorflow.network import Network
from deepstone.backends.tensorflow.processes import Processes, reductions_of
from deepstone.backends.tensorflow.server import Member, member_of
from deepstone.backends.tensorflow.settings import Settings, apply
from deepstone.backends.tensorflow.training import Steps
from deepstone.backends.tensorflow.transfers import Transfers
from deepstone.backends.transfers import run_beside
from deepstone.backends.xla.steps import TracedBackend
from deepstone.setups.schemes import scheme_of

if TYPE_CHECKING:  # loaded when layers are measured
    from deepstone.backends.tensorflow.trace import Tracer


class SynchronizingTimestamps(Timestamps):
    """Timestamps that wait for the device: TensorFlow has no events to time a GPU with."""

    def set(self, position: int) -> None:
        tf.test.experimental.sync_devices()
        super().set(position)


class TensorFlowBackend(TracedBackend):
    _settings: Settings
    _arrangement: Arrangement
    _variables: Variables
    _steps: Steps
    _reserved: ReservedPort | None = None  # where this process will wait for others
    _processes: Processes | None = None  # that train together, if there are several
    _cluster: Cluster | None = None  # those with parameter servers
    _member: Member | None = None  # of that cluster
    _transfers: Transfers | None = None

    def __init__(self) -> None:
        self._observed = Observed()

    def versions(self) -> dict[str, Any]:
        build = tf.sysconfig.get_build_info()
        return {
            "name": "tensorflow",
            "version": tf.__version__,
            "numpy": np.__version__,
            "cuda": build.get("cuda_version", {"absent": "TensorFlow is built without CUDA"}),
            "cudnn": build.get("cudnn_version", {"absent": "TensorFlow is built without cuDNN"}),
            "compiled_with": " ".join(tf.sysconfig.get_compile_flags()),
        }

    def open_rendezvous(self, address: str, rank: int, world: int) -> int:
        self._reserved = ReservedPort(address)
        return self._reserved.number

    def join(self, group: Group) -> dict[str, Any]:
        if scheme_of(group.request).has_servers:
            self._cluster = found = Cluster(group, self._reserved)
        else:
            self._processes = found = Processes(group, self._reserved)
        return {"world": found.world, "rank": found.rank, "transport": found.transport, "library": found.library}

    def barrier(self) -> None:
        """Those that a driver makes step need none."""
        if self._processes is not None:
            self._processes.barrier()

    def assignment(self) -> dict[str, Any]:
        if self._member is None:
            return super().assignment()
        return {"stages": [], "sends": [list(each) for each in self._member.sends()]}

    def buckets(self) -> list[int]:
        if self._member is not None:
            return self._member.buckets()
        return [] if self._processes is None else reductions_of(self._steps.recorded["train"])

    def transfer(self, operation: str, size: int) -> dict[str, Any]:
        assert self._processes is not None
        if self._transfers is None:
            self._transfers = Transfers(self._processes)
        with tf.device(self._settings.device):
            return self._transfers.prepare(operation, size)

    def beside(self, transfer: str, transfers: int, program: str, steps: int) -> dict[str, Any]:
        step = self.step(program)
        step()
        self.barrier()
        return run_beside(self.step(transfer), transfers, step, steps, wait=self.synchronize, in_thread=nullcontext())

    def restore(self) -> None:
        """With servers, no program but that of training changes parameters."""
        if self._member is None:
            self._steps.restore()

    def build(self, job: Job) -> None:
        graph = self._begin(job)
        self._settings = settings = apply(job.request)
        if self._cluster is not None:
            self._member = member_of(job, graph, settings, self._cluster)
            self._step = self._member.step("train")
            return
        self._arrangement = Arrangement(graph, channels_last=settings.channels_last)
        with tf.device(settings.device):
            self._variables = Variables(graph, job.weights, self._arrangement, settings)
            network = Network(graph, Lowering(graph, self._arrangement, settings), self._variables, settings)
            samples = self._arrangement.value(graph.input.name, job.samples)
            self._steps = Steps(
                network,
                self._variables,
                samples,
                job.labels,
                settings,
                processes=self._processes,
                keeps_gradients=job.keeps_gradients,
            )
            self._step = self._steps.program(settings.phase)
            self._layers = LayerRunner(graph, self._arrangement, settings, job.labels)

    def phase(self) -> str:
        return self._settings.phase

    def step(self, program: str) -> Callable[[], None]:
        if self._transfers is not None and program in self._transfers.programs:
            return self._transfers.programs[program]
        if program == self._settings.phase:
            return self._step
        with tf.device(self._settings.device):
            return self._steps.program(program) if self._member is None else self._member.step(program)

    def first_step(self) -> None:
        if self._member is not None:
            super().first_step()
            return
        with observing() as self._observed:
            self._step()
            self.synchronize()
        if self._settings.on_gpu:
            tf.config.experimental.reset_memory_stats(self._settings.device.removeprefix("/"))

    def phases(self) -> Sequence[str] | None:
        return None

    def synchronize(self) -> None:
        if self._member is not None:
            self._member.synchronize()
        elif self._settings.on_gpu:
            tf.test.experimental.sync_devices()

    def timestamps(self, count: int) -> Timestamps:
        if self._member is not None:
            return self._member.timestamps(count, self.clock)
        return SynchronizingTimestamps(count, self.clock) if self._settings.on_gpu else Timestamps(count, self.clock)

    def observe(self) -> dict[str, dict[str, Any]]:
        if self._member is not None:
            return self._member.effective()
        effects = Effects(
            self._job.request,
            self._settings,
            self._observed,
            self._steps.recorded.get(self.phase()),
            self._variables.parameters,
            self._steps.last_loss,
        )
        found = effects.of_every_axis()
        return found if self._processes is None else found | self._processes.effective()

    def details(self) -> dict[str, Any]:
        return {"operations": self._observed.operations}

    def loss(self) -> float:
        return self._steps.loss() if self._member is None else self._member.loss()

    def arrays(self, kind: str) -> dict[str, Any]:
        if self._member is not None:
            return self._member.arrays(kind)
        if kind == "buffers":
            return self._variables.buffer_arrays()
        if kind == "parameters":
            return self._variables.parameter_arrays(self._variables.parameters)
        return self._variables.parameter_arrays(self._steps.last_gradients) if self._steps.last_gradients else {}

    def layer(self, name: str, inputs: dict[str, Any], upstream: Any | None) -> LayerResult:
        with tf.device(self._settings.device):
            return self._layers.run(self._graph.layer(name), self._job.weights.get(name, {}), inputs, upstream)

    def _make_tracer(self) -> Tracer:
        from deepstone.backends.tensorflow.trace import Tracer

        recorded = self._steps.recorded.get(self.phase())
        return Tracer(self._graph, self._step, recorded, self._job.scratch, self._settings)

    def isolated_layer(self, name: str) -> IsolatedLayer:
        with tf.device(self._settings.device):
            return IsolatedLayer(self._layers.programs(self._job, self._graph.layer(name)), timing=self)

    def ceiling(self, wanted: dict[str, Any]) -> IsolatedLayer:
        from deepstone.backends.tensorflow.ceilings import ceiling_program

        with tf.device(self._settings.device):
            program = ceiling_program(wanted)
        return IsolatedLayer({str(wanted["kind"]): program}, timing=self)

    def memory(self) -> dict[str, Any]:
        if not self._settings.on_gpu:
            return memory_on_cpu()
        info = tf.config.experimental.get_memory_info(self._settings.device.removeprefix("/"))
        return {
            "device_allocated_bytes": info["peak"],
            "device_reserved_bytes": {"absent": "TensorFlow does not say how much it has reserved"},
        }

    def is_unsupported(self, error: BaseException) -> bool:
        # oneDNN aborts if it lacks a kernel, for example for bf16 if `isa` excludes the instructions it needs.
        no_kernel = isinstance(error, tf.errors.AbortedError) and "could not create a primitive" in str(error)
        return no_kernel or isinstance(error, tf.errors.UnimplementedError) or super().is_unsupported(error)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, tf.errors.ResourceExhaustedError) or super().is_out_of_memory(error)


def make_backend() -> TensorFlowBackend:
    return TensorFlowBackend()
