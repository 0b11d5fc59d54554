"""Operations between processes apart from training, by TensorFlow's own collectives: those that it has on CPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from deepstone.backends.base import Unsupported
from deepstone.backends.tensorflow.processes import Processes
from deepstone.backends.transfers import difference, numbers
from deepstone.setups.transfers import TRANSFERS, VALUE_BYTES, program_name


class Transfers:
    """Programs by name. TensorFlow gives every result an array of its own, so buffers are what is sent only."""

    def __init__(self, processes: Processes) -> None:
        self.programs: dict[str, Callable[[], Any]] = {}
        self._processes = processes
        self._buffers: dict[str, tf.Variable] = {}

    def prepare(self, operation: str, size: int) -> dict[str, Any]:
        """Run it once on whole numbers that float32 adds exactly in any order."""
        name, rank, world = program_name(operation, size), self._processes.rank, self._processes.world
        count = size // VALUE_BYTES
        whole = numbers(count)
        if operation == "allreduce":
            sent, expected = whole + rank, whole * world + world * (world - 1) / 2
            self._make(name, count, self._processes.sum)
        elif operation == "allgather":
            sent, expected = np.split(whole, world)[rank], whole
            self._make(name, count // world, self._processes.gathered)
        else:
            title = TRANSFERS[operation].title
            raise Unsupported(f"TensorFlow's strategy for several processes has all-reduce and all-gather, no {title}")
        self._buffers[name].assign(sent)
        return {"program": name, "wrong": difference(np.asarray(self.programs[name]()), expected)}

    def _make(self, name: str, count: int, operation: Callable[[Any], Any]) -> None:
        """All processes record their programs in the same order, by which TensorFlow knows what belongs together."""
        if name in self.programs:
            return
        self._buffers[name] = buffer = tf.Variable(tf.zeros([count], tf.float32), trainable=False)
        # The strategy asks an array for its device; that of a variable has none until the program runs.
        recorded = tf.function(self._processes.run(lambda: operation(tf.identity(buffer))), autograph=False)
        self.programs[name] = recorded.get_concrete_function()
