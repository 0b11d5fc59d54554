"""The theoretical limit of a device, from its specification: units, clock and width of its arithmetic.

This is an upper bound that no program gets near, for devices without a measured peak. It exposes impossible numbers. A
device that this file does not know has no bound, rather than a wrong one.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from deepstone.absent import Absent
from deepstone.results.environment import Cpu, Gpu, Machine

# No processor on the market has a higher clock; used for virtual machines, which do not show theirs.
_HIGHEST_MHZ: Final = 6500.0

# FLOPs of a core per cycle in fp32: two fused multiply-adds on the widest vectors, as on the largest cores (four on
# Arm's narrow vectors). The first flag that a processor has counts.
_FP32_PER_CYCLE: Final = {
    "avx512f": 64,
    "avx2": 32,
    "avx": 16,
    "sse4_2": 16,
    "sve": 128,
    "asimd": 32,
}
_FP64_SHARE: Final = 0.5
# Half precision in multiples of fp32; processors without such instructions compute in fp32.
_HALF_BY_FLAG: Final = {"amx_bf16": 32, "amx_fp16": 32, "bf16": 4, "avx512_bf16": 2, "avx512_fp16": 2, "asimdhp": 2}


class _Multiprocessor(Struct, frozen=True, kw_only=True):
    """Dense FLOPs per cycle, on the fastest kind of unit for each precision."""

    cores: int
    fp64: int
    tf32: int
    half: int


# By CUDA compute capability; if a family has larger and smaller chips, the larger.
_MULTIPROCESSORS: Final = {
    "6.0": _Multiprocessor(cores=64, fp64=64, tf32=128, half=256),
    "6.1": _Multiprocessor(cores=128, fp64=8, tf32=256, half=256),
    "7.0": _Multiprocessor(cores=64, fp64=64, tf32=128, half=1024),
    "7.5": _Multiprocessor(cores=64, fp64=4, tf32=128, half=1024),
    "8.0": _Multiprocessor(cores=64, fp64=128, tf32=1024, half=2048),
    "8.6": _Multiprocessor(cores=128, fp64=4, tf32=512, half=1024),
    "8.9": _Multiprocessor(cores=128, fp64=4, tf32=512, half=1024),
    "9.0": _Multiprocessor(cores=128, fp64=256, tf32=2048, half=4096),
    "10.0": _Multiprocessor(cores=128, fp64=256, tf32=4096, half=8192),
    "12.0": _Multiprocessor(cores=128, fp64=4, tf32=1024, half=2048),
}


class Reach(Struct, frozen=True, kw_only=True):
    """`hardware` describes the source of the bound."""

    flops_per_s: float
    hardware: str


def reach(machine: Machine, device: str, precision: str, *, gpu_uuid: str | None = None) -> Reach | Absent:
    """Return the bound of a device in the precision of a matrix product (fp32, tf32, bf16, fp16, fp64)."""
    if device == "cpu":
        if not isinstance(machine.cpu, Cpu):
            return Absent("the processor is not described")
        return _cpu_reach(machine.cpu, precision, bare_metal=not isinstance(machine.virtualized, str))
    boards = machine.gpus if isinstance(machine.gpus, list) else []
    board = next((board for board in boards if gpu_uuid is not None and board.uuid == gpu_uuid), None)
    if board is None and len(boards) == 1:
        board = boards[0]
    return Absent("the driver does not list the board") if board is None else _gpu_reach(board, precision)


def _cpu_reach(cpu: Cpu, precision: str, *, bare_metal: bool) -> Reach | Absent:
    flags = cpu.flags if isinstance(cpu.flags, list) else []
    width = next(((flag, flops) for flag, flops in _FP32_PER_CYCLE.items() if flag in flags), None)
    if width is None:
        return Absent("the processor names no vector instructions that are known here")
    cores = _cores(cpu, bare_metal=bare_metal)
    if cores is None:
        return Absent("the number of usable cores is not known")
    flag, per_cycle = width
    if precision == "fp64":
        per_cycle *= _FP64_SHARE
    elif precision in ("bf16", "fp16"):
        per_cycle *= max((factor for known, factor in _HALF_BY_FLAG.items() if known in flags), default=1)
    mhz = cpu.max_mhz if isinstance(cpu.max_mhz, int | float) else _HIGHEST_MHZ
    hardware = f"{cores} {'core' if cores == 1 else 'cores'} with {flag} at {mhz / 1e3:.1f} GHz"
    return Reach(flops_per_s=cores * mhz * 1e6 * per_cycle, hardware=hardware)


def _cores(cpu: Cpu, *, bare_metal: bool) -> int | None:
    """Return how many cores can be busy at once. A quota of 1.5 cores counts as two.

    Threads of one core share its units, but a virtual machine may not know which CPUs are threads of one core.
    """
    if not isinstance(cpu.usable_cores, int):
        return None
    usable = cpu.usable_cores + (1 if isinstance(cpu.quota_cores, int | float) else 0)
    return min(usable, cpu.physical_cores) if isinstance(cpu.physical_cores, int) and bare_metal else usable


def _gpu_reach(board: Gpu, precision: str) -> Reach | Absent:
    cores, capability, mhz = board.cuda_cores, board.compute_capability, board.max_sm_clock_mhz
    if not isinstance(cores, int) or not isinstance(capability, str) or not isinstance(mhz, int | float):
        return Absent("the driver does not tell the board's cores, compute capability or clock")
    kind = _MULTIPROCESSORS.get(capability)
    if kind is None:
        return Absent(f"what a GPU of compute capability {capability} does in a cycle is not known here")
    per_cycle = {"fp64": kind.fp64, "fp32": 2 * kind.cores, "tf32": kind.tf32}.get(precision, kind.half)
    multiprocessors = cores / kind.cores
    hardware = f"{board.name} with {multiprocessors:.0f} multiprocessors at {mhz / 1e3:.2f} GHz"
    return Reach(flops_per_s=multiprocessors * per_cycle * mhz * 1e6, hardware=hardware)
