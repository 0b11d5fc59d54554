"""What the steps of each process of a job need in memory, from the graph: parameters, gradients, optimizer state,
activations that are kept for backward, and the arrays in which things are sent.

    data           everything of the network; activations of a part of the batch; gradients once more, in buckets
    sharded        a shard of everything; the parameters of two groups of layers and the gradients of one, whole
    server         workers: no optimizer; gradients and parameters once more, as they are sent. Servers: their share,
                   and a gradient from every worker
    pipeline       everything of the own layers; activations of the microbatches that are between forward and backward;
                   what crosses the cuts, of all microbatches; of several microbatches the gradient of one layer once
                   more, until it is added to that of the microbatches before

As `deepstone memory`, it leaves out workspaces and the framework itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.graph.cost import COST_UNKNOWN, layer_cost
from deepstone.graph.memory import LayerMemory
from deepstone.graph.segments import split_parameters
from deepstone.graph.stages import analytic_costs, stages_of
from deepstone.runner.job import Job
from deepstone.runner.replies import Assignment, StageReply
from deepstone.setups.axes import AUTO
from deepstone.setups.schemes import SHARDED, scheme_of, stages_per_process
from deepstone.setups.widths import value_bytes
from deepstone.setups.world import Parts, World


class _State(Struct, frozen=True, kw_only=True):
    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int

    @staticmethod
    def of(layers: Iterable[LayerMemory]) -> _State:
        listed = list(layers)
        return _State(
            parameters_bytes=sum(layer.parameters_bytes for layer in listed),
            gradients_bytes=sum(layer.gradients_bytes for layer in listed),
            optimizer_bytes=sum(layer.optimizer_bytes for layer in listed),
            activations_bytes=sum(layer.activations_bytes for layer in listed),
        )

    @property
    def kept_bytes(self) -> int:
        """What stays from step to step."""
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes


def predicted_bytes(job: Job, assignments: Sequence[Assignment], bucket_bytes: Sequence[int]) -> Sequence[int | Absent]:
    """By rank. `bucket_bytes`: of the groups that are exchanged or gathered together."""
    world, parts = World.of(job.request), Parts.of(job.request)
    if job.model.graph.opaque:
        return [COST_UNKNOWN] * world.started
    if world.stages > 1:
        return [_of_stages(job, assignment, parts) for assignment in assignments]
    own = _State.of(job.memory_of(job.batch // (parts.data_ranks * parts.accumulate)).layers)
    if world.servers:
        worker = 2 * (own.parameters_bytes + own.gradients_bytes) + own.activations_bytes
        server = own.kept_bytes + world.processes * own.gradients_bytes + own.parameters_bytes
        idle = [Absent("it computes nothing")] * world.drivers
        return [*[worker] * world.processes, *[server // world.servers] * world.servers, *idle]
    if scheme_of(job.request).name == SHARDED:
        whole = 3 * max(bucket_bytes, default=0)
        return [own.kept_bytes // world.processes + whole + own.activations_bytes] * world.processes
    return [own.kept_bytes + own.gradients_bytes + own.activations_bytes] * world.processes


def planned_bytes(job: Job) -> Sequence[int | Absent]:
    """The same before anything runs. A pipeline is then cut by what the graph knows of the cost of its layers, and not
    by measured times."""
    world, parts, graph = World.of(job.request), Parts.of(job.request), job.model.graph
    if graph.opaque or job.broken_rule:
        return [COST_UNKNOWN if graph.opaque else Absent("it cannot run")] * world.started
    width = value_bytes(str(job.request["precision"]))
    if world.stages > 1:
        return predicted_bytes(job, _planned_stages(job, world, parts, width), [])
    buckets: list[int] = []
    if scheme_of(job.request).name == SHARDED:
        asked = job.request["bucket"]
        groups = split_parameters(graph, at_least=None if asked == AUTO else int(asked) * 2**20 // width)
        buckets = [width * sum(layer_cost(graph, layer).parameters for layer in group) for group in groups]
    return predicted_bytes(job, [], buckets)


def _planned_stages(job: Job, world: World, parts: Parts, width: int) -> list[Assignment]:
    """By rank."""
    graph, microbatch = job.model.graph, job.batch // parts.count
    stages = stages_of(graph, world.stages * stages_per_process(parts.schedule), analytic_costs(graph))
    found: list[Assignment] = []
    for rank in range(world.processes):
        own = range(world.stage(rank), len(stages), world.stages)
        crossing = [name for at in own for name in (*stages[at].takes, *stages[at].gives)]
        values = sum(prod(graph.shapes[name]) for name in crossing)
        sent = float(values * microbatch * width * parts.microbatches * parts.accumulate)
        if world.data_ranks > 1:
            kept = sum(layer_cost(graph, layer).parameters for at in own for layer in stages[at].layers)
            sent += 2 * (world.data_ranks - 1) / world.data_ranks * kept * width
        found.append(
            Assignment(
                stages=[
                    StageReply(
                        stage=at,
                        layers=len(stages[at].layers),
                        first=stages[at].layers[0].name,
                        last=stages[at].layers[-1].name,
                        share=stages[at].share,
                        method="by the graph",
                    )
                    for at in own
                ],
                sends=[(rank, sent)],
            )
        )
    return found


def _of_stages(job: Job, assignment: Assignment, parts: Parts) -> int:
    world, graph = World.of(job.request), job.model.graph
    microbatch = job.batch // parts.count
    layers = {layer.name: layer for layer in job.memory_of(microbatch).layers}
    names = [layer.name for layer in graph.layers]
    total = 0.0
    kept = largest = 0
    for stage in assignment.stages:
        own = [layers[name] for name in names[names.index(stage.first) : names.index(stage.last) + 1]]
        state = _State.of(own)
        kept += state.parameters_bytes
        largest = max(largest, *(layer.gradients_bytes for layer in own))
        total += state.kept_bytes + _in_flight(stage, world, parts) * state.activations_bytes
    if parts.microbatches * parts.accumulate > 1 and parts.data_ranks == 1:
        total += largest  # of several pipelines the larger buffer of their sum comes after it
    sent = sum(size for _, size in assignment.sends) / parts.accumulate
    if parts.data_ranks > 1:  # the sum over pipelines is not sent from the arrays that cross cuts, but from one buffer
        sent += kept - 2 * (parts.data_ranks - 1) / parts.data_ranks * kept / parts.accumulate
    return round(total + sent)


def _in_flight(stage: StageReply, world: World, parts: Parts) -> float:
    """Of how many microbatches this stage keeps activations at most."""
    if parts.schedule == "gpipe":
        return parts.microbatches
    per_process, place = stages_per_process(parts.schedule), stage.stage % world.stages
    if per_process == 1:
        return min(parts.microbatches, world.stages - place)
    of_all = 2 * (world.stages - place - 1) + (per_process - 1) * world.stages + 1
    return min(parts.microbatches, of_all / per_process)
