"""How many processes a request means, on how many nodes, what each does, and which share of the batch it has.

scheme=data        ranks 0 1 2 3                 each has a quarter of the batch
scheme=pipeline    ranks 0→1→2→3                 all have the whole batch, in microbatches
scheme=hybrid      ranks 0→1, 2→3                each pipeline has half of the batch
scheme=server      ranks 0 1 2 3, server 4       each worker has a quarter; the server has none
                   and driver 5 (TensorFlow)     makes the workers step, and computes nothing
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from deepstone.setups.axes import AUTO, Value
from deepstone.setups.schemes import HYBRID, PIPELINE, microbatches_of, schedule_of, scheme_of

# What only several processes have. A setup with one process leaves them at their defaults.
BETWEEN_PROCESSES = (
    *("transport", "collective", "interface", "overlap", "bucket", "compression", "scheme"),
    *("servers", "pipeline", "microbatches", "schedule", "library"),
)
# What makes several processes, or parts of a batch, of a job that one process could do at once.
OF_SEVERAL = ("processes", "nodes", "launcher", "accumulate", *BETWEEN_PROCESSES)
Role: TypeAlias = Literal["worker", "server", "driver"]


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """All processes of one job. Ranks are numbered node by node, those of a pipeline in a row, then servers, and the
    driver last.

    `processes`: those that compute. `servers`: those beside them that keep the parameters, with a scheme that has
    them. `drivers`: one, in frameworks whose workers step when another process tells them to. `stages`: how many
    processes one pipeline has.
    """

    processes: int
    nodes: int
    servers: int = 0
    drivers: int = 0
    stages: int = 1

    @staticmethod
    def of(request: Mapping[str, Value]) -> World:
        nodes, asked = int(request["nodes"]), request["processes"]
        count, per_node, _ = str(asked).partition("/node")
        processes = nodes if asked == AUTO else int(count) * nodes if per_node else int(count)
        scheme = scheme_of(request)
        servers = 1 if request["servers"] == AUTO else int(request["servers"])
        framework = str(request["framework"]).partition("@")[0]
        return World(
            processes=processes,
            nodes=nodes,
            servers=servers if scheme.has_servers and processes > 1 else 0,
            drivers=1 if framework in scheme.driven_in and processes > 1 else 0,
            stages=_stages(request, processes) if processes > 1 else 1,
        )

    @property
    def is_parallel(self) -> bool:
        return self.processes > 1

    @property
    def started(self) -> int:
        """How many processes run, servers and driver included."""
        return self.processes + self.servers + self.drivers

    @property
    def driver(self) -> int | None:
        """The rank that makes all others step; None where every process does that itself."""
        return self.started - 1 if self.drivers else None

    @property
    def per_node(self) -> int:
        """How many of them on each node."""
        return self.started // self.nodes

    @property
    def data_ranks(self) -> int:
        """Into how many parts the batch is shared out."""
        return max(1, self.processes // self.stages)

    def role(self, rank: int) -> Role:
        if rank < self.processes:
            return "worker"
        return "driver" if rank == self.driver else "server"

    def title(self, rank: int) -> str:
        """A rank as messages name it: with what it does where ranks do different things."""
        if rank == self.driver:
            return f"rank {rank} (driver)"
        if rank >= self.processes:
            return f"rank {rank} (server {rank - self.processes})"
        return f"rank {rank} (stage {self.stage(rank)})" if self.stages > 1 else f"rank {rank}"

    def data_rank(self, rank: int) -> int:
        """Which part of the batch a worker has; servers and driver have none, and are given the first."""
        return rank // self.stages if rank < self.processes else 0

    def stage(self, rank: int) -> int:
        """Which stage of its pipeline a worker is."""
        return rank % self.stages


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """The parts into which a step divides the batch: over processes, then one after the other in each of them."""

    data_ranks: int
    accumulate: int
    microbatches: int
    schedule: str  # of the pipeline; empty where there is none

    @staticmethod
    def of(request: Mapping[str, Value]) -> Parts:
        world, accumulate = World.of(request), int(request["accumulate"])
        if world.stages == 1:
            return Parts(data_ranks=world.data_ranks, accumulate=accumulate, microbatches=1, schedule="")
        batch = int(request["batch"]) // (world.data_ranks * accumulate)
        microbatches = microbatches_of(request, batch=batch, stages=world.stages)
        schedule = schedule_of(request, microbatches=microbatches, stages=world.stages)
        return Parts(data_ranks=world.data_ranks, accumulate=accumulate, microbatches=microbatches, schedule=schedule)

    @property
    def count(self) -> int:
        return self.data_ranks * self.accumulate * self.microbatches


def _stages(request: Mapping[str, Value], processes: int) -> int:
    scheme, asked = scheme_of(request).name, request["pipeline"]
    if scheme == PIPELINE and asked == AUTO:
        return processes
    return int(asked) if scheme in (PIPELINE, HYBRID) and asked != AUTO else 1


def resolve_batch(batch: Value, request: Mapping[str, Value]) -> int:
    """`8/process` as the batch of the whole job."""
    count, per_process, _ = str(batch).partition("/process")
    return int(count) * World.of(request).processes if per_process else int(count)


def placed_on(
    placement: str, usable: Sequence[int], threads: int, *, local_rank: int = 0, per_node: int = 1
) -> list[int]:
    """The CPUs of one of the processes of a node. Where processes have more threads than there are CPUs, they share."""
    if placement == "none" or threads * per_node > len(usable):
        return list(usable)
    if placement == "compact":
        return list(usable[local_rank * threads : (local_rank + 1) * threads])
    stride = len(usable) // (threads * per_node)
    return [usable[(local_rank + per_node * thread) * stride] for thread in range(threads)]
