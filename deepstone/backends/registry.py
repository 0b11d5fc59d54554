"""The backends by name. Strings only: reading this imports no framework."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

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

_LEGACY_LAUNCH = "deepstone.backends.legacy.launch"


@dataclass(frozen=True, kw_only=True, slots=True)
class Legacy:
    """The backend for versions of a framework that came before its present interface."""

    before: int  # the first major version that the framework's own backend runs
    module: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendInfo:
    """Where a backend lives and how its framework is found."""

    module: str  # imported by the worker; defines make_backend()
    launch: str  # imported by the controller; defines environment(request), imports no framework
    package: str  # the importable package whose presence means the framework is installed; "" when none is needed
    distribution: str  # the name under which its version is recorded
    remedy: str  # how to get it
    startup_s: float  # about how long until its first step, to plan with
    own_modules: str = ""  # what looks at a module that a user wrote in this framework, if anything does
    legacy: Legacy | None = None


BACKENDS: dict[str, BackendInfo] = {
    TORCH: BackendInfo(
        module="deepstone.backends.torch.backend",
        launch="deepstone.backends.torch.launch",
        package="torch",
        distribution="torch",
        remedy="pip install 'deepstone[torch]'",
        startup_s=3.0,
        own_modules="deepstone.backends.torch.own_module",
        legacy=Legacy(before=2, module="deepstone.backends.legacy.torch1"),
    ),
    TENSORFLOW: BackendInfo(
        module="deepstone.backends.tensorflow.backend",
        launch="deepstone.backends.tensorflow.launch",
        package="tensorflow",
        distribution="tensorflow",
        remedy="deepstone env add tensorflow",
        startup_s=7.0,
        legacy=Legacy(before=2, module="deepstone.backends.legacy.tensorflow1"),
    ),
    JAX: BackendInfo(
        module="deepstone.backends.jax.backend",
        launch="deepstone.backends.jax.launch",
        package="jax",
        distribution="jax",
        remedy="deepstone env add jax",
        startup_s=5.0,
    ),
    PADDLE: BackendInfo(
        module="deepstone.backends.paddle.backend",
        launch=_LEGACY_LAUNCH,
        package="paddle",
        distribution="paddlepaddle",
        remedy="deepstone env add paddle",
        startup_s=5.0,
    ),
    MXNET: BackendInfo(
        module="deepstone.backends.legacy.mxnet1",
        launch=_LEGACY_LAUNCH,
        package="mxnet",
        distribution="mxnet",
        remedy="deepstone env add mxnet",
        startup_s=3.0,
    ),
    THEANO: BackendInfo(
        module="deepstone.backends.legacy.theano1",
        launch=_LEGACY_LAUNCH,
        package="theano",
        distribution="Theano",
        remedy="deepstone env add theano",
        startup_s=20.0,
    ),
    CHAINER: BackendInfo(
        module="deepstone.backends.legacy.chainer7",
        launch=_LEGACY_LAUNCH,
        package="chainer",
        distribution="chainer",
        remedy="deepstone env add chainer",
        startup_s=2.0,
    ),
    CNTK: BackendInfo(
        module="deepstone.backends.legacy.cntk2",
        launch=_LEGACY_LAUNCH,
        package="cntk",
        distribution="cntk",
        remedy="deepstone env add cntk",
        startup_s=3.0,
    ),
    CAFFE: BackendInfo(
        module="deepstone.backends.legacy.caffe1",
        launch=_LEGACY_LAUNCH,
        package="caffe",
        distribution="caffe",
        remedy="deepstone env add caffe",
        startup_s=2.0,
    ),
    ONNXRUNTIME: BackendInfo(
        module="deepstone.backends.onnxruntime.backend",
        launch="deepstone.backends.onnxruntime.launch",
        package="onnxruntime",
        distribution="onnxruntime",
        remedy="deepstone env add onnxruntime",
        startup_s=2.0,
    ),
    FAKE: BackendInfo(
        module="deepstone.backends.fake.backend",
        launch="deepstone.backends.fake.launch",
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
    return replace(info, module=info.legacy.module, launch=_LEGACY_LAUNCH, own_modules="", legacy=None)
