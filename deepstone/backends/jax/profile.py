"""Runs steps under JAX's profiler, and reads the file that it leaves."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import jax

from deepstone.backends.base import Unsupported
from deepstone.backends.traced import Traced

_EVENTS_OF_XLA = 2  # the level of host events that holds XLA's instructions, and nothing finer


def profiled(run: Callable[[], None], scratch: str) -> list[Traced]:
    """`run` must wait for the device in the end."""
    folder = tempfile.mkdtemp(prefix="profile-", dir=scratch)
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = _EVENTS_OF_XLA
    try:
        jax.profiler.start_trace(folder, profiler_options=options)
        try:
            run()
        finally:
            jax.profiler.stop_trace()
        files = list(Path(folder).rglob("*.xplane.pb"))
        if not files:
            raise Unsupported("JAX's profiler left no profile")
        return [event for file in files for event in _read(file)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(file: Path) -> list[Traced]:
    return [
        Traced(
            plane=plane.name,
            line=line.name,
            name=event.name,
            start_s=event.start_ns / 1e9,
            end_s=(event.start_ns + event.duration_ns) / 1e9,
            stats=dict(event.stats),
        )
        for plane in jax.profiler.ProfileData.from_file(str(file)).planes
        for line in plane.lines
        for event in line.events
    ]
