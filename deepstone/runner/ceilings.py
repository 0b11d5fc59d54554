"""Measures the ceilings of a device through a framework's worker: matrix products, memory copies, links.

Each is tried in several sizes, and the best median is the ceiling. If a probe crashes its worker, that is recorded and
the other probes continue in a fresh worker.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from statistics import median

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.environments.environment import Environment
from deepstone.errors import MissingError
from deepstone.hardware.reach import reach
from deepstone.measure.doubts import above_reach, clocks_disagree
from deepstone.measure.statistics import Quantity, median_of
from deepstone.results.ceilings import Ceiling
from deepstone.results.doubt import Doubt
from deepstone.runner.assemble import now
from deepstone.runner.conversation import Conversation, JobFailed, talking_to_worker
from deepstone.runner.examine import probe_job
from deepstone.runner.gpu_around import gpu_use_around
from deepstone.runner.job import Job, Machine
from deepstone.runner.measurement import (
    SHORTEST_SAMPLE_CPU_S,
    SHORTEST_SAMPLE_GPU_S,
    Launched,
    OnProgress,
    no_progress,
    noise_around,
)
from deepstone.runner.replies import Prepared

PRECISIONS = {"cpu": ("fp32", "bf16", "fp64"), "gpu": ("fp32", "tf32", "bf16", "fp16", "fp64")}

_SIZES = {"cpu": (512, 1024, 2048, 4096), "gpu": (2048, 4096, 8192, 16384)}
_MIB = 2**20
_GPU_COPY_BYTES = (256 * _MIB, 1024 * _MIB, 2048 * _MIB)
_LINK_BYTES = (64 * _MIB, 256 * _MIB)
_LEAST_CPU_COPY_BYTES = 64 * _MIB
_BEYOND_CACHE = 4  # a copy this many times as large as the largest cache measures memory
_ROUNDS = 5
_BLOCK_S = 0.1
_LONGEST_S = 0.5  # of one product; larger sizes add little information
_TIMEOUT_S = 300.0


class _Probe(Struct, frozen=True, kw_only=True):
    """One ceiling to measure: `kind` and `what` (a precision, or a peer's number), in these sizes."""

    kind: str
    what: str
    sizes: tuple[int, ...]

    def wanted(self, size: int) -> dict[str, str | int]:
        if self.kind == "product":
            return {"kind": self.kind, "precision": self.what, "size": size}
        if self.kind == "link":
            return {"kind": self.kind, "peer": int(self.what), "bytes": size}
        return {"kind": self.kind, "bytes": size}

    def work(self, size: int) -> int:
        """Return the FLOPs of a product, the bytes a copy reads and writes, or the bytes a link sends."""
        return {"product": 2 * size**3, "copy": 2 * size, "link": size}[self.kind]

    def growth(self, size: int, following: int) -> float:
        return self.work(following) / self.work(size)


class _Measured(Struct, frozen=True, kw_only=True):
    prepared: Prepared
    found: dict[tuple[str, str], Quantity | Absent]  # by kind and what
    doubts: list[Doubt]


def measure_ceilings(
    environment: Environment, machine: Machine, device: str, on_progress: OnProgress = no_progress
) -> Ceiling:
    """Return an entry of `doctor --peaks`; it has only `absent` if the framework does not run on the device."""
    job = probe_job(environment, machine, {"framework": environment.framework, "device": device})
    probes = _probes(machine, device)
    try:
        measured = _measure(job, probes, on_progress)
    except JobFailed as failure:
        reason = f"{failure.outcome}: {failure.reason}"
    except MissingError as error:
        reason = str(error)
    else:
        return _entry(environment, machine, device, measured)
    return Ceiling(device=device, framework=environment.name, absent=reason)


def _probes(machine: Machine, device: str) -> list[_Probe]:
    kind = device.partition(":")[0]
    probes = [_Probe(kind="product", what=precision, sizes=_SIZES[kind]) for precision in PRECISIONS[kind]]
    probes.append(_Probe(kind="copy", what="copy", sizes=_GPU_COPY_BYTES if kind == "gpu" else _cpu_copies(machine)))
    peers = [str(gpu.index) for gpu in machine.gpus if kind == "gpu" and device != f"gpu:{gpu.index}"]
    return probes + [_Probe(kind="link", what=peer, sizes=_LINK_BYTES) for peer in peers]


def _cpu_copies(machine: Machine) -> tuple[int, ...]:
    """Return sizes that exceed every cache and of which two fit easily into memory."""
    caches, memory_bytes = machine.cpu.caches, machine.description.memory_bytes
    largest = max((cache.bytes for cache in caches), default=0) if isinstance(caches, list) else 0
    least = max(_LEAST_CPU_COPY_BYTES, _BEYOND_CACHE * largest)
    most = max(_LEAST_CPU_COPY_BYTES, memory_bytes // 16 if isinstance(memory_bytes, int) else 0)
    return tuple(sorted({min(least, most), min(2 * least, most)}))


def _measure(job: Job, probes: Sequence[_Probe], on_progress: OnProgress) -> _Measured:
    """Measure in one worker; after a crash, in another one."""
    found: dict[tuple[str, str], Quantity | Absent] = {}
    launched = Launched()
    while not launched.stopped:
        with gpu_use_around(job) as gpu, talking_to_worker(job, timeout_s=_TIMEOUT_S) as conversation:
            hello = conversation.hello()
            launched = Launched(gpu=gpu, hello=hello, pids=[hello.pid], prepared=conversation.prepare())
            reason = conversation.contradiction()
            if reason:
                raise JobFailed("unsupported", reason, stage="prepare")
            with closing(noise_around([launched])) as noise:
                before = noise.now()
                if _measure_in(conversation, job, probes, found, on_progress):
                    launched.noise = (before, noise.now())
                    launched.round_trips = conversation.round_trips
                    launched.stopped = "everything measured"
                    conversation.close()
    assert launched.prepared is not None
    clocks = clocks_disagree(launched.round_trips)
    doubts = [*launched.noise_doubts, *([] if clocks is None else [clocks])]
    return _Measured(prepared=launched.prepared, found=found, doubts=doubts)


def _measure_in(
    conversation: Conversation,
    job: Job,
    probes: Sequence[_Probe],
    found: dict[tuple[str, str], Quantity | Absent],
    on_progress: OnProgress,
) -> bool:
    """Measure the probes that are not found yet. Return whether the worker is still alive."""
    for number, probe in enumerate(probes):
        key = probe.kind, probe.what
        if key in found:
            continue
        on_progress(f"{job.environment.name}: {probe.kind} {probe.what}", number / len(probes))
        try:
            found[key] = _best(conversation, probe, on_gpu=job.request["device"] != "cpu")
        except JobFailed as failure:
            found[key] = Absent(f"{failure.outcome}: {failure.reason}")
            if failure.outcome != "unsupported":
                return False
    return True


def _best(conversation: Conversation, probe: _Probe, *, on_gpu: bool) -> Quantity:
    return max(_rates(conversation, probe, on_gpu=on_gpu), key=lambda rate: rate.median)


def _rates(conversation: Conversation, probe: _Probe, *, on_gpu: bool) -> Iterator[Quantity]:
    """Yield one rate for each size, up to the first that would take too long."""
    shortest_s = SHORTEST_SAMPLE_GPU_S if on_gpu else SHORTEST_SAMPLE_CPU_S
    for size, following in zip(probe.sizes, (*probe.sizes[1:], None), strict=True):
        conversation.ceiling(**probe.wanted(size))
        once_s = max(1e-9, median(conversation.isolated_block(probe.kind, samples=3, lead=1).step_s))
        steps = max(1, math.ceil(shortest_s / once_s))
        samples = max(1, round(_BLOCK_S / (steps * once_s)))
        blocks = [
            conversation.isolated_block(probe.kind, samples=samples, steps_per_sample=steps).step_s
            for _ in range(_ROUNDS)
        ]
        yield median_of([blocks]).inverse(probe.work(size))
        if following is not None and once_s * probe.growth(size, following) > _LONGEST_S:
            return


def _entry(environment: Environment, machine: Machine, device: str, measured: _Measured) -> Ceiling:
    def of(kind: str, prefix: str = "") -> dict[str, Quantity | Absent]:
        return {prefix + what: value for (this, what), value in measured.found.items() if this == kind}

    on_cpu = device == "cpu"
    return Ceiling(
        device=device,
        framework=environment.name,
        threads=int(measured.prepared.value("threads")) if on_cpu else Absent("the device has no threads to set"),
        flops_per_s=of("product"),
        bytes_per_s=of("copy"),
        link=of("link", "gpu:") or Absent("there is no second device to send to"),
        measured_with=environment.name,
        measured_at=now(),
        doubts=[*measured.doubts, *_too_fast(machine, device, measured)],
    )


def _too_fast(machine: Machine, device: str, measured: _Measured) -> Iterator[Doubt]:
    """Yield doubts about ceilings that exceed the hardware: everything would seem slow against them."""
    for (kind, precision), rate in measured.found.items():
        bound = reach(machine.description, device, precision, gpu_uuid=measured.prepared.known.gpu_uuid)
        if kind == "product" and isinstance(rate, Quantity) and not isinstance(bound, Absent):
            doubt = above_reach(rate.median, bound.flops_per_s, precision, bound.hardware)
            if doubt is not None:
                yield doubt
