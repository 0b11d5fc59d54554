"""Watches the first step: the program as TensorFlow runs it, after its own rewriting, tells what each operation became.

oneDNN's log would tell more, but TensorFlow's oneDNN writes it for the whole life of a process or not at all, and then
timed steps would pay for it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context  # pyright: ignore[reportAttributeAccessIssue]

_ONEDNN_PREFIX = "_Mkl"
_MULTIPLYING = ("Conv2D", "MatMul")  # in the names of operations, whoever implements them


@dataclass(kw_only=True, slots=True)
class Sighting:
    """What was seen of a program's operations; nothing, where TensorFlow keeps no such program."""

    operations: dict[str, int] = field(default_factory=dict[str, int])  # name -> how many
    dtypes: set[Any] = field(default_factory=set[Any])  # of convolutions and matrix products
    data_formats: set[str] = field(default_factory=set[str])  # of convolutions
    devices: set[str] = field(default_factory=set[str])

    @property
    def onednn(self) -> bool:
        return any(name.startswith(_ONEDNN_PREFIX) for name in self.operations)


@contextmanager
def watching() -> Generator[Sighting, None, None]:
    """Fill a Sighting from the programs that run for the first time inside."""
    sighting = Sighting()
    context.enable_graph_collection()
    try:
        yield sighting
        for program in context.export_run_metadata().function_graphs:
            for part in program.partition_graphs:
                _look_at(part, sighting)
    finally:
        context.disable_graph_collection()


def _look_at(graph: Any, sighting: Sighting) -> None:
    for node in graph.node:
        sighting.operations[node.op] = sighting.operations.get(node.op, 0) + 1
        if not any(name in node.op for name in _MULTIPLYING):
            continue
        sighting.dtypes.add(tf.as_dtype(node.attr["T"].type))
        sighting.devices.add(node.device.rpartition("device:")[2])
        if "Conv2D" in node.op:
            sighting.data_formats.add(node.attr["data_format"].s.decode())
