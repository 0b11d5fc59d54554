"""TensorFlow's two thread pools: sized once per process, when it starts them, and counted as they start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context  # pyright: ignore[reportAttributeAccessIssue]

from deepstone.backends.base import Unsupported
from deepstone.setups.axes import AUTO

_INTER_NAME = "tf_Compute"


@dataclass(frozen=True, kw_only=True, slots=True)
class Threads:
    """How many threads share one operation's work, and how many run operations side by side."""

    intra: int
    inter: int


_started: list[Threads] = []


def start_threads(intra: Any, inter: Any) -> Threads:
    """Start the pools as asked, or say what this process has since an earlier job."""
    if not _started:
        _started.append(_start(intra, inter))
    threads = _started[0]
    if intra not in (AUTO, threads.intra) or inter not in (AUTO, threads.inter):
        raise Unsupported(
            f"TensorFlow sizes its thread pools once per process, and this one has threads={threads.intra} "
            f"inter_threads={threads.inter}"
        )
    return threads


def _start(intra: Any, inter: Any) -> Threads:
    """The shared-work pool's threads keep the process's own name, so it is known by how many there are more of."""
    if intra != AUTO:
        tf.config.threading.set_intra_op_parallelism_threads(intra)
    if inter != AUTO:
        tf.config.threading.set_inter_op_parallelism_threads(inter)
    before = _thread_names()
    context.ensure_initialized()
    tf.zeros(()).numpy()
    after = _thread_names()
    own_name = Path("/proc/self/comm").read_text()
    return Threads(
        intra=after.count(own_name) - before.count(own_name),
        inter=sum(name.startswith(_INTER_NAME) for name in after),
    )


def _thread_names() -> list[str]:
    return [(thread / "comm").read_text() for thread in Path("/proc/self/task").iterdir()]
