"""The JAX backend: connects lowering, settings, steps and observation to the worker."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import jax
import jaxlib
import numpy as np

from deepstone.backends.base import (
    Group,
    IsolatedLayer,
    Job,
    LayerResult,
    Timestamps,
    Unsupported,
    as_observed,
    as_set,
    memory_on_cpu,
)
from deepstone.backends.before_import import JAX_PREALLOCATE
from deepstone.backends.jax.arrays import buffer_keys, from_device, parameter_keys, to_device
from deepstone.backends.jax.chain import DEEP, ChainedSteps
from deepstone.backends.jax.effective import (
    Effects,
    Observed,
    gpu_uuid,
    made_by_xla,
    reductions_of,
    seen_in,
    temporary_bytes,
)
from deepstone.backends.jax.isolated import LayerRunner
from deepstone.backends.jax.network import Network
from deepstone.backends.jax.processes import Processes
from deepstone.backends.jax.settings import Settings, apply
from deepstone.backends.jax.timestamps import OneAheadTimestamps
from deepstone.backends.jax.training import Batch, State, Steps, WholeSteps
from deepstone.backends.jax.transfers import Transfers
from deepstone.backends.ports import ReservedPort
from deepstone.backends.settings import refuse_nothing_to_rewrite
from deepstone.backends.transfers import run_beside
from deepstone.backends.xla.steps import TracedBackend
from deepstone.graph.weights import initial_buffers
from deepstone.setups.axes import AUTO

if TYPE_CHECKING:  # loaded when layers are measured
    from deepstone.backends.jax.trace import Tracer


class JaxBackend(TracedBackend):
    _settings: Settings
    _state: State
    _steps: Steps
    _layers: LayerRunner
    _observed: Observed
    _timestamps: OneAheadTimestamps | None = None
    _reserved: ReservedPort | None = None  # where rank 0 will wait for the others
    _processes: Processes | None = None  # that train together, if there are several
    _transfers: Transfers | None = None

    def versions(self) -> dict[str, Any]:
        return {
            "name": "jax",
            "version": jax.__version__,
            "jaxlib": jaxlib.__version__,
            "numpy": np.__version__,
        }

    def keep_programs(self, folder: str) -> None:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # a small network's step takes less

    def open_rendezvous(self, address: str, rank: int, world: int) -> int:
        if rank != 0:
            return 0
        self._reserved = ReservedPort(address)
        return self._reserved.number

    def join(self, group: Group) -> dict[str, Any]:
        self._processes = found = Processes(group, self._reserved)
        return {"world": found.world, "rank": found.rank, "transport": "gloo", "library": found.library}

    def barrier(self) -> None:
        assert self._processes is not None
        self._processes.barrier()

    def buckets(self) -> list[int]:
        return [] if self._processes is None else reductions_of(self._whole_steps().program("train").as_text())

    def transfer(self, operation: str, size: int) -> dict[str, Any]:
        assert self._processes is not None
        if self._transfers is None:
            self._transfers = Transfers(self._processes)
        return self._transfers.prepare(operation, size)

    def beside(self, transfer: str, transfers: int, program: str, steps: int) -> dict[str, Any]:
        step = self.step(program)
        step()
        self._state.wait()
        self.barrier()
        # To wait for the state in the thread would be to wait for the step beside it, which may have donated arrays.
        return run_beside(
            self.step(transfer), transfers, step, steps, self._state.wait, nullcontext(), transfer_waits=True
        )

    def restore(self) -> None:
        self._whole_steps().restore()

    def close(self) -> None:
        if self._processes is not None:
            self._processes.close()

    def build(self, job: Job) -> None:
        graph = self._begin(job)
        self._settings = settings = apply(job.request)
        refuse_nothing_to_rewrite(graph, settings)
        initial = initial_buffers(graph)
        parameters = [self._placed(layer, name, job.weights) for layer, name in parameter_keys(graph)]
        buffers = [self._placed(layer, name, initial) for layer, name in buffer_keys(graph)]
        self._state = state = State(parameters, buffers, settings)
        processes = self._processes
        batch = Batch(job.samples, job.labels, settings, processes)
        if len(graph) <= DEEP:
            network, keeps = Network(graph, settings), job.keeps_gradients
            self._steps = WholeSteps(network, batch, state, settings, processes=processes, keeps_gradients=keeps)
        elif processes is not None or settings.accumulate > 1 or job.keeps_gradients:
            raise Unsupported(
                f"{len(graph)} layers: in JAX a graph of more than {DEEP} is a chain of programs, which is not built "
                "for several processes, for parts of a batch, or to keep gradients"
            )
        else:
            self._steps = ChainedSteps(graph, batch, state, settings)
        self._layers = LayerRunner(graph, settings, job.labels)

    def _whole_steps(self) -> WholeSteps:
        assert isinstance(self._steps, WholeSteps), "several processes have these only"
        return self._steps

    def _placed(self, layer: str, name: str, arrays: Mapping[str, Mapping[str, Any]]) -> Any:
        return to_device(self._graph.layer(layer).op, name, arrays[layer][name], self._settings)

    def phase(self) -> str:
        return self._settings.phase

    def step(self, program: str) -> Callable[[], None]:
        if self._transfers is not None and program in self._transfers.programs:
            return self._transfers.programs[program]
        return self._steps.function(program)

    def first_step(self) -> None:
        super().first_step()
        self._observed = seen_in(program.as_text() for program in self._steps.lowered)

    def phases(self) -> Sequence[str] | None:
        return None

    def synchronize(self) -> None:
        if self._timestamps is not None:
            self._timestamps.finish()
        self._state.wait()

    def timestamps(self, count: int) -> Timestamps:
        self._timestamps = OneAheadTimestamps(count, self.clock, lambda: self._state.latest)
        return self._timestamps

    def observe(self) -> dict[str, dict[str, Any]]:
        effects = Effects(
            request=self._job.request,
            settings=self._settings,
            seen=self._observed,
            compiled=self._steps.compiled,
            state=self._state,
        )
        found = effects.of_every_axis()
        return found if self._processes is None else found | self._between_processes()

    def _between_processes(self) -> dict[str, dict[str, Any]]:
        """The axes between processes: from JAX's own count, and from the reductions in the program."""
        assert self._processes is not None
        asked = self._job.request["interface"]
        return {
            "processes": as_observed(self._processes.world),
            "transport": as_set("gloo"),
            "scheme": as_set("data"),
            "library": as_set("jax"),
            "interface": as_set("that of the host's address" if asked == AUTO else asked),
            "collective": as_observed("allreduce"),
            "overlap": as_observed("off" if len(self.buckets()) == 1 else "as XLA schedules it"),
            **{name: as_set("none") for name in ("bucket", "servers", "pipeline", "microbatches", "schedule")},
        }

    def details(self) -> dict[str, Any]:
        programs = self._steps.compiled
        found: dict[str, Any] = {
            "programs": len(programs),  # several if the graph is deep: see chain.py
            "program_temporary_bytes": max(temporary_bytes(program) for program in programs),
            "xla": made_by_xla(program.as_text() for program in programs),
            "platform": self._settings.device.client.platform_version,
        }
        if not self._settings.on_cpu:
            found["gpu"] = self._settings.device.device_kind
            found["preallocate"] = os.environ.get(JAX_PREALLOCATE, "true")
            uuid = gpu_uuid(self._settings.device)
            if uuid is not None:
                found["gpu_uuid"] = uuid
        return found

    def loss(self) -> float:
        return float(self._state.loss)

    def arrays(self, kind: str) -> dict[str, Any]:
        state, graph = self._state, self._graph
        if kind == "gradients" and not state.gradients:
            return {}
        keys, arrays = {
            "parameters": (parameter_keys(graph), state.parameters),
            "gradients": (parameter_keys(graph), state.gradients),
            "buffers": (buffer_keys(graph), state.buffers),
        }[kind]
        return {
            f"{layer}/{name}": from_device(graph.layer(layer).op, name, array, self._settings)
            for (layer, name), array in zip(keys, arrays, strict=True)
        }

    def layer(self, name: str, inputs: dict[str, Any], upstream: Any | None) -> LayerResult:
        return self._layers.run(self._graph.layer(name), self._job.weights.get(name, {}), inputs, upstream)

    def _make_tracer(self) -> Tracer:
        from deepstone.backends.jax.trace import Tracer

        return Tracer(
            self._graph,
            self._steps,
            self.phase(),
            self.synchronize,
            self._job.scratch,
            on_cpu=self._settings.on_cpu,
        )

    def isolated_layer(self, name: str) -> IsolatedLayer:
        return self._layers.isolated(self._job, self._graph.layer(name))

    def ceiling(self, wanted: dict[str, Any]) -> IsolatedLayer:
        from deepstone.backends.jax.ceilings import ceiling

        return ceiling(wanted, self._settings)

    def memory(self) -> dict[str, Any]:
        """Return the peak. JAX cannot reset it, so it is that of the whole process, including loading the weights."""
        if self._settings.on_cpu:
            return memory_on_cpu()
        found = self._settings.device.memory_stats() or {}
        absent = {"absent": "this JAX does not report it"}
        return {
            "device_allocated_bytes": found.get("peak_bytes_in_use", absent),
            "device_reserved_bytes": found.get("peak_pool_bytes", absent),
        }

    def is_out_of_memory(self, error: BaseException) -> bool:
        exhausted = isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
        return exhausted or super().is_out_of_memory(error)


def make_backend() -> JaxBackend:
    return JaxBackend()
