"""Rules for invalid combinations of axes. `auto` breaks no rule: a backend checks again after it has decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepstone.setups.axes import AUTO, AXES, FAKE, FORWARD_ONLY, FRAMEWORKS, LAUNCHERS_OF_ONE_HOST, NEON, Value
from deepstone.setups.honoured import FIRST_MAJOR, HONOURED
from deepstone.setups.refusals import REFUSALS, Refusal
from deepstone.setups.request import Request
from deepstone.setups.schemes import (
    DATA,
    HYBRID,
    PIPELINE,
    SCHEMES,
    SHARDED,
    TAKEN,
    Scheme,
    scheme_of,
    takes_microbatches,
)
from deepstone.setups.world import BETWEEN_PROCESSES, Parts, World

_TRYING = ("benchmark", "benchmark-all")  # values of `algorithm`


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    reason: str
    broken: Callable[[Request], bool]


def _on_cpu(request: Request) -> bool:
    return request["device"] == "cpu"


def _on_gpu(request: Request) -> bool:
    return str(request["device"]).startswith("gpu")


def _framework(request: Request) -> str:
    return str(request["framework"]).partition("@")[0]


def _backend(request: Request) -> str:
    """Return the framework or, of a legacy version, its name in `HONOURED`: torch 1."""
    name, _, version = str(request["framework"]).partition("@")
    major = version.partition(".")[0]
    return f"{name} 1" if major.isdecimal() and int(major) < FIRST_MAJOR.get(name, 0) else name


def _is_parallel(request: Request) -> bool:
    return World.of(request).is_parallel


def _is_scheme(request: Request, *names: str) -> bool:
    return _is_parallel(request) and scheme_of(request).name in names


def _schedule_takes(request: Request) -> bool:
    world, parts = World.of(request), Parts.of(request)
    return takes_microbatches(parts.schedule, microbatches=parts.microbatches, stages=world.stages)


def _left_out(scheme: Scheme) -> tuple[str, ...]:
    """The axes between processes that mean nothing in a scheme."""
    return tuple(name for name in BETWEEN_PROCESSES if name not in scheme.takes)


def _rules_of(scheme: Scheme) -> tuple[Rule, ...]:
    """What every scheme refuses: axes that mean nothing in it, other frameworks, other transports."""
    known = " or ".join(name for name in scheme.frameworks if name != FAKE)
    built = f"is built for {known} alone; use framework={known}" if known else "is not built; use scheme=data"
    return (
        Rule(
            reason=f"scheme={scheme.name} has no {', '.join(_left_out(scheme))}; leave them out",
            broken=lambda r: (
                _is_scheme(r, scheme.name) and any(r[name] != AXES[name].default for name in _left_out(scheme))
            ),
        ),
        Rule(
            reason=f"scheme={scheme.name} {built}",
            broken=lambda r: (
                _is_scheme(r, scheme.name)
                and (not known or _framework(r) in FRAMEWORKS)
                and _framework(r) not in scheme.frameworks
            ),
        ),
        Rule(
            reason=f"scheme={scheme.name} moves data by {' or '.join(scheme.transports)}; leave out transport",
            broken=lambda r: _is_scheme(r, scheme.name) and r["transport"] not in (AUTO, *scheme.transports),
        ),
    )


def _taking(framework: str, axis: str, values: tuple[str, ...]) -> Rule:
    taken = " or ".join(f"{axis}={value}" for value in values)
    return Rule(
        reason=f"in several processes {framework} takes {taken} only",
        broken=lambda r: _is_parallel(r) and _framework(r) == framework and r[axis] not in (AUTO, *values),
    )


def _refusing(refusal: Refusal) -> Rule:
    return Rule(reason=refusal.reason, broken=lambda r: _backend(r) == refusal.framework and refusal.fits(r))


def _honouring(framework: str, axis: str, values: Sequence[Value]) -> Rule:
    taken = " or ".join(map(str, values))
    return Rule(
        reason=f"{framework} takes {axis}={taken} only",
        broken=lambda r: _backend(r) == framework and r[axis] not in values,
    )


_OF_SCHEMES = (
    Rule(
        reason="scheme=hybrid needs the number of stages of each pipeline, as in pipeline=2",
        broken=lambda r: _is_scheme(r, HYBRID) and r["pipeline"] == AUTO,
    ),
    Rule(
        reason="scheme=hybrid has several pipelines of several stages: processes must be a multiple of pipeline, which "
        "is 2 or more; for one pipeline use scheme=pipeline",
        broken=lambda r: (
            _is_scheme(r, HYBRID)
            and (
                World.of(r).stages < 2 or World.of(r).processes % World.of(r).stages != 0 or World.of(r).data_ranks < 2
            )
        ),
    ),
    Rule(
        reason="scheme=pipeline makes one pipeline of all processes: leave out pipeline; for several use scheme=hybrid",
        broken=lambda r: _is_scheme(r, PIPELINE) and World.of(r).stages != World.of(r).processes,
    ),
    *(rule for scheme in SCHEMES.values() if scheme.name != DATA for rule in _rules_of(scheme)),
    Rule(
        reason=f"{', '.join(_left_out(SCHEMES[DATA]))}: scheme=data has none; leave them out, or choose a scheme",
        broken=lambda r: _is_scheme(r, DATA) and any(r[n] != AXES[n].default for n in _left_out(SCHEMES[DATA])),
    ),
    Rule(
        reason="servers keep their parameters in the memory of CPUs; use device=cpu",
        broken=lambda r: _is_parallel(r) and scheme_of(r).has_servers and _on_gpu(r),
    ),
    Rule(
        reason="precision=fp16-mixed scales the loss by what all gradients are, which scheme=data alone knows; use "
        "bf16-mixed",
        broken=lambda r: _is_parallel(r) and scheme_of(r).name != DATA and r["precision"] == "fp16-mixed",
    ),
    Rule(
        reason="schemes sharded, pipeline and hybrid send arrays that are contiguous; use layout=nchw",
        broken=lambda r: _is_scheme(r, SHARDED, PIPELINE, HYBRID) and r["layout"] == "nhwc",
    ),
    Rule(
        reason="checkpointing divides the network in another way than schemes sharded, pipeline and hybrid do; use "
        "checkpointing=off",
        broken=lambda r: _is_scheme(r, SHARDED, PIPELINE, HYBRID) and r["checkpointing"] == "on",
    ),
    Rule(
        reason="library=deepspeed shards parameters; use scheme=sharded",
        broken=lambda r: r["library"] == "deepspeed" and not _is_scheme(r, SHARDED),
    ),
    Rule(
        reason="library=deepspeed is built for fp32 alone, in which it has its own copy of all parameters; use "
        "precision=fp32",
        broken=lambda r: r["library"] == "deepspeed" and r["precision"] not in (AUTO, "fp32"),
    ),
    Rule(
        reason="library=horovod averages gradients; use scheme=data",
        broken=lambda r: r["library"] == "horovod" and not _is_scheme(r, DATA),
    ),
    Rule(
        reason="library=horovod sums plain gradients while backward computes the rest, by gloo; leave out transport, "
        "collective, compression and overlap",
        broken=lambda r: (
            r["library"] == "horovod"
            and (
                r["transport"] not in (AUTO, "gloo")
                or r["collective"] not in (AUTO, "allreduce")
                or r["compression"] != "none"
                or r["overlap"] == "off"
            )
        ),
    ),
    Rule(
        reason="library=horovod and library=deepspeed run on CPUs here; use device=cpu",
        broken=lambda r: r["library"] in ("horovod", "deepspeed") and _on_gpu(r),
    ),
    Rule(
        reason="library=mpi4py moves data by MPI; use transport=mpi",
        broken=lambda r: r["library"] == "mpi4py" and r["transport"] != "mpi",
    ),
)


RULES = (
    Rule(
        reason=f"{', '.join(BETWEEN_PROCESSES)}: they are about what processes exchange, and there is one; give "
        "processes=2 or more",
        broken=lambda r: not _is_parallel(r) and any(r[name] != AXES[name].default for name in BETWEEN_PROCESSES),
    ),
    Rule(
        reason="processes, with servers and a driver if there are any, must be a multiple of nodes, so that every node "
        "has as many",
        broken=lambda r: World.of(r).started % World.of(r).nodes != 0,
    ),
    *_OF_SCHEMES,
    *(_taking(framework, axis, values) for framework, axes in TAKEN.items() for axis, values in axes.items()),
    Rule(
        reason="batch must be a multiple of processes x accumulate (with a pipeline: of pipelines x accumulate x "
        "microbatches), so that all parts are equal; batch=8/process gives each process 8 samples",
        broken=lambda r: int(r["batch"]) % Parts.of(r).count != 0,
    ),
    Rule(
        reason="schedule=1f1b needs as many microbatches as a pipeline has stages, schedule=interleaved a multiple of "
        "them; give other microbatches, or use schedule=gpipe",
        broken=lambda r: World.of(r).stages > 1 and not _schedule_takes(r),
    ),
    Rule(
        reason="processes train together; use phase=train",
        broken=lambda r: _is_parallel(r) and r["phase"] != "train",
    ),
    Rule(
        reason="accumulate adds up gradients before an update; use phase=train",
        broken=lambda r: int(r["accumulate"]) > 1 and r["phase"] != "train",
    ),
    Rule(
        reason="launcher=local and torchrun start processes on this machine; for several nodes use mpirun or srun",
        broken=lambda r: World.of(r).nodes > 1 and r["launcher"] in LAUNCHERS_OF_ONE_HOST,
    ),
    Rule(
        reason="a launcher starts several processes; give processes=2 or more",
        broken=lambda r: not _is_parallel(r) and r["launcher"] not in (AUTO, "local"),
    ),
    Rule(
        reason="NCCL moves data between GPUs; on a CPU use transport=gloo or mpi",
        broken=lambda r: _on_cpu(r) and r["transport"] == "nccl",
    ),
    Rule(
        reason="transport=mpi needs processes that mpirun or srun started; leave out launcher, or use one of these",
        broken=lambda r: r["transport"] == "mpi" and r["launcher"] in LAUNCHERS_OF_ONE_HOST,
    ),
    Rule(
        reason="MPI moves data only inside its calls, so nothing overlaps with backward; leave out overlap, or use off",
        broken=lambda r: r["transport"] == "mpi" and r["overlap"] == "on",
    ),
    Rule(
        reason="transport=mpi sums in the memory of CPUs; on GPUs use nccl or gloo",
        broken=lambda r: r["transport"] == "mpi" and _on_gpu(r),
    ),
    Rule(
        reason="transport=mpi sends one buffer, so there are no buckets; leave out bucket or use gloo",
        broken=lambda r: r["transport"] == "mpi" and r["bucket"] != AUTO,
    ),
    Rule(
        reason="collective=reduce-broadcast sums one buffer after backward; use overlap=off",
        broken=lambda r: r["collective"] == "reduce-broadcast" and r["overlap"] == "on",
    ),
    Rule(
        reason="collective=reduce-broadcast sums plain gradients; use compression=none",
        broken=lambda r: r["collective"] == "reduce-broadcast" and r["compression"] != "none",
    ),
    Rule(
        reason="collective=reduce-broadcast sums one buffer, so there are no buckets; leave out bucket",
        broken=lambda r: r["collective"] == "reduce-broadcast" and r["bucket"] != AUTO,
    ),
    Rule(
        reason="overlap=off sends one buffer, so there are no buckets; leave out bucket or use overlap=on",
        broken=lambda r: r["overlap"] == "off" and r["bucket"] != AUTO,
    ),
    Rule(
        reason="ONNX Runtime runs networks and does not train them; use phase=forward",
        broken=lambda r: _framework(r) in FORWARD_ONLY and r["phase"] != "forward",
    ),
    Rule(
        reason="TF32 is a format of GPU matrix units; on a CPU use fp32 or bf16",
        broken=lambda r: _on_cpu(r) and r["precision"] in ("tf32", "tf32-conv"),
    ),
    Rule(reason="engine cudnn runs on a GPU only", broken=lambda r: _on_cpu(r) and r["engine"] == "cudnn"),
    Rule(reason="engine onednn runs on a CPU only", broken=lambda r: _on_gpu(r) and r["engine"] == "onednn"),
    Rule(
        reason="engine mkl is Neon's; what others take of Intel's is engine=onednn",
        broken=lambda r: r["engine"] == "mkl" and _framework(r) in {AUTO, *FRAMEWORKS} - {NEON},
    ),
    Rule(
        reason="algorithm=benchmark and benchmark-all try cuDNN's algorithms; a CPU engine has no such mode",
        broken=lambda r: _on_cpu(r) and r["algorithm"] in _TRYING,
    ),
    Rule(
        reason="algorithm=benchmark and benchmark-all try cuDNN's algorithms, and engine=native does not use cuDNN",
        broken=lambda r: r["engine"] == "native" and r["algorithm"] in _TRYING,
    ),
    Rule(reason="isa limits CPU libraries; on a GPU it does nothing", broken=lambda r: _on_gpu(r) and r["isa"] != AUTO),
    Rule(
        reason="power_limit is that of a GPU; on a CPU leave it out",
        broken=lambda r: _on_cpu(r) and r["power_limit"] != AUTO,
    ),
    Rule(
        reason="power_limit is set for one process on one GPU; leave it out, or use processes=1",
        broken=lambda r: _is_parallel(r) and r["power_limit"] != AUTO,
    ),
    Rule(
        reason="wait is about the threads of a CPU engine; on a GPU it does nothing",
        broken=lambda r: _on_gpu(r) and r["wait"] != AUTO,
    ),
    Rule(
        reason="checkpointing saves memory in backward, and phase=forward has none",
        broken=lambda r: r["phase"] == "forward" and r["checkpointing"] == "on",
    ),
    Rule(
        reason="input_grad needs a backward pass, and phase=forward has none",
        broken=lambda r: r["phase"] == "forward" and r["input_grad"] == "on",
    ),
    Rule(
        reason="input_grad needs the same image array in every step; use input=resident",
        broken=lambda r: r["input_grad"] == "on" and r["input"] != "resident",
    ),
    Rule(
        reason="an optimizer acts in phase=train only",
        broken=lambda r: r["phase"] != "train" and r["optimizer"] != AXES["optimizer"].default,
    ),
    Rule(
        reason="dropout is the identity in evaluation, which is what phase=forward measures",
        broken=lambda r: r["phase"] == "forward" and r["dropout"] == "on",
    ),
    Rule(
        reason="page-locked memory serves copies to a GPU; on a CPU use input=host",
        broken=lambda r: _on_cpu(r) and r["input"] == "pinned",
    ),
    Rule(
        reason="compile=reduce-overhead replays CUDA graphs; on a CPU it would be the same as default",
        broken=lambda r: _on_cpu(r) and r["compile"] == "reduce-overhead",
    ),
    Rule(
        reason="compile=reduce-overhead replays CUDA graphs, and with accumulate the next part of a batch overwrites "
        "what they computed; use compile=default",
        broken=lambda r: r["compile"] == "reduce-overhead" and r["accumulate"] != 1,
    ),
    Rule(
        reason="compile=coordinate-descent tunes the options of GPU kernels; on a CPU it would be the same as default",
        broken=lambda r: _on_cpu(r) and r["compile"] == "coordinate-descent",
    ),
    Rule(
        reason="compile=max-autotune-no-cudagraphs leaves out CUDA graphs; on a CPU it would be the same as "
        "max-autotune",
        broken=lambda r: _on_cpu(r) and r["compile"] == "max-autotune-no-cudagraphs",
    ),
    Rule(
        reason="compiling and checkpointing decide the same thing (what to keep for backward); choose one",
        broken=lambda r: r["compile"] not in (AUTO, "off", "graph") and r["checkpointing"] == "on",
    ),
    *(_refusing(refusal) for refusal in REFUSALS),
)
# The tables of values that frameworks take, as rules.
_OF_TABLES = tuple(
    _honouring(framework, axis, values) for framework, axes in HONOURED.items() for axis, values in axes.items()
)


def broken_rule(request: Request) -> str | None:
    """Return why this request cannot run, or None."""
    for rule in (*RULES, *_OF_TABLES):
        if rule.broken(request):
            return rule.reason
    framework = _framework(request)
    for name, axis in AXES.items() if framework in FRAMEWORKS else ():  # a plug-in decides in its worker
        if framework not in axis.honoured_by and request[name] != axis.default:
            return f"{framework} does not honour the axis {name}"
    return None


# Axes that do not apply to an isolated convolution, and axes of which the lab tries every value.
_NO_PART_OF_A_CONVOLUTION = ("compile", "input_grad", "dropout", "optimizer", "checkpointing", "input")
_TRIED_BY_THE_LAB = ("engine", "algorithm")


def lab_refusal(name: str, value: Value) -> str | None:
    """Return why the convolution lab refuses this value of an axis, or None. It never ignores a value silently."""
    if value == AXES[name].default:
        return None
    if name in _NO_PART_OF_A_CONVOLUTION:
        return f"{name}={value}: conv times convolutions by themselves; leave it out"
    if name in _TRIED_BY_THE_LAB:
        return f"{name}={value}: conv tries every {name} there is; leave it out"
    return None
