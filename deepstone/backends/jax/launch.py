"""What must be in the environment before JAX is imported. Read by the controller, so it imports no JAX."""

from __future__ import annotations

import os

from deepstone.setups.axes import AUTO
from deepstone.setups.request import Request

PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"


def environment(request: Request) -> dict[str, str]:
    variables: dict[str, str] = {}
    if PREALLOCATE not in os.environ:
        # By default JAX takes three quarters of a GPU's memory at once, which says nothing about what a step needs.
        variables[PREALLOCATE] = "false"
    if request["device"] == "cpu":
        variables["JAX_PLATFORMS"] = "cpu"  # a build for CUDA would take the GPU, and make its context there
    if request["threads"] != AUTO:
        # The only thing XLA's CPU client asks for the size of its pool, beside the CPUs that the process may use.
        variables["PJRT_NPROC"] = variables["NPROC"] = str(request["threads"])
    return variables
