"""Pipelines: each process has the layers of one stage, and the microbatches of the batch pass through all of them. The
schedules are those of torch.distributed.pipelining.

    gpipe         stage 0   F0 F1 F2 F3                      B0 B1 B2 B3        F: forward, B: backward
                  stage 1      F0 F1 F2 F3             B0 B1 B2 B3
    1f1b          stage 0   F0 F1          B0 F2 B1 F3 B2    B3                 fewer activations are kept
                  stage 1      F0 B0 F1 B1 F2 B2 F3 B3
    interleaved   two stages in each process, so that a stage is half as long, and waiting too

With several pipelines (scheme=hybrid) the processes that have the same stage sum their gradients after backward.
A microbatch counts as one part of the batch: its loss is divided by their number, so that gradients are a mean.

Programs without communication compute a stage on arrays drawn at random, in the shapes that cross its cuts, and update
stand-ins for the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

from deepstone.backends.base import Job, TracedStep, as_observed, as_set
from deepstone.backends.torch.arrays import load, network_arrays
from deepstone.backends.torch.communicator import Communicator
from deepstone.backends.torch.layer_costs import METHOD, measured_costs
from deepstone.backends.torch.member import Member, UpdateAlone
from deepstone.backends.torch.settings import Settings
from deepstone.backends.torch.stage import Crossing, StageAlone, StageModule, StageTransfers
from deepstone.backends.torch.training import Batch, optimizer_of
from deepstone.graph.graph import Graph
from deepstone.graph.stages import Stage, stages_of
from deepstone.setups.schemes import scheme_of, stages_per_process
from deepstone.setups.world import Parts, World

_SINGLE: Final = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


class Pipeline(Member):
    def __init__(self, job: Job, graph: Graph, settings: Settings, communicator: Communicator) -> None:
        super().__init__(communicator, job.request, settings)
        assert job.group is not None
        request = {**job.request, "batch": job.request["batch"] * job.group.shares}
        self._graph, self._settings = graph, settings
        self._world, self.parts = World.of(request), Parts.of(request)
        self._groups = _groups(communicator.rank, self._world)
        microbatch = len(job.labels) // (self.parts.accumulate * self.parts.microbatches)
        self._stages = self._cut(job, microbatch)
        self._own = list(range(self._world.stage(communicator.rank), len(self._stages), self._world.stages))
        self._own_modules = [StageModule(graph, self._stages[at], settings) for at in self._own]
        self.network = nn.ModuleList(self._own_modules)
        names = {layer.name for at in self._own for layer in self._stages[at].layers}
        load(self.network, {name: arrays for name, arrays in job.weights.items() if name in names})
        settings.place(self.network)
        parameters = list(self.network.parameters())
        self._optimizer = optimizer_of(parameters, settings) if parameters else None
        self._batch = self._own_part(job)
        self._crossings = [Crossing(graph, self._stages[at], microbatch, settings) for at in self._own]
        self._torch_stages = list(map(self._torch_stage, self._own_modules, self._crossings, self._own))
        self._schedule = self._made_schedule()
        self._losses: list[Tensor] = []
        self.last_loss = torch.zeros((), device=settings.device)
        self._alone: _Alone | None = None
        self._first_microbatch = 0  # of the part that is computed

    def _cut(self, job: Job, microbatch: int) -> list[Stage]:
        """By times that rank 0 measures: all must cut alike."""
        costs = torch.zeros(len(self._graph), dtype=torch.float64, device=self._settings.device)
        if self.communicator.rank == 0:
            costs += torch.tensor(measured_costs(self._graph, job.weights, self._settings, microbatch)).to(costs)
        self.communicator.send_from_root(costs)
        count = self._world.stages * stages_per_process(self.parts.schedule)
        return stages_of(self._graph, count, costs.tolist())

    def _own_part(self, job: Job) -> Batch:
        """Only the first stage needs the samples; losses may stand anywhere."""
        samples = job.samples if self._is_first else job.samples[:0].copy()
        job.samples = None
        return Batch(torch.from_numpy(samples), torch.from_numpy(job.labels), self._settings)

    def _torch_stage(self, module: nn.Module, crossing: Crossing, at: int) -> PipelineStage:
        known: dict[str, Any] = (
            {"input_args": crossing.taken(), "output_args": crossing.given()} if crossing.types_are_known else {}
        )
        device, count = self._settings.device, len(self._stages)
        return PipelineStage(module, at, count, device, group=self._groups.pipeline, **known)

    def _made_schedule(self) -> ScheduleGPipe | Schedule1F1B | ScheduleInterleaved1F1B:
        parts, count = self.parts.accumulate * self.parts.microbatches, self.parts.microbatches
        options: dict[str, Any] = {"loss_fn": lambda loss, _: loss / parts, "scale_grads": False}
        if self.parts.schedule == "interleaved":
            return ScheduleInterleaved1F1B(list(self._torch_stages), count, **options)
        return _SINGLE[self.parts.schedule](self._torch_stages[0], count, **options)

    @property
    def _is_first(self) -> bool:
        return 0 in self._own

    @property
    def _is_last(self) -> bool:
        return len(self._stages) - 1 in self._own

    # --- steps ---

    def step(self, program: str) -> Callable[[], None]:
        if program == "train":
            return self._train
        alone = self._without_others()
        if program == "exchange":
            return alone.exchange

        def step() -> None:
            alone.compute()
            if program == "meet":
                self.meet()
            alone.update()

        return step

    def _train(self) -> None:
        self._compute()
        self._reduce()
        self._update()

    def _compute(self) -> None:
        if self._optimizer is not None:
            self._optimizer.zero_grad()
        samples, labels = self._batch.get()
        self._losses.clear()
        parts = self.parts.accumulate
        inputs = [(part,) for part in samples.chunk(parts)] if self._is_first else [()] * parts
        for number, (given, of_part) in enumerate(zip(inputs, labels.chunk(parts), strict=True)):
            self._first_microbatch = number * self.parts.microbatches
            self._run(given, of_part)

    def _run(self, samples: tuple[Tensor, ...], labels: Tensor) -> None:
        """Have all microbatches of one part pass through."""
        if not self._is_last:
            self._schedule.step(*samples, labels=labels, return_outputs=False)
            return
        losses: list[Tensor] = []
        self._schedule.step(*samples, target=labels, losses=losses, labels=labels, return_outputs=False)
        self._losses += [loss.detach() for loss in losses]

    def _reduce(self) -> None:
        """The mean over pipelines, in one buffer."""
        gradients = [each.grad for each in self.network.parameters() if each.grad is not None]
        if self._groups.replicas is not None and gradients:
            _average(gradients, self._groups.replicas, self._world.data_ranks)

    def exchange_gradients(self) -> None:
        """As much as `_reduce` exchanges, whatever it is."""
        if self._groups.replicas is not None and self._parameter_bytes:
            _average([torch.zeros_like(each) for each in self.network.parameters()], self._groups.replicas, 1)

    def _update(self) -> None:
        if self._optimizer is not None:
            self._optimizer.step()

    def step_in_phases(self, set_timestamp: Callable[[int], None]) -> None:
        alone = self._without_others()
        self._batch.get()
        set_timestamp(0)
        alone.compute(set_timestamp)
        alone.update()
        set_timestamp(3)

    def loss(self) -> float:
        """The last stage tells it to all of its pipeline."""
        found = torch.stack(self._losses).sum() if self._losses else torch.zeros((), device=self._settings.device)
        found = found.to(torch.float64)
        dist.broadcast(found, self._groups.last_rank, group=self._groups.pipeline)
        return float(found.item())

    # --- what others ask ---

    def arrays(self, kind: str) -> dict[str, Any]:
        return network_arrays(self.network, self._graph, kind)

    def buckets(self) -> list[int]:
        """The gradients that pipelines sum."""
        return [] if self._groups.replicas is None else [self._parameter_bytes]

    @property
    def _parameter_bytes(self) -> int:
        return sum(each.numel() * each.element_size() for each in self.network.parameters())

    def sends(self) -> list[tuple[int, float]]:
        count = self.parts.accumulate * self.parts.microbatches
        found = [(rank, float(size * count)) for each in self._transfers() for rank, size in each.sends()]
        pipelines, stages = self._world.data_ranks, self._world.stages
        if pipelines > 1:  # by ring, between the processes that have the same stage
            after = (self.communicator.rank + stages) % self._world.processes
            found.append((after, 2 * (pipelines - 1) / pipelines * self._parameter_bytes))
        return found

    def stages(self) -> list[dict[str, Any]]:
        return [
            {
                "stage": at,
                "layers": len(self._stages[at].layers),
                "first": self._stages[at].layers[0].name,
                "last": self._stages[at].layers[-1].name,
                "share": self._stages[at].share,
                "method": METHOD,
            }
            for at in self._own
        ]

    def effective(self) -> dict[str, dict[str, Any]]:
        values = {"pipeline": self._world.stages, "microbatches": self.parts.microbatches}
        found = self._effective(scheme_of(self._request).name, **values)
        found["pipeline"] = as_observed(dist.get_world_size(self._groups.pipeline))
        found["schedule"] = as_set(self.parts.schedule)
        return found

    # --- computing and transfers by themselves ---

    def _without_others(self) -> _Alone:
        if self._alone is None:
            device, (_, labels) = self._settings.device, self._batch.get()
            one = labels[: len(labels) // (self.parts.accumulate * self.parts.microbatches)]
            pairs = zip(self._own_modules, self._crossings, strict=True)
            computing = [StageAlone(module, crossing, one, device) for module, crossing in pairs]
            like = torch.zeros(1, dtype=self._settings.weights, device=device)
            update = UpdateAlone([each.numel() for each in self.network.parameters()], like, self._settings, None)
            self._alone = _Alone(self, computing, self._transfers(), update)
        return self._alone

    def _transfers(self) -> list[StageTransfers]:
        """Of each of the own stages."""
        rank, stages, last = self.communicator.rank, self._world.stages, len(self._stages) - 1
        first = rank - self._world.stage(rank)
        found: list[StageTransfers] = []
        for at, crossing in zip(self._own, self._crossings, strict=True):
            before = first + (at - 1) % stages if at > 0 else None
            after = first + (at + 1) % stages if at < last else None
            found.append(StageTransfers(crossing, before, after, self._settings.device))
        return found

    # --- steps that tell when their parts begin and end ---

    def open_timeline(self, clock: Callable[[], float]) -> Sequence[str]:
        self._clock = clock
        return ("train",)

    def timeline_step(self, program: str) -> Callable[[], TracedStep]:
        assert program == "train"
        clock = self._clock

        def step() -> TracedStep:
            spans: list[tuple[str, float, float, int]] = []
            begin_s = clock()
            with self._telling(spans):
                self._compute()
            if self._groups.replicas is not None:
                reduce_s = clock()
                self._reduce()
                spans.append(("reduce", reduce_s, clock(), self._parameter_bytes))
            update_s = clock()
            self._update()
            end_s = clock()
            spans.append(("update", update_s, end_s, 0))
            return TracedStep(begin_s, end_s, spans)

        return step

    @contextmanager
    def _telling(self, spans: list[tuple[str, float, float, int]]) -> Generator[None, None, None]:
        """Inside, stages tell of every microbatch: `forward STAGE MICROBATCH`."""
        for stage in self._torch_stages:
            for kind in ("forward", "backward"):
                name = f"{kind}_one_chunk"
                setattr(stage, name, self._told(getattr(stage, name), f"{kind} {stage.stage_index}", spans))
        try:
            yield
        finally:
            for stage in self._torch_stages:
                del stage.forward_one_chunk, stage.backward_one_chunk  # those of the class again

    def _told(
        self, run: Callable[..., Any], kind: str, spans: list[tuple[str, float, float, int]]
    ) -> Callable[..., Any]:
        clock = self._clock

        def told(microbatch: int, *arguments: Any, **options: Any) -> Any:
            begin_s = clock()
            found = run(microbatch, *arguments, **options)
            spans.append((f"{kind} {self._first_microbatch + microbatch}", begin_s, clock(), 0))
            return found

        return told


class _Alone:
    """All stages of this process, by themselves."""

    def __init__(
        self,
        pipeline: Pipeline,
        computing: Sequence[StageAlone],
        transfers: Sequence[StageTransfers],
        update: UpdateAlone,
    ) -> None:
        self._pipeline = pipeline
        self._computing = computing
        self._transfers = transfers
        self.update = update.run

    def compute(self, after_phase: Callable[[int], None] | None = None) -> None:
        """Forward of all microbatches, then backward; with 1F1B, one after the other. `after_phase`: forward of all
        first, whatever the schedule."""
        network, parts = self._pipeline.network, self._pipeline.parts
        network.zero_grad()
        for _ in range(parts.accumulate):
            if parts.schedule == "gpipe" or after_phase is not None:
                kept = [(stage, stage.forward()) for _ in range(parts.microbatches) for stage in self._computing]
                if after_phase is not None:
                    after_phase(1)
                for stage, outputs in reversed(kept):
                    stage.backward(outputs)
            else:
                for _ in range(parts.microbatches):
                    for stage in self._computing:
                        stage.backward(stage.forward())
        if after_phase is not None:
            after_phase(2)

    def exchange(self) -> None:
        parts = self._pipeline.parts
        for _ in range(parts.accumulate * parts.microbatches):
            for operations in (
                [each for stage in self._transfers for each in stage.forward()],
                [each for stage in reversed(self._transfers) for each in stage.backward()],
            ):
                for work in dist.batch_isend_irecv(operations):
                    work.wait()
        self._pipeline.exchange_gradients()


def _average(gradients: Sequence[Tensor], group: dist.ProcessGroup, count: int) -> None:
    buffer = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(buffer, group=group)
    buffer /= count
    for gradient, part in zip(gradients, buffer.split([each.numel() for each in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Groups:
    """Of one process: its pipeline, and those that have the same stage in other pipelines, if there are any."""

    pipeline: dist.ProcessGroup
    replicas: dist.ProcessGroup | None
    last_rank: int  # the one that has the loss


@cache  # a network may be built again in the same processes
def _groups(rank: int, world: World) -> _Groups:
    """All processes make all groups, in the same order."""
    stages = range(world.stages)
    pipelines = [[first + stage for stage in stages] for first in range(0, world.processes, world.stages)]
    rows = [[pipeline[stage] for pipeline in pipelines] for stage in stages]
    made: list[Any] = [dist.new_group(ranks) for ranks in pipelines]
    replicas: list[Any] | None = [dist.new_group(ranks) for ranks in rows] if len(pipelines) > 1 else None
    own = pipelines[world.data_rank(rank)]
    return _Groups(
        pipeline=made[world.data_rank(rank)],
        replicas=None if replicas is None else replicas[world.stage(rank)],
        last_rank=own[-1],
    )
