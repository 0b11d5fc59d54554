"""Operations between processes apart from training, as XLA has them on CPUs: programs over the mesh, moved by gloo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from deepstone.backends.base import Unsupported
from deepstone.backends.jax.processes import MESH_AXIS, Processes, own_part
from deepstone.backends.transfers import difference, numbers
from deepstone.setups.transfers import TRANSFERS, VALUE_BYTES, program_name


class Transfers:
    """Programs by name. JAX gives every result an array of its own, so buffers are what is sent only."""

    def __init__(self, processes: Processes) -> None:
        self.programs: dict[str, Callable[[], Any]] = {}
        self._processes = processes
        self._last = processes.world - 1
        self._sent: dict[str, Any] = {}

    def prepare(self, operation: str, size: int) -> dict[str, Any]:
        """Run it once on whole numbers that float32 adds exactly in any order."""
        name, rank, world = program_name(operation, size), self._processes.rank, self._processes.world
        whole = numbers(size // VALUE_BYTES)
        total = whole * world + world * (world - 1) / 2
        if operation == "allreduce":
            sent, expected = whole + rank, total
        elif operation == "reducescatter":
            sent, expected = whole + rank, np.split(total, world)[rank]
        elif operation == "allgather":
            sent, expected = np.split(whole, world)[rank], whole
        elif operation == "p2p":
            sent, expected = whole + rank, whole if rank == 0 else np.zeros_like(whole)
        else:
            raise Unsupported(f"XLA has no {TRANSFERS[operation].title} between CPUs")
        self._sent[name] = self._processes.own(jax.device_put(sent.astype(np.float32), jax.local_devices()[0]))
        if name not in self.programs:
            self.programs[name] = self._compiled(name, self._function(operation))
        return {"program": name, "wrong": difference(np.asarray(own_part(self.programs[name]())), expected)}

    def _function(self, operation: str) -> Callable[[Any], Any]:
        def there_and_back(x: Any) -> Any:
            """Every process runs it; what none sends to is zeros."""
            there = jax.lax.ppermute(x, MESH_AXIS, [(0, self._last)])
            return jax.lax.ppermute(there, MESH_AXIS, [(self._last, 0)])

        return {
            "allreduce": lambda x: jax.lax.psum(x, MESH_AXIS),
            "reducescatter": lambda x: jax.lax.psum_scatter(x, MESH_AXIS, tiled=True),
            "allgather": lambda x: jax.lax.all_gather(x, MESH_AXIS, tiled=True),
            "p2p": there_and_back,
        }[operation]

    def _compiled(self, name: str, function: Callable[[Any], Any]) -> Callable[[], Any]:
        spread = self._processes.spread(function, shared=1, split=0)
        run: Any = jax.jit(spread).lower(self._sent[name]).compile()
        return lambda: jax.block_until_ready(run(self._sent[name]))
