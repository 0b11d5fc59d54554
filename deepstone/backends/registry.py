"""All backends by name, including plug-ins. Modules are strings, so importing this imports no framework."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

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
    NEON,
    ONNXRUNTIME,
    PADDLE,
    TENSORFLOW,
    THEANO,
    TORCH,
    TORCH7,
)
from deepstone.setups.honoured import FIRST_MAJOR
from deepstone.setups.request import Request

Language: TypeAlias = Literal["python", "lua"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Legacy:
    """The backend for versions of a framework before its current interface."""

    before: int  # the first major version that the framework's own backend runs
    module: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendInfo:
    """The module of a backend, and how to find its framework."""

    module: str  # imported by the worker; defines make_backend(). Of a worker in Lua: it returns make_backend
    variables: Callable[[Request], dict[str, str]]  # set before the framework is imported
    package: str  # the framework is installed if this package is importable; "" if none is needed
    distribution: str  # the name of its installed distribution
    remedy: str  # how to install it
    startup_s: float  # estimate of the time until its first step
    own_modules: str = ""  # the module that reads a user's own modules in this framework, if any
    legacy: Legacy | None = None
    language: Language = "python"  # of the worker
    part: str = ""  # a module of the framework that is also needed: another package may have the framework's name
    built_by_users: bool = False  # so which libraries it was built with is part of what is locked
    only_version: str = ""  # of a framework that never had releases


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
    """The default of `module` is the folder of the package."""
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


def _adopt(framework: str, option: str) -> str:
    return f"no index has it: install it as its project says, then deepstone env add {framework} {option} PATH"


_OWN: dict[str, BackendInfo] = {
    TORCH: _backend(
        "torch",
        3.0,
        before_import.torch,
        remedy="from the clone: pip install -e '.[torch]'",
        own_modules="deepstone.backends.torch.own_module",
        legacy=Legacy(before=FIRST_MAJOR[TORCH], module="deepstone.backends.legacy.torch1"),
    ),
    TENSORFLOW: _backend(
        "tensorflow",
        7.0,
        before_import.tensorflow,
        legacy=Legacy(before=FIRST_MAJOR[TENSORFLOW], module="deepstone.backends.legacy.tensorflow1"),
    ),
    JAX: _backend("jax", 5.0, before_import.jax),
    PADDLE: _backend("paddle", 5.0, distribution="paddlepaddle"),
    MXNET: _backend("mxnet", 3.0, module="legacy.mxnet1"),
    THEANO: _backend("theano", 20.0, module="legacy.theano1", distribution="Theano"),
    CHAINER: _backend("chainer", 2.0, module="legacy.chainer7"),
    CNTK: _backend("cntk", 3.0, module="legacy.cntk2"),
    CAFFE: _backend("caffe", 2.0, module="legacy.caffe1"),
    NEON: replace(
        _backend("neon", 3.0, module="legacy.neon2", distribution="nervananeon", remedy=_adopt(NEON, "--python")),
        part="neon.backends",
        built_by_users=True,
    ),
    TORCH7: replace(
        _backend("torch", 1.0, module="legacy.torch7", distribution=TORCH7, remedy=_adopt(TORCH7, "--program")),
        language="lua",
        part="nn",
        built_by_users=True,
        only_version="7",
    ),
    ONNXRUNTIME: _backend("onnxruntime", 2.0, before_import.nothing),
    FAKE: replace(_backend("fake", 0.4, before_import.fake, distribution="deepstone"), package="", remedy=""),
}

BACKENDS = WithPlugins(_OWN, plugins.BACKENDS, BackendInfo)

YARDSTICK = TORCH  # its distance from float64 bounds that of the others
BEST_FIRST = (TORCH, JAX, TENSORFLOW)  # the order of preference of framework=auto


def backend_of(framework: str, version: str) -> BackendInfo:
    """Return the backend for this version of a framework."""
    info = BACKENDS[framework]
    major = re.match("[0-9]+", version)
    if info.legacy is None or major is None or int(major[0]) >= info.legacy.before:
        return info
    return replace(info, module=info.legacy.module, variables=before_import.thread_counts, own_modules="", legacy=None)
