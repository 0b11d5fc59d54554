"""One worker process on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from deepstone.backends.registry import backend_of
from deepstone.launchers.allocators import preloaded
from deepstone.results.variables import KNOWN_VARIABLES, names_secret
from deepstone.setups.request import Request

_PACKAGE = Path(__file__).resolve().parent.parent
SERVE_PATH = _PACKAGE / "worker" / "serve.py"
_SERVE_IN_LUA = _PACKAGE / "worker" / "serve.lua"

# Prefixes of variables that change what a framework does. A local record includes every variable with such a prefix,
# known or not. An exported record includes only variables that are listed by full name.
_RECORDED_PREFIXES = (
    "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "ONEDNN_", "DNNL_", "ATEN_", "TORCH", "PYTORCH_", "TF_CPP_",
    "TF_ENABLE_", "TF_XLA_", "TF_NUM_", "XLA_", "JAX_", "CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_", "NCCL_", "MALLOC_",
    "THEANO_", "MXNET_", "CHAINER_", "CNTK_", "FLAGS_", "PADDLE_",
    "DEEPSTONE_LINKS", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHON", "LUA_",
)  # fmt: skip


def worker_argv(command: Sequence[str], framework: str, version: str) -> list[str]:
    """Return the worker's command line. The runner appends the two file descriptors."""
    info = backend_of(framework, version)
    if info.language == "lua":
        module = _PACKAGE.parent.joinpath(*info.module.split(".")).with_suffix(".lua")
        return [*command, str(_SERVE_IN_LUA), str(module)]
    return [*command, str(SERVE_PATH), info.module]


def worker_variables(given: Mapping[str, str], framework: str, version: str, request: Request) -> dict[str, str]:
    """Return the environment's variables plus those that the request needs before the framework is imported. Raises
    MissingError if a library that it names is not installed."""
    allocator = preloaded(str(request["allocator"]), given)
    return {**given, **allocator, **backend_of(framework, version).variables(request)}


def recorded_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a record includes: those that change what a framework does, and never a secret."""
    return {name: value for name, value in sorted(variables.items()) if _is_recorded(name)}


def _is_recorded(name: str) -> bool:
    return (name in KNOWN_VARIABLES or name.startswith(_RECORDED_PREFIXES)) and not names_secret(name)
