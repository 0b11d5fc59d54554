"""One worker process on this machine."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from deepstone.backends.registry import backend_of
from deepstone.setups.request import Request

SERVE_PATH = Path(__file__).resolve().parent.parent / "worker" / "serve.py"

# Variables that change what a framework does; a record tells which were set.
_TELLING = (
    "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "ONEDNN_", "DNNL_", "ATEN_", "TORCH", "PYTORCH_", "TF_CPP_",
    "TF_ENABLE_", "TF_XLA_", "TF_NUM_", "XLA_", "JAX_", "CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_", "NCCL_", "MALLOC_",
    "THEANO_", "MXNET_", "CHAINER_", "CNTK_", "FLAGS_", "PADDLE_",
    "DEEPSTONE_LINKS", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHON",
)  # fmt: skip


def worker_argv(command: Sequence[str], framework: str, version: str) -> list[str]:
    """The worker's command line, begun as its environment says; the runner appends its two descriptors."""
    return [*command, str(SERVE_PATH), backend_of(framework, version).module]


def worker_variables(given: Mapping[str, str], framework: str, version: str, request: Request) -> dict[str, str]:
    """Those of its environment, and on top those that the request needs before the framework is imported."""
    launch = importlib.import_module(backend_of(framework, version).launch)
    return {**given, **launch.environment(request)}


def telling(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in sorted(variables.items()) if name.startswith(_TELLING)}
