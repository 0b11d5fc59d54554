"""What must be in the environment before TensorFlow is imported. Read by the controller, so it imports none of it."""

from __future__ import annotations

import os

from deepstone.setups.axes import AUTO
from deepstone.setups.request import Request


def environment(request: Request) -> dict[str, str]:
    variables: dict[str, str] = {}
    if "TF_CPP_MIN_LOG_LEVEL" not in os.environ:
        variables["TF_CPP_MIN_LOG_LEVEL"] = "2"  # what it tells about itself and warnings; errors stay
    engine = str(request["engine"])
    if engine in ("onednn", "native"):
        variables["TF_ENABLE_ONEDNN_OPTS"] = "1" if engine == "onednn" else "0"
    algorithm = str(request["algorithm"])
    if algorithm in ("heuristic", "benchmark"):  # a GPU's; without a word TensorFlow tries them all
        variables["TF_CUDNN_USE_AUTOTUNE"] = "1" if algorithm == "benchmark" else "0"
    isa = str(request["isa"])
    if isa != AUTO:
        variables |= _limit_isa(isa)
    return variables


def _limit_isa(isa: str) -> dict[str, str]:
    """oneDNN's switch, which also serves TensorFlow's own matrix products, and XLA's, beside the user's other flags."""
    flags = [*os.environ.get("XLA_FLAGS", "").split(), f"--xla_cpu_max_isa={_name_in_xla(isa)}"]
    return {"ONEDNN_MAX_CPU_ISA": isa.upper(), "XLA_FLAGS": " ".join(flags)}


def _name_in_xla(isa: str) -> str:
    """The widest of XLA's instruction sets that is no wider."""
    if isa.startswith("avx10") or isa.endswith("amx_fp16"):
        return "AMX_FP16" if "amx" in isa else "AVX512_BF16"
    widest = {"sse41": "SSE4_2", "avx": "AVX", "avx512_core": "AVX512", "avx512_core_vnni": "AVX512_VNNI"}
    if isa in widest:
        return widest[isa]
    if isa.startswith("avx2"):
        return "AVX2"
    return "AMX" if isa.endswith("amx") else "AVX512_BF16"
