"""The backends by name. Strings only: reading this imports no framework."""

from __future__ import annotations

from dataclasses import dataclass

from deepstone.setups.axes import FAKE, JAX, TENSORFLOW, TORCH


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


BACKENDS: dict[str, BackendInfo] = {
    TORCH: BackendInfo(
        module="deepstone.backends.torch.backend",
        launch="deepstone.backends.torch.launch",
        package="torch",
        distribution="torch",
        remedy="pip install 'deepstone[torch]'",
        startup_s=3.0,
        own_modules="deepstone.backends.torch.own_module",
    ),
    TENSORFLOW: BackendInfo(
        module="deepstone.backends.tensorflow.backend",
        launch="deepstone.backends.tensorflow.launch",
        package="tensorflow",
        distribution="tensorflow",
        remedy="deepstone env add tensorflow",
        startup_s=7.0,
    ),
    JAX: BackendInfo(
        module="deepstone.backends.jax.backend",
        launch="deepstone.backends.jax.launch",
        package="jax",
        distribution="jax",
        remedy="deepstone env add jax",
        startup_s=5.0,
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
