"""Every axis, declared once. The command line, the checks, the docs table and the tuner all read this list."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from deepstone import plugins
from deepstone.errors import UsageError, nearest, shown
from deepstone.setups import tuning
from deepstone.setups.tuning import NotTuned, Tuning
from deepstone.setups.tuning import Value as Value

OWN = "own"  # a user's own optimizer
GLIBC = "glibc"  # the C library's own allocator
AUTO = "auto"

TORCH = "torch"
TENSORFLOW = "tensorflow"
JAX = "jax"
PADDLE = "paddle"
MXNET = "mxnet"
THEANO = "theano"
CHAINER = "chainer"
CNTK = "cntk"
CAFFE = "caffe"
NEON = "neon"
TORCH7 = "torch7"
ONNXRUNTIME = "onnxruntime"
FAKE = "fake"  # scripted, for tests; never chosen by `auto`
CURRENT = (TORCH, TENSORFLOW, JAX)
OFFERED = (*CURRENT, PADDLE, MXNET, THEANO, CHAINER, CNTK, CAFFE, NEON, TORCH7, ONNXRUNTIME)
FORWARD_ONLY = (ONNXRUNTIME,)  # they run networks but do not train them
FRAMEWORKS = (*OFFERED, FAKE)
IN_PARALLEL = (*CURRENT, FAKE)  # train in several processes
LAUNCHERS_OF_ONE_HOST = ("local", "torchrun")  # and they bring no MPI
_IN_ALL_SCHEMES = (TORCH, FAKE)
_NOT_LEGACY = (*CURRENT, FAKE)  # honour axes that no framework offered before about 2020

MOST_BATCH = 2**20
MOST_PROCESSES = 2**16

# Instruction sets from narrow to wide, as oneDNN names them.
ISA_ORDER = (
    "sse41",
    "avx",
    "avx2",
    "avx2_vnni",
    "avx2_vnni_2",
    "avx512_core",
    "avx512_core_vnni",
    "avx512_core_bf16",
    "avx512_core_fp16",
    "avx512_core_amx",
    "avx512_core_amx_fp16",
    "avx10_1_512",
    "avx10_1_512_amx",
    "avx10_1_512_amx_fp16",
    "avx10_2",
    "avx10_2_amx_2",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """One way in which runs can differ. `parse` turns text into a value or raises UsageError."""

    name: str
    type: str
    values: tuple[str, ...]  # accepted values; for open types, a description
    default: Value
    honoured_by: tuple[str, ...]
    help: str
    parse: Callable[[str], Value]
    tuning: Tuning | NotTuned

    def offered(self) -> tuple[str, ...]:
        """`values`, and the frameworks that plug-ins add."""
        return (*self.values, *plugins.declared(plugins.BACKENDS)) if self.name == "framework" else self.values


def _unknown(axis: str, text: str, values: tuple[str, ...]) -> UsageError:
    return UsageError(f"{axis}={shown(text)}: not a value of {axis}; {nearest(text, values)}")


def _choice(
    name: str,
    values: tuple[str, ...],
    help: str,
    *,
    tuning: Tuning | NotTuned,
    default: str = AUTO,
    honoured_by: tuple[str, ...] = FRAMEWORKS,
) -> Axis:
    allowed = values if default != AUTO else (AUTO, *values)

    def parse(text: str) -> Value:
        lowered = text.lower()
        if lowered not in allowed:
            raise _unknown(name, text, allowed)
        return lowered

    return Axis(
        name=name,
        type="choice",
        values=allowed,
        default=default,
        honoured_by=honoured_by,
        help=help,
        parse=parse,
        tuning=tuning,
    )


def _count(
    name: str,
    help: str,
    *,
    tuning: Tuning | NotTuned,
    default: Value = AUTO,
    least: int = 1,
    most: int = 2**31 - 1,
    honoured_by: tuple[str, ...] = FRAMEWORKS,
) -> Axis:
    def parse(text: str) -> Value:
        if default == AUTO and text.lower() == AUTO:
            return AUTO
        if not re.fullmatch(r"[0-9]{1,12}", text) or not least <= int(text) <= most:
            also = " or auto" if default == AUTO else ""
            raise UsageError(f"{name}={shown(text)}: must be a whole number from {least} to {most}{also}")
        return int(text)

    words = (f"{least}…",) if default != AUTO else (AUTO, f"{least}…")
    return Axis(
        name=name,
        type="count",
        values=words,
        default=default,
        honoured_by=honoured_by,
        help=help,
        parse=parse,
        tuning=tuning,
    )


def _parse_framework(text: str) -> Value:
    name, at, version = text.partition("@")
    if name == AUTO and not at:
        return AUTO
    if name not in FRAMEWORKS and name not in plugins.declared(plugins.BACKENDS):
        known = (*OFFERED, *plugins.declared(plugins.BACKENDS))
        raise UsageError(f"framework={shown(text)}: no such framework; {nearest(name, known)}")
    if at and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+_-]*", version):
        raise UsageError(f"framework={shown(text)}: after @ comes a version, as in {name}@1.2.3")
    return text


def _parse_device(text: str) -> Value:
    lowered = re.sub(r"^cuda", "gpu", text.lower())
    if lowered in (AUTO, "cpu"):
        return lowered
    match = re.fullmatch(r"gpu(?::([0-9]{1,3}))?", lowered)
    if not match:
        raise _unknown("device", text, (AUTO, "cpu", "gpu", "gpu:0"))
    return f"gpu:{int(match[1] or 0)}"


PLACEMENTS = ("none", "compact", "spread")  # of processes on cores


def cpu_list(text: str) -> list[int]:
    """`0-2+5` means CPUs 0, 1, 2 and 5 (a comma already separates values of an axis)."""
    cpus: set[int] = set()
    for part in text.split("+"):
        match = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise UsageError(
                f"affinity={shown(text)}: must be CPU numbers as in 0-3 or 0+2+4-5, compact, spread, none or auto"
            )
        cpus.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return sorted(cpus)


def format_cpus(cpus: list[int]) -> str:
    """Return the shortest text for a list of CPUs on the affinity axis."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return "+".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _parse_batch(text: str) -> Value:
    per_process = re.fullmatch(r"([0-9]{1,12})/process", text.lower())
    digits = per_process[1] if per_process else text
    if not re.fullmatch(r"[0-9]{1,12}", digits) or not 1 <= int(digits) <= MOST_BATCH:
        raise UsageError(
            f"batch={shown(text)}: must be a whole number from 1 to {MOST_BATCH}, or one for each process, as 8/process"
        )
    return f"{int(digits)}/process" if per_process else int(digits)


def _parse_processes(text: str) -> Value:
    lowered = text.lower()
    if lowered == AUTO:
        return AUTO
    match = re.fullmatch(r"([0-9]{1,6})(/node)?", lowered)
    if not match or not 1 <= int(match[1]) <= MOST_PROCESSES:
        raise UsageError(
            f"processes={shown(text)}: must be a whole number from 1 to {MOST_PROCESSES}, as many for each node, "
            "as 4/node, or auto"
        )
    return f"{int(match[1])}/node" if match[2] else int(match[1])


def _parse_interface(text: str) -> Value:
    if text.lower() == AUTO:
        return AUTO
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}", text):
        raise UsageError(f"interface={shown(text)}: must be the name of a network interface, as in eth0, or auto")
    return text


def _parse_affinity(text: str) -> Value:
    lowered = text.lower()
    return lowered if lowered in (AUTO, *PLACEMENTS) else format_cpus(cpu_list(text))


_DECLARED = (
    Axis(
        name="framework",
        type="name[@version]",
        values=(AUTO, *OFFERED),
        default=AUTO,
        honoured_by=FRAMEWORKS,
        help="Which framework runs the network; auto takes the best one found.",
        parse=_parse_framework,
        tuning=tuning.FRAMEWORK,
    ),
    Axis(
        name="device",
        type="device",
        values=(AUTO, "cpu", "gpu", "gpu:N"),
        default=AUTO,
        honoured_by=FRAMEWORKS,
        help="Where the step runs; auto takes the first GPU the framework can use, else the CPU.",
        parse=_parse_device,
        tuning=tuning.PLACE,
    ),
    Axis(
        name="batch",
        type="count",
        values=("1…", "8/process"),
        default=32,
        honoured_by=FRAMEWORKS,
        help="Samples in one step of the whole job; 8/process: so many for each of its processes.",
        parse=_parse_batch,
        tuning=tuning.BATCH,
    ),
    _choice(
        "phase",
        ("forward", "gradient", "train"),
        "forward: evaluation, no gradient; gradient: forward and backward, no update; train: the whole step.",
        default="train",
        tuning=tuning.WORKLOAD,
    ),
    _choice(
        "precision",
        ("fp32", "tf32", "tf32-conv", "bf16-mixed", "bf16", "fp16-mixed", "fp64"),
        "Number format. tf32: convolutions and matrix products in TF32; tf32-conv: convolutions alone (torch's own "
        "default on a GPU); -mixed: automatic casting around fp32 weights; bf16: everything in bf16; "
        "fp64: double precision, in which frameworks are proven the same.",
        tuning=tuning.PRECISION,
    ),
    _choice(
        "layout",
        ("nchw", "nhwc"),
        "Order of an image in memory: channels first or channels last.",
        tuning=tuning.LAYOUT,
    ),
    _choice(
        "engine",
        ("onednn", "cudnn", "native", "xla", "mkl"),
        "What runs the layers: onednn (CPU), cudnn (GPU), the framework's own kernels, programs that XLA compiled, or "
        "the layers of Intel's MKL (Neon).",
        tuning=tuning.ENGINE,
    ),
    _choice(
        "algorithm",
        ("heuristic", "benchmark", "benchmark-all", "deterministic"),
        "How an algorithm is chosen: by the library's rule; on a GPU by trying those that the library ranks highest on "
        "the first step, or all of them (torch); or only deterministic ones.",
        honoured_by=_NOT_LEGACY,
        tuning=tuning.ALGORITHM,
    ),
    _choice(
        "compile",
        (
            *("off", "graph", "default", "reduce-overhead"),
            *("coordinate-descent", "max-autotune-no-cudagraphs", "max-autotune"),
        ),
        "off: one operation after the other; graph: the step recorded as a graph, uncompiled (TensorFlow); default and "
        "the rest: compiled, in one of the compiler's modes (torch.compile; XLA in TensorFlow and JAX). "
        "coordinate-descent: default, with the options of each kernel tuned one after the other (GPU).",
        honoured_by=_NOT_LEGACY,
        tuning=tuning.COMPILE,
    ),
    _choice(
        "space_to_depth",
        ("off", "on"),
        "on: a strided convolution over at most four channels, as the first one of most networks, takes blocks of "
        "pixels as channels and has no stride. The same products are summed in another order.",
        default="off",
        honoured_by=(TORCH, JAX, FAKE),
        tuning=tuning.SPACE_TO_DEPTH,
    ),
    _count("threads", "Threads that share the work of one operation.", most=4096, tuning=tuning.THREADS),
    _count(
        "inter_threads",
        "Threads that run independent operations side by side.",
        most=4096,
        honoured_by=(TORCH, TENSORFLOW, ONNXRUNTIME, FAKE),
        tuning=tuning.INTER_THREADS,
    ),
    Axis(
        name="affinity",
        type="cpus",
        values=(AUTO, *PLACEMENTS, "0-3", "0+2+4-5"),
        default=AUTO,
        honoured_by=FRAMEWORKS,
        help="CPUs the process may use. compact: as many as it has threads, side by side; spread: far apart, each "
        "process its own ones; none: all.",
        parse=_parse_affinity,
        tuning=tuning.AFFINITY,
    ),
    _choice(
        "allocator",
        (GLIBC, "jemalloc", "tcmalloc"),
        "What serves malloc in the process: the C library, or one of these libraries, preloaded.",
        tuning=tuning.ALLOCATOR,
    ),
    _choice(
        "wait",
        ("active", "passive"),
        "What OpenMP threads do between two operations. active: spin for up to about 50 ms; passive: sleep at once.",
        honoured_by=(TORCH, FAKE),
        tuning=tuning.WAIT,
    ),
    _count(
        "power_limit",
        "Watts that the GPU may take, where its driver lets you set that; put back when the run ends.",
        most=10_000,
        honoured_by=_NOT_LEGACY,
        tuning=tuning.POWER,
    ),
    _choice(
        "input_grad",
        ("off", "on"),
        "Also compute the gradient of the image, which training does not need.",
        default="off",
        tuning=tuning.WORKLOAD,
    ),
    _choice(
        "isa",
        ISA_ORDER,
        "The widest instruction set that CPU libraries may use.",
        honoured_by=(TORCH, TENSORFLOW, FAKE),
        tuning=tuning.ISA,
    ),
    _choice(
        "dropout",
        ("off", "on"),
        "Whether dropout layers drop; off makes them the identity.",
        default="off",
        tuning=tuning.WORKLOAD,
    ),
    _choice(
        "optimizer",
        ("momentum", "momentum-fused", "sgd", "adam", "adamw", OWN),
        "momentum: SGD with momentum 0.9; momentum-fused: the same update in one kernel; sgd: without momentum; adam; "
        "adamw: adam with a decoupled weight decay of 0.01. The learning rate is 0.0001. own: the one that a torch "
        "module's file makes.",
        default="momentum",
        tuning=tuning.OPTIMIZER,
    ),
    _choice(
        "checkpointing",
        ("off", "on"),
        "Forget activations in forward and compute them again in backward: less memory, more time.",
        default="off",
        honoured_by=_NOT_LEGACY,
        tuning=tuning.CHECKPOINTING,
    ),
    _choice(
        "input",
        ("resident", "host", "pinned"),
        "Where the batch lies when a step begins: on the device, in host memory, or in page-locked host memory. "
        "From host memory it is copied in every step, which is the data phase.",
        default="resident",
        tuning=tuning.WORKLOAD,
    ),
    Axis(
        name="processes",
        type="processes",
        values=(AUTO, "1…", "4/node"),
        default=AUTO,
        honoured_by=IN_PARALLEL,
        help="How many processes train together, each with a share of the batch; auto: one on each node.",
        parse=_parse_processes,
        tuning=tuning.PROCESSES,
    ),
    _count(
        "nodes",
        "On how many machines the processes run.",
        default=1,
        most=MOST_PROCESSES,
        honoured_by=IN_PARALLEL,
        tuning=tuning.CLUSTER,
    ),
    _choice(
        "launcher",
        (*LAUNCHERS_OF_ONE_HOST, "mpirun", "srun"),
        "What starts the processes: Deepstone itself on this machine, or one of these engines.",
        honoured_by=IN_PARALLEL,
        tuning=tuning.CLUSTER,
    ),
    _choice(
        "scheme",
        ("data", "sharded", "server", "server-async", "pipeline", "hybrid"),
        "How the work is shared out. data (auto): every process has the whole network and a part of the batch; "
        "sharded: the same, but a shard of parameters and optimizer state; server: workers send gradients to servers, "
        "which update; server-async: without waiting for each other; pipeline: each process has some layers; hybrid: "
        "several pipelines, each with a part of the batch.",
        honoured_by=IN_PARALLEL,
        tuning=tuning.SCHEME,
    ),
    _count(
        "servers",
        "With scheme=server: how many processes keep the parameters, beside those that compute; auto: one.",
        most=MOST_PROCESSES,
        honoured_by=(TORCH, TENSORFLOW, FAKE),
        tuning=tuning.OF_A_SCHEME,
    ),
    _count(
        "pipeline",
        "How many processes form one pipeline. auto: all with scheme=pipeline; scheme=hybrid needs it.",
        most=MOST_PROCESSES,
        honoured_by=_IN_ALL_SCHEMES,
        tuning=tuning.OF_A_SCHEME,
    ),
    _count(
        "microbatches",
        "Into how many parts a pipeline divides its batch; auto: up to four for each stage. 1 splits the layers over "
        "processes without a pipeline.",
        most=2**20,
        honoured_by=_IN_ALL_SCHEMES,
        tuning=tuning.OF_A_SCHEME,
    ),
    _choice(
        "schedule",
        ("gpipe", "1f1b", "interleaved"),
        "In which order a pipeline computes. gpipe: forward of all microbatches, then backward; 1f1b (auto): one "
        "forward, one backward; interleaved: the same, with two stages in each process.",
        honoured_by=_IN_ALL_SCHEMES,
        tuning=tuning.OF_A_SCHEME,
    ),
    _choice(
        "transport",
        ("gloo", "nccl", "mpi", "grpc"),
        "The library that moves gradients between processes: gloo or MPI on CPUs, NCCL on GPUs; gRPC in TensorFlow.",
        honoured_by=IN_PARALLEL,
        tuning=tuning.TRANSPORT,
    ),
    _choice(
        "library",
        ("mpi4py", "horovod", "deepspeed"),
        "The library that organizes the exchange; auto: the framework's own, and mpi4py with transport=mpi. horovod: "
        "in place of torch's data parallelism; deepspeed: in place of its sharded one.",
        honoured_by=_IN_ALL_SCHEMES,
        tuning=tuning.TRANSPORT,
    ),
    _choice(
        "collective",
        ("allreduce", "reduce-broadcast", "ring"),
        "How gradients are summed: all at once, at one process that sends the sum to all, as Caffe's variants did, or "
        "in a ring (TensorFlow).",
        honoured_by=IN_PARALLEL,
        tuning=tuning.TRANSPORT,
    ),
    Axis(
        name="interface",
        type="name",
        values=(AUTO, "eth0"),
        default=AUTO,
        honoured_by=(TORCH, JAX, FAKE),
        help="The network interface that the transport uses.",
        parse=_parse_interface,
        tuning=tuning.CLUSTER,
    ),
    _choice(
        "overlap",
        ("on", "off"),
        "on: gradients are reduced in buckets while backward computes the rest; off: in one buffer after backward.",
        honoured_by=IN_PARALLEL,
        tuning=tuning.OVERLAP,
    ),
    _count(
        "bucket",
        "Size of a bucket of gradients in MiB.",
        most=2**20,
        honoured_by=(TORCH, TENSORFLOW, FAKE),
        tuning=tuning.BUCKET,
    ),
    _choice(
        "compression",
        ("none", "fp16", "powersgd", "onebit"),
        "What becomes of gradients before they are sent: 16-bit numbers, a product of two thin matrices, or signs; the "
        "last two keep what they leave out for the next step.",
        default="none",
        honoured_by=_IN_ALL_SCHEMES,
        tuning=tuning.COMPRESSION,
    ),
    _count(
        "accumulate",
        "How many parts of its batch a process computes one after the other before it updates.",
        default=1,
        most=2**20,
        honoured_by=IN_PARALLEL,
        tuning=tuning.ACCUMULATE,
    ),
    _count(
        "seed",
        "Fixes the initial weights, the batch and dropout.",
        default=0,
        least=0,
        most=2**31 - 1,
        tuning=tuning.WORKLOAD,
    ),
)

AXES: dict[str, Axis] = {axis.name: axis for axis in _DECLARED}
