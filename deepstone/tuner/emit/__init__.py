"""Writes the code of a setup: a short training script that does what Deepstone did, in the framework's own idiom.

The script stands alone: no code of Deepstone. It runs as it is, on a small network and random data, and prints its
rate; a user puts in a network and data. What a script cannot do as measured is refused, never left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from deepstone.errors import UsageError, nearest, shown
from deepstone.runner.job import Job
from deepstone.setups.axes import JAX, TENSORFLOW, TORCH
from deepstone.tuner.emit.for_jax import jax_script
from deepstone.tuner.emit.for_tensorflow import tensorflow_script
from deepstone.tuner.emit.for_torch import torch_script

_WRITERS: Final[Mapping[str, Callable[[Job, str], str]]] = {
    TORCH: torch_script,
    JAX: jax_script,
    TENSORFLOW: tensorflow_script,
}
EMITTED: Final = tuple(_WRITERS)


def check_emitted(framework: str) -> str:
    """Return the framework, or raise UsageError if there is no script for it."""
    if framework.lower() not in _WRITERS:
        raise UsageError(f"--emit {shown(framework)}: no code for it; {nearest(framework, EMITTED)}")
    return framework.lower()


def emit(job: Job, found: str) -> str:
    """The script of a job. `found`: what was measured, in a sentence. Raises UsageError for what it cannot write."""
    return _WRITERS[check_emitted(job.environment.framework)](job, found)
