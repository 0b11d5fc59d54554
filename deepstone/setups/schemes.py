"""The schemes of parallelism as data: which axes each takes, which transports carry it, which frameworks have it.

data           every process has the whole network and a part of the batch; gradients are averaged
sharded        the same, but each process keeps only a shard of parameters, gradients and optimizer state
server         workers send gradients to server processes, which update and send parameters back
server-async   the same, but a server applies each worker's gradient as it comes
pipeline       each process has some layers; microbatches of the batch pass through all of them
hybrid         several pipelines, each with a part of the batch
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from deepstone.setups.axes import AUTO, CURRENT, FAKE, JAX, TENSORFLOW, TORCH, Value

DATA: Final = "data"
SHARDED: Final = "sharded"
SERVER: Final = "server"
SERVER_ASYNC: Final = "server-async"
PIPELINE: Final = "pipeline"
HYBRID: Final = "hybrid"

# A process takes up to so many microbatches for each stage where the request leaves it open: the share of a step that
# stages wait is then at most about 1/5.
_MICROBATCHES_PER_STAGE: Final = 4
_INTERLEAVED_STAGES: Final = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheme:
    """`takes`: the axes between processes that mean something in it."""

    name: str
    takes: tuple[str, ...]
    transports: tuple[str, ...]
    frameworks: tuple[str, ...]
    has_servers: bool = False
    driven_in: tuple[str, ...] = ()  # frameworks in which one more process, the driver, makes the workers step
    has_stages: bool = False
    is_equivalent: bool = True  # trains as one process does


_ALWAYS: Final = ("scheme", "transport", "interface", "library")
_SERVER: Final = Scheme(
    name=SERVER,
    takes=(*_ALWAYS, "servers"),
    transports=("gloo", "grpc"),
    frameworks=(TORCH, TENSORFLOW, FAKE),
    has_servers=True,
    driven_in=(TENSORFLOW,),
)
_PIPELINE: Final = Scheme(
    name=PIPELINE,
    takes=(*_ALWAYS, "pipeline", "microbatches", "schedule"),
    transports=("gloo", "nccl"),
    frameworks=(TORCH, FAKE),
    has_stages=True,
)

SCHEMES: Final[Mapping[str, Scheme]] = {
    scheme.name: scheme
    for scheme in (
        Scheme(
            name=DATA,
            takes=(*_ALWAYS, "collective", "overlap", "bucket", "compression"),
            transports=("gloo", "nccl", "mpi"),
            frameworks=(*CURRENT, FAKE),
        ),
        Scheme(name=SHARDED, takes=(*_ALWAYS, "bucket"), transports=("gloo", "nccl"), frameworks=(TORCH, FAKE)),
        _SERVER,
        replace(_SERVER, name=SERVER_ASYNC, is_equivalent=False),
        _PIPELINE,
        replace(_PIPELINE, name=HYBRID),
    )
}

# What frameworks take of an axis in several processes, where that is not every value of it.
TAKEN: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    TORCH: {
        "compile": ("off",),
        "transport": ("gloo", "nccl", "mpi"),
        "collective": ("allreduce", "reduce-broadcast"),
    },
    TENSORFLOW: {
        "device": ("cpu",),
        "compile": ("graph",),
        "transport": ("grpc",),
        "collective": ("allreduce", "ring"),
    },
    JAX: {"device": ("cpu",), "transport": ("gloo",), "collective": ("allreduce",), "overlap": ("off",)},
}


def scheme_of(request: Mapping[str, Value]) -> Scheme:
    """`auto` is data parallelism."""
    asked = str(request["scheme"])
    return SCHEMES[DATA if asked == AUTO else asked]


def microbatches_of(request: Mapping[str, Value], *, batch: int, stages: int) -> int:
    """How many parts of `batch`, which is that of one pipeline and one part to be accumulated, pass through the stages.
    `auto`: the most that divide it, up to a few for each stage."""
    if not scheme_of(request).has_stages:
        return 1
    asked = request["microbatches"]
    if asked != AUTO:
        return int(asked)
    most = min(_MICROBATCHES_PER_STAGE * stages, batch)
    return next((count for count in range(most, 0, -1) if batch % count == 0 and _fits(request, count, stages)), 1)


def schedule_of(request: Mapping[str, Value], *, microbatches: int, stages: int) -> str:
    """`auto`: 1F1B, which keeps fewer activations than GPipe; it needs as many microbatches as there are stages."""
    asked = str(request["schedule"])
    if asked != AUTO:
        return asked
    return "1f1b" if microbatches >= stages else "gpipe"


def stages_per_process(schedule: str) -> int:
    return _INTERLEAVED_STAGES if schedule == "interleaved" else 1


def takes_microbatches(schedule: str, *, microbatches: int, stages: int) -> bool:
    """Whether a schedule can run so many: 1F1B needs one for each stage, interleaved 1F1B whole rounds of them."""
    if schedule == "1f1b":
        return microbatches >= stages
    return schedule != "interleaved" or microbatches % max(1, microbatches // stages) == 0


def _fits(request: Mapping[str, Value], microbatches: int, stages: int) -> bool:
    schedule = schedule_of(request, microbatches=microbatches, stages=stages)
    return takes_microbatches(schedule, microbatches=microbatches, stages=stages)
