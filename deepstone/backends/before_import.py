"""Environment variables that must be set before a framework is imported, by request.

The controller reads them, so nothing here imports a framework. A requested value overrides the user's variable; for
`auto` the user's variable stays.
"""

from __future__ import annotations

import os
from typing import Final

from deepstone.setups.axes import AUTO
from deepstone.setups.request import Request

FAKE_SCRIPT: Final = "DEEPSTONE_FAKE"  # contains the script of the fake backend
JAX_PREALLOCATE: Final = "XLA_PYTHON_CLIENT_PREALLOCATE"

# OpenMP for oneDNN, both GNU's and Intel's; the rest for libraries with their own thread count.
_THREAD_COUNTS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

# GNU's OpenMP counts turns of a loop, Intel's and LLVM's milliseconds. Without an end, the threads of a worker that
# waits between blocks would take the CPUs of the one that is measured.
_WAITING: Final = {
    "active": {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "20000000", "KMP_BLOCKTIME": "50"},
    "passive": {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"},
}


def nothing(request: Request) -> dict[str, str]:
    """For frameworks that are configured only through their own interface."""
    return {}


def thread_counts(request: Request) -> dict[str, str]:
    """For Paddle and the legacy frameworks. The variable of a missing library has no effect."""
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
    return variables | _WAITING.get(str(request["wait"]), {})


def _torch_isa(isa: str) -> dict[str, str]:
    """torch's CPU build uses three libraries, each with its own switch: oneDNN, MKL, and torch's kernels."""
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
        variables["TF_CPP_MIN_LOG_LEVEL"] = "2"  # hide notes and warnings, but not errors
    engine = str(request["engine"])
    if engine in ("onednn", "native"):
        variables["TF_ENABLE_ONEDNN_OPTS"] = "1" if engine == "onednn" else "0"
    algorithm = str(request["algorithm"])
    if algorithm in ("heuristic", "benchmark"):  # for GPUs; by default TensorFlow tries them all
        variables["TF_CUDNN_USE_AUTOTUNE"] = "1" if algorithm == "benchmark" else "0"
    isa = str(request["isa"])
    if isa != AUTO:
        variables |= _tensorflow_isa(isa)
    return variables


def _tensorflow_isa(isa: str) -> dict[str, str]:
    """Set oneDNN's switch, which TensorFlow's own matrix products also use, and XLA's, with the user's other flags."""
    flags = [*os.environ.get("XLA_FLAGS", "").split(), f"--xla_cpu_max_isa={_isa_in_xla(isa)}"]
    return {"ONEDNN_MAX_CPU_ISA": isa.upper(), "XLA_FLAGS": " ".join(flags)}


def _isa_in_xla(isa: str) -> str:
    """Return the widest of XLA's instruction sets that is not wider than `isa`."""
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
        # By default JAX reserves three quarters of a GPU's memory, which hides the need of a step.
        variables[JAX_PREALLOCATE] = "false"
    if request["device"] == "cpu":
        variables["JAX_PLATFORMS"] = "cpu"  # a CUDA build would otherwise create a context on the GPU
    if request["threads"] != AUTO:
        # XLA's CPU client sizes its pool only by this and by the CPUs that the process may use.
        variables["PJRT_NPROC"] = variables["NPROC"] = str(request["threads"])
    return variables
