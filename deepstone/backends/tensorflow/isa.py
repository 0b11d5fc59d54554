"""The widest instruction set that CPU libraries may use: the CPU's own, within the limit."""

from __future__ import annotations

import os
from pathlib import Path

from deepstone.setups.axes import ISA_ORDER

# CPU flags that each needs; oneDNN checks the same ones.
_NEEDED = {
    "sse41": {"sse4_1"},
    "avx": {"avx"},
    "avx2": {"avx2"},
    "avx2_vnni": {"avx2", "avx_vnni"},
    "avx512_core": {"avx512f", "avx512bw", "avx512vl", "avx512dq"},
    "avx512_core_vnni": {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"},
    "avx512_core_bf16": {"avx512_vnni", "avx512_bf16"},
    "avx512_core_fp16": {"avx512_bf16", "avx512_fp16"},
    "avx512_core_amx": {"avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"},
    "avx512_core_amx_fp16": {"amx_tile", "amx_int8", "amx_bf16", "amx_fp16"},
}


def widest_isa() -> str:
    """Return the widest instruction set by the CPU's flags: TensorFlow does not report which its libraries used.

    The limit is the variable that oneDNN reads, whether the request or the user set it.
    """
    return widest_of(_cpu_flags(), os.environ.get("ONEDNN_MAX_CPU_ISA", "").lower())


def widest_of(flags: set[str], limit: str) -> str:
    """Return the widest instruction set among the flags. `limit` bounds it if it names one."""
    allowed = ISA_ORDER[: ISA_ORDER.index(limit) + 1] if limit in ISA_ORDER else ISA_ORDER
    there = [name for name in allowed if name in _NEEDED and _NEEDED[name] <= flags]
    return there[-1] if there else "sse41"


def _cpu_flags() -> set[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.partition(":")[2].split())
    return set()
