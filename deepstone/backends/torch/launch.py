"""What must be in the environment before torch is imported. Read by the controller, so it imports no torch."""

from __future__ import annotations

from deepstone.setups.axes import AUTO
from deepstone.setups.request import Request


def environment(request: Request) -> dict[str, str]:
    variables: dict[str, str] = {}
    if request["threads"] != AUTO:
        variables["OMP_NUM_THREADS"] = str(request["threads"])
        variables["MKL_NUM_THREADS"] = str(request["threads"])
    isa = str(request["isa"])
    if isa != AUTO:
        variables |= _limit_isa(isa)
    return variables


def _limit_isa(isa: str) -> dict[str, str]:
    """Three libraries compute in torch's CPU build, and each has its own switch: oneDNN, MKL, and torch's kernels."""
    if isa.startswith(("avx512", "avx10")):
        mkl, aten = "AVX512", "avx512"
    elif isa.startswith("avx2"):
        mkl, aten = "AVX2", "avx2"
    else:
        mkl, aten = "SSE4_2", "default"
    return {"ONEDNN_MAX_CPU_ISA": isa.upper(), "MKL_ENABLE_INSTRUCTIONS": mkl, "ATEN_CPU_CAPABILITY": aten}
