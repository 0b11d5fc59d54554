"""Which axes a search for the best setup may change, over which values, and what a change alters.

Every axis of `axes.py` has one of two parts: `Tuning`, or `NotTuned` with the reason. Values depend on facts about the
machine, the model and the request. Nothing here measures anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Value: TypeAlias = str | int
DeviceKind: TypeAlias = Literal["cpu", "gpu"]
# What a change alters: the order of operations, their rounding, what training keeps (weights, statistics), the batch.
Alters: TypeAlias = Literal["order", "rounding", "state", "batch"]

_MOST_PARTS: Final = 8  # processes or parts of a batch that a search tries
_ISA_FAMILIES: Final = ("avx2", "avx512_core", "avx512_core_amx")  # what is between them changes few kernels


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What decides which values are worth a look. `frameworks`: those that are installed, the best first. `isa`: the
    instruction sets of the CPU, from narrow to wide. `saves_memory`: memory is limited, or what is sought."""

    device: DeviceKind
    cores: int = 1
    gpus: int = 0
    frameworks: tuple[str, ...] = ()
    isa: tuple[str, ...] = ()
    batch: int = 32
    has_batch_norm: bool = False
    saves_memory: bool = False


def _always(_request: Mapping[str, Value], _facts: Facts) -> bool:
    return True


def _nothing_special(_value: Value, _facts: Facts) -> Alters:
    return "order"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """`values`: those worth a look beside the default, here. `active`: whether the axis means anything in a setup; if
    not, it keeps its default. `ordered`: near values behave alike. `rank`: 1 has the largest expected effect on that
    kind of device. `startup_s`: how much longer a value takes to start."""

    values: Callable[[Facts], tuple[Value, ...]]
    rank: Mapping[DeviceKind, int]
    active: Callable[[Mapping[str, Value], Facts], bool] = _always
    alters: Callable[[Value, Facts], Alters] = _nothing_special
    ordered: bool = False
    startup_s: Mapping[Value, float] = field(default_factory=dict[Value, float])


@dataclass(frozen=True, kw_only=True, slots=True)
class NotTuned:
    """Why a search leaves this axis as it is."""

    why: str


def _doubling(most: int, *, start: int = 1) -> tuple[int, ...]:
    found: list[int] = []
    while start < most:
        found.append(start)
        start *= 2
    return (*found, most) if most >= 1 else ()


def _rank(*, cpu: int, gpu: int) -> Mapping[DeviceKind, int]:
    return {"cpu": cpu, "gpu": gpu}


def _on(device: DeviceKind, *values: Value) -> Callable[[Facts], tuple[Value, ...]]:
    return lambda facts: values if facts.device == device else ()


def _by_device(*, cpu: tuple[Value, ...], gpu: tuple[Value, ...]) -> Callable[[Facts], tuple[Value, ...]]:
    return lambda facts: cpu if facts.device == "cpu" else gpu


def _is_parallel(request: Mapping[str, Value], _facts: Facts) -> bool:
    return request["processes"] not in ("auto", 1)


def _in_parts(_value: Value, facts: Facts) -> Alters:
    """A batch norm over a part of the batch has other statistics."""
    return "batch" if facts.has_batch_norm else "order"


def _splits(batch: int, most: int) -> tuple[int, ...]:
    return tuple(parts for parts in (2, 4, 8) if parts <= min(most, _MOST_PARTS) and batch % parts == 0)


def _of_precision(value: Value, _facts: Facts) -> Alters:
    return "state" if value in ("bf16", "fp16") else "order" if value in ("auto", "fp32", "fp64") else "rounding"


def _of_compression(value: Value, _facts: Facts) -> Alters:
    return "order" if value == "none" else "rounding" if value == "fp16" else "state"


def _isa_values(facts: Facts) -> tuple[Value, ...]:
    """The widest family is what `auto` takes."""
    return tuple(isa for isa in _ISA_FAMILIES if isa in facts.isa)[:-1] if facts.device == "cpu" else ()


def _leaves_cores(request: Mapping[str, Value], facts: Facts) -> bool:
    """Where every core is used, it does not matter which one a thread is on."""
    threads = request["threads"]
    processes = 1 if request["processes"] == "auto" else int(str(request["processes"]).partition("/")[0])
    return isinstance(threads, int) and threads * processes < facts.cores


FRAMEWORK: Final = Tuning(values=lambda facts: facts.frameworks, rank=_rank(cpu=4, gpu=3))
PRECISION: Final = Tuning(
    values=_by_device(cpu=("fp32", "bf16-mixed", "bf16"), gpu=("fp32", "tf32", "bf16-mixed", "bf16", "fp16-mixed")),
    rank=_rank(cpu=7, gpu=1),
    alters=_of_precision,
)
LAYOUT: Final = Tuning(values=lambda _facts: ("nchw", "nhwc"), rank=_rank(cpu=9, gpu=2))
ENGINE: Final = Tuning(values=_on("cpu", "onednn", "native"), rank=_rank(cpu=6, gpu=9))
ALGORITHM: Final = Tuning(
    values=_on("gpu", "heuristic", "benchmark"), rank=_rank(cpu=12, gpu=6), startup_s={"benchmark": 8.0}
)
COMPILE: Final = Tuning(
    values=_by_device(
        cpu=("off", "graph", "default", "max-autotune"),
        gpu=("off", "graph", "default", "reduce-overhead", "max-autotune"),
    ),
    rank=_rank(cpu=8, gpu=4),
    startup_s={"default": 20.0, "reduce-overhead": 25.0, "max-autotune": 60.0},
)
SPACE_TO_DEPTH: Final = Tuning(values=lambda _facts: ("on",), rank=_rank(cpu=12, gpu=5))
THREADS: Final = Tuning(
    values=lambda facts: _doubling(facts.cores) if facts.device == "cpu" else (),
    rank=_rank(cpu=1, gpu=12),
    ordered=True,
)
INTER_THREADS: Final = Tuning(
    values=_on("cpu", 1),
    rank=_rank(cpu=11, gpu=13),
    ordered=True,
)
AFFINITY: Final = Tuning(values=_on("cpu", "compact", "spread"), rank=_rank(cpu=3, gpu=14), active=_leaves_cores)
ISA: Final = Tuning(values=_isa_values, rank=_rank(cpu=10, gpu=15), ordered=True)
OPTIMIZER: Final = Tuning(values=lambda _facts: ("momentum-fused",), rank=_rank(cpu=12, gpu=7))
CHECKPOINTING: Final = Tuning(
    values=lambda facts: ("on",) if facts.saves_memory else (), rank=_rank(cpu=13, gpu=8), startup_s={"on": 2.0}
)
PROCESSES: Final = Tuning(
    values=lambda facts: _splits(facts.batch, facts.cores if facts.device == "cpu" else facts.gpus),
    rank=_rank(cpu=2, gpu=5),
    alters=_in_parts,
    ordered=True,
    startup_s=dict.fromkeys((2, 4, 8), 4.0),
)
ACCUMULATE: Final = Tuning(
    values=lambda facts: _splits(facts.batch, facts.batch), rank=_rank(cpu=5, gpu=10), alters=_in_parts, ordered=True
)
OVERLAP: Final = Tuning(
    values=lambda facts: ("off",) if facts.gpus > 1 else (), rank=_rank(cpu=14, gpu=11), active=_is_parallel
)
BUCKET: Final = Tuning(
    values=lambda facts: (5, 100) if facts.gpus > 1 else (),
    rank=_rank(cpu=15, gpu=12),
    active=_is_parallel,
    ordered=True,
)
COMPRESSION: Final = Tuning(
    values=lambda facts: ("fp16", "powersgd", "onebit") if facts.gpus > 1 else (),
    rank=_rank(cpu=16, gpu=13),
    active=_is_parallel,
    alters=_of_compression,
)
BATCH: Final = Tuning(
    values=lambda _facts: (), rank=_rank(cpu=3, gpu=3), alters=lambda _value, _facts: "batch", ordered=True
)

WORKLOAD: Final = NotTuned(why="it is part of the workload, not a way to run it")
PLACE: Final = NotTuned(why="you choose where to measure; a search stays on that device")
CLUSTER: Final = NotTuned(why="you choose the machines; `deepstone scale` shows what more of them bring")
SCHEME: Final = NotTuned(why="schemes differ in memory more than in speed; compare them as docs/schemes.md shows")
OF_A_SCHEME: Final = NotTuned(why="only a scheme that you choose has it; compare it as docs/schemes.md shows")
TRANSPORT: Final = NotTuned(why="`deepstone comm` measures transports by themselves, which takes less time")

# What `auto` means, as records show it. A value that is the same as `auto` is no setup of its own. `cores`: as many as
# the process may use.
_CORES: Final = "cores"
_MEANS: Final[Mapping[tuple[str, DeviceKind], Mapping[str, Value]]] = {
    ("torch", "cpu"): {
        "precision": "fp32",
        "layout": "nchw",
        "engine": "onednn",
        "algorithm": "heuristic",
        "compile": "off",
        "threads": _CORES,
        "inter_threads": _CORES,
    },
    ("torch", "gpu"): {
        "precision": "tf32-conv",
        "layout": "nchw",
        "engine": "cudnn",
        "algorithm": "heuristic",
        "compile": "off",
    },
    ("tensorflow", "cpu"): {
        "precision": "fp32",
        "layout": "nhwc",
        "engine": "onednn",
        "algorithm": "heuristic",
        "compile": "graph",
        "threads": _CORES,
        "inter_threads": _CORES,
    },
    ("jax", "cpu"): {
        "precision": "fp32",
        "layout": "nhwc",
        "engine": "xla",
        "algorithm": "heuristic",
        "compile": "default",
        "threads": _CORES,
    },
    ("jax", "gpu"): {
        "precision": "tf32",
        "layout": "nhwc",
        "engine": "xla",
        "algorithm": "benchmark",
        "compile": "default",
    },
}


def meaning_of_auto(framework: str, facts: Facts) -> Mapping[str, Value]:
    """The values that `auto` is known to take in a framework here, by axis."""
    known = _MEANS.get((framework.partition("@")[0], facts.device), {})
    return {axis: facts.cores if value == _CORES else value for axis, value in known.items()}
