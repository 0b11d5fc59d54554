"""The backends by name, those of plug-ins included. Modules are named by strings: reading this imports no framework."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from deepstone import plugins
from deepstone.backends import before_import
from deepstone.plugins import WithPlugins
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


def _backend(
    package: str,
    startup_s: float,
    variables: Callable[[Request], dict[str, str]] = before_import.thread_counts,
    *,
    module: str = "",
    distribution: str = "",
    remedy: str = "",
    own_modules: str = "",
    legacy: Legacy | None = None,
) -> BackendInfo:
    """In the folder of its package, unless `module` names another place."""
    return BackendInfo(
        module=f"deepstone.backends.{module or package + '.backend'}",
        variables=variables,
        package=package,
        distribution=distribution or package,
        remedy=remedy or f"deepstone env add {package}",
        startup_s=startup_s,
        own_modules=own_modules,
        legacy=legacy,
    )


_OWN: dict[str, BackendInfo] = {
    TORCH: _backend(
        "torch",
        3.0,
        before_import.torch,
        remedy="from the clone: pip install -e '.[torch]'",
        own_modules="deepstone.backends.torch.own_module",
        legacy=Legacy(before=2, module="deepstone.backends.legacy.torch1"),
    ),
    TENSORFLOW: _backend(
        "tensorflow",
        7.0,
        before_import.tensorflow,
        legacy=Legacy(before=2, module="deepstone.backends.legacy.tensorflow1"),
    ),
    JAX: _backend("jax", 5.0, before_import.jax),
    PADDLE: _backend("paddle", 5.0, distribution="paddlepaddle"),
    MXNET: _backend("mxnet", 3.0, module="legacy.mxnet1"),
    THEANO: _backend("theano", 20.0, module="legacy.theano1", distribution="Theano"),
    CHAINER: _backend("chainer", 2.0, module="legacy.chainer7"),
    CNTK: _backend("cntk", 3.0, module="legacy.cntk2"),
    CAFFE: _backend("caffe", 2.0, module="legacy.caffe1"),
    ONNXRUNTIME: _backend("onnxruntime", 2.0, before_import.nothing),
    FAKE: replace(_backend("fake", 0.4, before_import.fake, distribution="deepstone"), package="", remedy=""),
}

BACKENDS = WithPlugins(_OWN, plugins.BACKENDS, BackendInfo)

YARDSTICK = TORCH  # whose own distance from float64 bounds that of the others
BEST_FIRST = (TORCH, JAX, TENSORFLOW)  # the order in which framework=auto looks


def backend_of(framework: str, version: str) -> BackendInfo:
    """The backend that runs this version of a framework."""
    info = BACKENDS[framework]
    major = re.match("[0-9]+", version)
    if info.legacy is None or major is None or int(major[0]) >= info.legacy.before:
        return info
    return replace(info, module=info.legacy.module, variables=before_import.thread_counts, own_modules="", legacy=None)
