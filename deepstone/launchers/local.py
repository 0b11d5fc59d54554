"""One worker process on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from deepstone.backends.registry import backend_of
from deepstone.results.variables import KNOWN_VARIABLES, names_secret
from deepstone.setups.request import Request

SERVE_PATH = Path(__file__).resolve().parent.parent / "worker" / "serve.py"

# Beginnings of variables that change what a framework does. They are recorded although not all are known by name:
# a record that stays here should rather tell too much. What is given away is chosen by whole names.
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
    return {**given, **backend_of(framework, version).variables(request)}


def telling(variables: Mapping[str, str]) -> dict[str, str]:
    """What a record tells of the variables: those that change what a framework does, and never a secret."""
    return {name: value for name, value in sorted(variables.items()) if _tells(name)}


def _tells(name: str) -> bool:
    return (name in KNOWN_VARIABLES or name.startswith(_TELLING)) and not names_secret(name)
