"""The torch backend: ties lowering, settings, steps and observation to the worker."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, cast

import numpy as np
import torch
from torch import fx, nn

from deepstone.backends.base import (
    Backend,
    ConvolutionTrial,
    Group,
    InPlace,
    IsolatedLayer,
    Job,
    LayerResult,
    Timestamps,
    TracedStep,
    Unsupported,
    memory_on_cpu,
    phases_of,
)
from deepstone.backends.torch.arrays import network_arrays, perturb
from deepstone.backends.torch.ceilings import ceiling_program
from deepstone.backends.torch.communicator import Communicator, communicator, open_store
from deepstone.backends.torch.convolutions.trial import convolution_trial
from deepstone.backends.torch.effective import Effects, Observed, observing
from deepstone.backends.torch.in_place import InPlaceTimer
from deepstone.backends.torch.isolated import LayerRunner, isolated_programs
from deepstone.backends.torch.member import PROGRAMS, Member
from deepstone.backends.torch.memory import memory_by_layer
from deepstone.backends.torch.module_facts import ModuleFacts
from deepstone.backends.torch.network import lowered
from deepstone.backends.torch.onednn import primitives_by_layer
from deepstone.backends.torch.own_dropout import RefusesDropout, let_functions_drop
from deepstone.backends.torch.parallel import Replicas
from deepstone.backends.torch.schemes import import_scheme, member_of
from deepstone.backends.torch.settings import Settings, apply, compile_arguments
from deepstone.backends.torch.timeline import Timeline
from deepstone.backends.torch.trace import Tracer
from deepstone.backends.torch.training import Steps, batch_of
from deepstone.backends.torch.transfers import Transfers
from deepstone.backends.transfers import run_beside
from deepstone.graph.graph import Graph


class CudaTimestamps(Timestamps):
    """CUDA events: times on the device's own clock, taken without waiting for it."""

    def __init__(self, count: int) -> None:
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
        self.waited_s = 0.0

    def set(self, position: int) -> None:
        self._events[position].record()

    def gaps_s(self) -> list[float]:
        pairs = zip(self._events, self._events[1:], strict=False)
        return [before.elapsed_time(after) / 1e3 for before, after in pairs]


class TorchBackend(Backend):
    _job: Job
    _graph: Graph
    _settings: Settings
    _network: nn.Module  # as lowered
    _model: nn.Module  # what runs it: the network itself, or what it was compiled to
    _steps: Steps
    _tracer: Tracer
    _in_place: InPlaceTimer | None = None
    _facts: ModuleFacts | None = None
    _store: Any = None  # where rank 0 waits for the others
    _communicator: Communicator | None = None
    _replicas: Replicas | None = None
    _member: Member | None = None  # in a group with another scheme than data parallelism
    _transfers: Transfers | None = None
    _timeline: Timeline | None = None

    def __init__(self) -> None:
        self._seen = Observed()

    def versions(self) -> dict[str, Any]:
        versions: dict[str, Any] = {
            "name": "torch",
            "version": torch.__version__,
            "numpy": np.__version__,
            "cuda": torch.version.cuda or {"absent": "torch is built without CUDA"},
            "cudnn": torch.backends.cudnn.version() or {"absent": "torch is built without cuDNN"},
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "build": torch.__config__.show(),
        }
        if torch.cuda.is_available():
            versions["gpu"] = torch.cuda.get_device_name()
        return versions

    def preload(self) -> None:
        importlib.import_module("torch._dynamo")  # every optimizer imports it: as long as all the rest of torch

    def keep_programs(self, folder: str) -> None:
        # Inductor looks here when it compiles, and its processes that compile inherit it. Triton's is inside.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"

    def open_rendezvous(self, address: str, rank: int, world: int) -> int:
        if rank != 0:
            return 0
        self._store = open_store(address)
        return int(self._store.port)

    def join(self, group: Group) -> dict[str, Any]:
        self._communicator = found = communicator(group, self._store)
        import_scheme(group.request)
        return {"world": found.world, "rank": found.rank, "transport": found.transport, "library": found.library}

    def barrier(self) -> None:
        assert self._communicator is not None
        self._communicator.barrier()

    def buckets(self) -> list[int]:
        if self._member is not None:
            return self._member.buckets()
        return [] if self._replicas is None else self._replicas.buckets()

    def assignment(self) -> dict[str, Any]:
        if self._member is None:
            return super().assignment()
        return {"stages": self._member.stages(), "sends": [list(each) for each in self._member.sends()]}

    def transfer(self, operation: str, size: int) -> dict[str, Any]:
        assert self._communicator is not None
        if self._transfers is None:
            self._transfers = Transfers(self._communicator, self._settings.device)
        return self._transfers.prepare(operation, size)

    def beside(self, transfer: str, transfers: int, program: str, steps: int) -> dict[str, Any]:
        on_gpu, step = self._settings.device.type == "cuda", self.step(program)
        step()  # the first one may still communicate, and two threads that do would send each other's messages
        self.synchronize()
        self.barrier()
        return run_beside(
            self.step(transfer),
            transfers,
            step,
            steps,
            wait=self._wait_for_own_stream,
            in_thread=torch.cuda.stream(torch.cuda.Stream()) if on_gpu else nullcontext(),
        )

    def _wait_for_own_stream(self) -> None:
        if self._settings.device.type == "cuda":
            torch.cuda.current_stream().synchronize()

    def restore(self) -> None:
        if self._member is not None:
            self._member.restore()
        else:
            self._steps.restore()

    def open_timeline(self) -> Sequence[str]:
        if self._member is not None and self._settings.device.type == "cpu":
            return self._member.open_timeline(self.clock)
        if self._replicas is None:
            return super().open_timeline()
        if self._settings.device.type != "cpu":
            raise Unsupported("timestamps of the host do not tell when a GPU computes and communicates")
        self._timeline = Timeline(self._steps.pieces(), self._network, self._replicas, self.clock)
        return self._timeline.programs

    def timeline_step(self, program: str) -> Callable[[], TracedStep]:
        if self._member is not None:
            return self._member.timeline_step(program)
        assert self._timeline is not None
        return self._timeline.step(program)

    def logged_times(self, steps: int) -> dict[str, list[float]]:
        return super().logged_times(steps) if self._replicas is None else self._replicas.logged_times(self._step, steps)

    def close_timeline(self) -> None:
        if self._timeline is not None:
            self._timeline.close()
        self._timeline = None

    def close(self) -> None:
        if self._communicator is not None:
            self._communicator.close()

    def build(self, job: Job) -> None:
        self._job = job
        self._in_place = None
        self._settings = settings = apply(job.request, job.group)
        torch.manual_seed(job.request["seed"])
        self._graph = Graph.from_worker_json(job.graph)
        let_functions_drop(settings.dropout or not self._graph.opaque)
        self._member = None if self._communicator is None else member_of(job, self._graph, settings, self._communicator)
        if self._member is not None:
            self._network = self._model = self._member.network
            self._step = self._member.step("train")
            return
        self._network = lowered(self._graph, job.weights, settings)
        if self._graph.opaque and job.perturbation:
            perturb(self._network, job.perturbation)
        self._model = self._compiled()
        self._replicas = (
            None if self._communicator is None else Replicas(self._network, self._communicator, job.request)
        )
        self._steps = self._make_steps(job)
        self._step = self._steps.function()
        phases = self.phases()
        self._tracer = Tracer(self._network, self._graph, self._steps, settings, phases, self.synchronize)

    def _make_steps(self, job: Job) -> Steps:
        batch, make_optimizer = batch_of(job, self._network, self._settings)
        return Steps(self._model, batch, self._settings, make_optimizer=make_optimizer, replicas=self._replicas)

    def _compiled(self) -> nn.Module:
        mode = self._settings.compile_mode
        if mode is None:
            return self._network
        return cast(nn.Module, torch.compile(self._network, **compile_arguments(mode)))

    def phase(self) -> str:
        return self._settings.phase

    def step(self, program: str) -> Callable[[], None]:
        if self._member is not None and program in PROGRAMS:
            return self._step if program == "train" else self._member.step(program)
        if self._transfers is not None and program in self._transfers.programs:
            return self._transfers.programs[program]
        if self._replicas is not None and program == "exchange":
            return self._replicas.exchange
        if self._replicas is not None and program in ("local", "meet"):
            return self._steps.function(program)
        assert program == self._settings.phase, "torch times phases one by one, so it has one program"
        return self._step

    def first_step(self) -> None:
        self._observed_step()
        if self._settings.device.type != "cpu":
            torch.cuda.reset_peak_memory_stats()

    def observe_again(self) -> None:
        self._observed_step()

    def _observed_step(self) -> None:
        on_cpu = self._settings.device.type == "cpu"
        eager = self._settings.compile_mode is None
        stray = bool(self._graph.opaque) and eager and not self._settings.dropout
        with (
            RefusesDropout() if stray else nullcontext(),
            observing(self._network.modules(), hooks=eager, onednn=on_cpu) as self._seen,
        ):
            self._step()
            self.synchronize()

    def phases(self) -> Sequence[str]:
        return phases_of(self.phase()) if self._member is None else self._member.phases()

    def step_in_phases(self, set_timestamp: Callable[[int], None]) -> None:
        (self._steps if self._member is None else self._member).step_in_phases(set_timestamp)

    def synchronize(self) -> None:
        if self._settings.device.type == "cuda":
            torch.cuda.synchronize()

    def timestamps(self, count: int) -> Timestamps:
        return CudaTimestamps(count) if self._settings.device.type == "cuda" else Timestamps(count, self.clock)

    def observe(self) -> dict[str, dict[str, Any]]:
        loss = self._steps.last_loss if self._member is None else self._member.last_loss
        assert loss is not None
        effects = Effects(
            request=self._job.request,
            settings=self._settings,
            seen=self._seen,
            network=self._network,
            model=self._model,
            loss=loss,
            opaque=bool(self._graph.opaque),
        )
        found = effects.of_every_axis()
        member = self._member or self._replicas
        if member is not None:
            found.update(member.effective())
        return found

    def details(self) -> dict[str, Any]:
        if self._settings.device.type == "cpu":
            by_layer = primitives_by_layer(self._seen.onednn_log, self._graph, self._job.request["batch"])
            # Pairs, not keys: a layer may have any name, and the keys of a record may not.
            return {"onednn_primitives": self._seen.primitives, "onednn_by_layer": [*map(list, by_layer.items())]}
        return {"gpu_uuid": f"GPU-{torch.cuda.get_device_properties(self._settings.device).uuid}"}

    def loss(self) -> float:
        return self._steps.loss() if self._member is None else self._member.loss()

    def arrays(self, kind: str) -> dict[str, Any]:
        if self._member is not None:
            return self._member.arrays(kind)
        return network_arrays(self._network, self._graph, kind)

    def layer(self, name: str, inputs: dict[str, Any], upstream: Any | None) -> LayerResult:
        runner = LayerRunner(self._graph, self._settings, self._job.labels)
        return runner.run(self._graph.layer(name), self._job.weights.get(name, {}), inputs, upstream)

    def in_place(self, steps: int) -> InPlace:
        if self._settings.compile_mode is not None:
            return self._tracer.in_place(steps)
        if self._settings.checkpointing:
            raise Unsupported(
                "with checkpointing=on a layer's forward runs again inside backward; use checkpointing=off"
            )
        if self._in_place is None:
            self._in_place = self._make_timer()
            opaque = bool(self._graph.opaque)
            facts = (self._network, self._graph, self._make_timer, self.synchronize)
            self._facts = ModuleFacts(*facts) if opaque else None
        found = self._in_place.run(steps, self.synchronize)
        return found if self._facts is None else self._facts.add_to(found, self._in_place)

    def _make_timer(self, clock: Callable[[], float] | None = None) -> InPlaceTimer:
        assert isinstance(self._network, fx.GraphModule)
        return InPlaceTimer(self._network, self._graph, self._steps, self._settings.device, clock)

    def isolated_layer(self, name: str) -> IsolatedLayer:
        programs = isolated_programs(self._job, self._graph, self._graph.layer(name), self._settings)
        return IsolatedLayer(programs, self)

    def ceiling(self, wanted: dict[str, Any]) -> IsolatedLayer:
        return IsolatedLayer({str(wanted["kind"]): ceiling_program(wanted, self._settings.device)}, self)

    def convolution(self, name: str, direction: str) -> ConvolutionTrial:
        weights = self._job.weights.get(name, {})
        return convolution_trial(self._graph, name, direction, weights, self._job.request, self._settings, self)

    def memory_by_layer(self) -> list[tuple[str, dict[str, Any]]]:
        if self._settings.checkpointing:
            raise Unsupported("with checkpointing=on backward makes again what forward did not keep")
        if self._settings.compile_mode is not None:
            raise Unsupported("a compiled step keeps what its compiler chose, not what layers do; use compile=off")
        assert isinstance(self._network, fx.GraphModule)
        return memory_by_layer(self._network, self._graph, self._steps, self._settings.device)

    def available_bytes(self) -> Any:
        if self._settings.device.type == "cpu":
            return {"absent": "the step ran on the CPU"}
        free_bytes, _ = torch.cuda.mem_get_info()
        return free_bytes + torch.cuda.memory_reserved()

    def trace(self, steps: int, path: str) -> dict[str, Any]:
        return self._tracer.trace(steps, path)

    def memory(self) -> dict[str, Any]:
        if self._settings.device.type == "cpu":
            return memory_on_cpu()
        return {
            "device_allocated_bytes": torch.cuda.max_memory_allocated(),
            "device_reserved_bytes": torch.cuda.max_memory_reserved(),
        }

    def is_out_of_memory(self, error: BaseException) -> bool:
        on_cpu = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
        return isinstance(error, torch.OutOfMemoryError) or on_cpu or super().is_out_of_memory(error)


def make_backend() -> TorchBackend:
    return TorchBackend()
