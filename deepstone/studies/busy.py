"""The batch for a first look at a device: the smallest that keeps it busy, within its memory.

A GPU waits for its host where a step is so small that the host takes longer to start its kernels than the GPU takes to
run them. So a step must keep the GPU busy for three times as long as the host needs. A CPU is its own host; there a
step must only be long against what every step costs beside its work.

The numbers behind it come from the records in results/h200 and results/two-cores. Only their order of magnitude
matters, since a batch is a power of two.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from deepstone.graph.cost import step_bytes, step_flops
from deepstone.graph.graph import Graph
from deepstone.graph.memory import step_memory
from deepstone.results.environment import Gpu

DeviceKind: TypeAlias = Literal["cpu", "gpu"]

LEAST: Final = 2  # a batch norm over one value has no variance
MOST: Final = 8192

_CORE_FLOPS_PER_S: Final = 40e9
_CORE_STEP_S: Final = 0.2
_HOST_S_PER_LAYER: Final = 100e-6  # eager, forward and backward: 17 ms for the 176 layers of ResNet-50
_BUSY_TIMES: Final = 3.0
# What a network reaches in mixed precision, the fastest that a study tries, over the peak of the cores in fp32: on the
# H200, 116 and 193 TFLOP/s over 67.
_FAST_SHARE: Final = 2.25
_FLOPS_PER_CLOCK: Final = 2
_UNKNOWN_GPU_FLOPS_PER_S: Final = 15e12
_BYTES_PER_FLOP: Final = 0.05  # of a GPU's memory: 3.9 TB/s beside 67 TFLOP/s
_MEMORY_SHARE: Final = 0.5  # the rest is for workspaces, the framework and everybody else


class Device(Struct, frozen=True, kw_only=True):
    """What decides the batch. `flops_per_s` is what its cores can do in fp32."""

    kind: DeviceKind
    flops_per_s: float
    memory_bytes: int | None = None

    @staticmethod
    def of_cpu(cores: int, memory_bytes: int | None) -> Device:
        return Device(kind="cpu", flops_per_s=cores * _CORE_FLOPS_PER_S, memory_bytes=memory_bytes)

    @staticmethod
    def of_gpu(gpu: Gpu) -> Device:
        cores, clock_mhz = gpu.cuda_cores, gpu.max_sm_clock_mhz
        flops_per_s = _UNKNOWN_GPU_FLOPS_PER_S
        if isinstance(cores, int) and isinstance(clock_mhz, int | float):
            flops_per_s = cores * clock_mhz * 1e6 * _FLOPS_PER_CLOCK
        memory_bytes = gpu.memory_bytes if isinstance(gpu.memory_bytes, int) else None
        return Device(kind="gpu", flops_per_s=flops_per_s, memory_bytes=memory_bytes)


def busy_batch(graph: Graph, device: Device) -> int:
    """A power of two, for a training step. Where even the least does not fit by this reckoning, it is the least."""
    batch = LEAST
    while batch < MOST and not _is_busy(graph, batch, device) and _fits(graph, 2 * batch, device):
        batch *= 2
    return batch


def _is_busy(graph: Graph, batch: int, device: Device) -> bool:
    flops = step_flops(graph, batch=batch, phase="train")
    if device.kind == "cpu":
        return flops / device.flops_per_s >= _CORE_STEP_S
    moved = step_bytes(graph, batch=batch, phase="train")
    on_device_s = flops / (_FAST_SHARE * device.flops_per_s) + moved / (_BYTES_PER_FLOP * device.flops_per_s)
    return on_device_s >= _BUSY_TIMES * _HOST_S_PER_LAYER * len(graph.layers)


def _fits(graph: Graph, batch: int, device: Device) -> bool:
    if device.memory_bytes is None:
        return True
    return step_memory(graph, batch=batch, phase="train").total_bytes <= _MEMORY_SHARE * device.memory_bytes
