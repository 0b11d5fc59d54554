"""The backends by name. Modules are named by strings: reading this imports no framework."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from deepstone.backends import before_import
from deepstone.setups.axes import (
    CAFFE,
    CHAINER,
    CNTK,
    FAKE,
    JAX,
    MXNET,
    ONNXRUNTIME,
    PADDLE,
    TENSORFLOW,
    THEANO,
    TORCH,
)
from deepstone.setups.request import Request


@dataclass(frozen=True, kw_only=True, slots=True)
class Legacy:
    """The backend for versions of a framework that came before its present interface."""

    before: int  # the first major version that the framework's own backend runs
    module: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendInfo:
    """Where a backend lives and how its framework is found."""

    module: str  # imported by the worker; defines make_backend()
    variables: Callable[[Request], dict[str, str]]  # set before the framework is imported
    package: str  # the importable package whose presence means the framework is installed; "" when none is needed
    distribution: str  # the name under which its version is recorded
    remedy: str  # how to get it
    startup_s: float  # about how long until its first step, to plan with
    own_modules: str = ""  # what looks at a module that a user wrote in this framework, if anything does
    legacy: Legacy | None = None


def _legacy(package: str, module: str, *, startup_s: float, distribution: str = "") -> BackendInfo:
    """A framework that exists in old versions only."""
    return BackendInfo(
        module=f"deepstone.backends.legacy.{module}",
        variables=before_import.thread_counts,
        package=package,
        distribution=distribution or package,
        remedy=f"deepstone env add {package}",
        startup_s=startup_s,
    )


BACKENDS: dict[str, BackendInfo] = {
    TORCH: BackendInfo(
        module="deepstone.backends.torch.backend",
        variables=before_import.torch,
        package="torch",
        distribution="torch",
        remedy="pip install 'deepstone[torch]'",
        startup_s=3.0,
        own_modules="deepstone.backends.torch.own_module",
        legacy=Legacy(before=2, module="deepstone.backends.legacy.torch1"),
    ),
    TENSORFLOW: BackendInfo(
        module="deepstone.backends.tensorflow.backend",
        variables=before_import.tensorflow,
        package="tensorflow",
        distribution="tensorflow",
        remedy="deepstone env add tensorflow",
        startup_s=7.0,
        legacy=Legacy(before=2, module="deepstone.backends.legacy.tensorflow1"),
    ),
    JAX: BackendInfo(
        module="deepstone.backends.jax.backend",
        variables=before_import.jax,
        package="jax",
        distribution="jax",
        remedy="deepstone env add jax",
        startup_s=5.0,
    ),
    PADDLE: BackendInfo(
        module="deepstone.backends.paddle.backend",
        variables=before_import.thread_counts,
        package="paddle",
        distribution="paddlepaddle",
        remedy="deepstone env add paddle",
        startup_s=5.0,
    ),
    MXNET: _legacy("mxnet", "mxnet1", startup_s=3.0),
    THEANO: _legacy("theano", "theano1", startup_s=20.0, distribution="Theano"),
    CHAINER: _legacy("chainer", "chainer7", startup_s=2.0),
    CNTK: _legacy("cntk", "cntk2", startup_s=3.0),
    CAFFE: _legacy("caffe", "caffe1", startup_s=2.0),
    ONNXRUNTIME: BackendInfo(
        module="deepstone.backends.onnxruntime.backend",
        variables=before_import.nothing,
        package="onnxruntime",
        distribution="onnxruntime",
        remedy="deepstone env add onnxruntime",
        startup_s=2.0,
    ),
    FAKE: BackendInfo(
        module="deepstone.backends.fake.backend",
        variables=before_import.fake,
        package="",
        distribution="deepstone",
        remedy="",
        startup_s=0.4,
    ),
}

YARDSTICK = TORCH  # whose own distance from float64 bounds that of the others
BEST_FIRST = (TORCH, JAX, TENSORFLOW)  # the order in which framework=auto looks


def backend_of(framework: str, version: str) -> BackendInfo:
    """The backend that runs this version of a framework."""
    info = BACKENDS[framework]
    major = re.match("[0-9]+", version)
    if info.legacy is None or major is None or int(major[0]) >= info.legacy.before:
        return info
    return replace(info, module=info.legacy.module, variables=before_import.thread_counts, own_modules="", legacy=None)
