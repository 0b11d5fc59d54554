"""Environment variables that must be set before a framework is imported, by request.

The controller reads them, so nothing here imports a framework. What the request asks for overrides what the user has
set; what it leaves to `auto` stays as the user has it.
"""

from __future__ import annotations

import os
from typing import Final

from deepstone.setups.axes import AUTO
from deepstone.setups.request import Request

FAKE_SCRIPT: Final = "DEEPSTONE_FAKE"  # holds the script of the fake backend
JAX_PREALLOCATE: Final = "XLA_PYTHON_CLIENT_PREALLOCATE"

# OpenMP for oneDNN, GNU's and Intel's alike; the rest for libraries with a count of their own.
_THREAD_COUNTS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def nothing(request: Request) -> dict[str, str]:
    """For frameworks that are told everything through their own interface."""
    return {}


def thread_counts(request: Request) -> dict[str, str]:
    """For Paddle and the legacy frameworks. A switch of a library that is not there does nothing."""
    return {} if request["threads"] == AUTO else dict.fromkeys(_THREAD_COUNTS, str(request["threads"]))


def fake(request: Request) -> dict[str, str]:
    script = os.environ.get(FAKE_SCRIPT)
    return {} if script is None else {FAKE_SCRIPT: script}


def torch(request: Request) -> dict[str, str]:
    variables: dict[str, str] = {}
    if request["threads"] != AUTO:
        variables["OMP_NUM_THREADS"] = variables["MKL_NUM_THREADS"] = str(request["threads"])
    isa = str(request["isa"])
    if isa != AUTO:
        variables |= _torch_isa(isa)
    return variables


def _torch_isa(isa: str) -> dict[str, str]:
    """Three libraries compute in torch's CPU build, and each has its own switch: oneDNN, MKL, and torch's kernels."""
    if isa.startswith(("avx512", "avx10")):
        mkl, aten = "AVX512", "avx512"
    elif isa.startswith("avx2"):
        mkl, aten = "AVX2", "avx2"
    else:
        mkl, aten = "SSE4_2", "default"
    return {"ONEDNN_MAX_CPU_ISA": isa.upper(), "MKL_ENABLE_INSTRUCTIONS": mkl, "ATEN_CPU_CAPABILITY": aten}


def tensorflow(request: Request) -> dict[str, str]:
    variables: dict[str, str] = {}
    if "TF_CPP_MIN_LOG_LEVEL" not in os.environ:
        variables["TF_CPP_MIN_LOG_LEVEL"] = "2"  # no notes and warnings; errors stay
    engine = str(request["engine"])
    if engine in ("onednn", "native"):
        variables["TF_ENABLE_ONEDNN_OPTS"] = "1" if engine == "onednn" else "0"
    algorithm = str(request["algorithm"])
    if algorithm in ("heuristic", "benchmark"):  # a GPU's; by default TensorFlow tries them all
        variables["TF_CUDNN_USE_AUTOTUNE"] = "1" if algorithm == "benchmark" else "0"
    isa = str(request["isa"])
    if isa != AUTO:
        variables |= _tensorflow_isa(isa)
    return variables


def _tensorflow_isa(isa: str) -> dict[str, str]:
    """oneDNN's switch, which also serves TensorFlow's own matrix products, and XLA's, beside the user's other flags."""
    flags = [*os.environ.get("XLA_FLAGS", "").split(), f"--xla_cpu_max_isa={_isa_in_xla(isa)}"]
    return {"ONEDNN_MAX_CPU_ISA": isa.upper(), "XLA_FLAGS": " ".join(flags)}


def _isa_in_xla(isa: str) -> str:
    """The widest of XLA's instruction sets that is no wider."""
    if isa.startswith("avx10") or isa.endswith("amx_fp16"):
        return "AMX_FP16" if "amx" in isa else "AVX512_BF16"
    widest = {"sse41": "SSE4_2", "avx": "AVX", "avx512_core": "AVX512", "avx512_core_vnni": "AVX512_VNNI"}
    if isa in widest:
        return widest[isa]
    if isa.startswith("avx2"):
        return "AVX2"
    return "AMX" if isa.endswith("amx") else "AVX512_BF16"


def jax(request: Request) -> dict[str, str]:
    variables: dict[str, str] = {}
    if JAX_PREALLOCATE not in os.environ:
        # By default JAX takes three quarters of a GPU's memory at once, which says nothing about what a step needs.
        variables[JAX_PREALLOCATE] = "false"
    if request["device"] == "cpu":
        variables["JAX_PLATFORMS"] = "cpu"  # a build for CUDA would take the GPU, and make its context there
    if request["threads"] != AUTO:
        # XLA's CPU client sizes its pool by this and by the CPUs that the process may use, by nothing else.
        variables["PJRT_NPROC"] = variables["NPROC"] = str(request["threads"])
    return variables
