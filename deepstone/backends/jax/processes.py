"""The processes that train together, as JAX sees them: one CPU device each, all of them in one mesh.

    samples, labels            sharded: each process has its part of the batch
    parameters, optimizer      replicated
    statistics, loss           each process has its own

A step is one program over the mesh, and every process runs it on its own part (shard_map). If it were one program over
the whole batch instead, XLA would take the statistics of batch norm over all processes, and exchange them in every such
layer. JAX does not compare replicas, so what each process has for itself is declared to be replicated too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import distributed, xla_bridge  # there is no public way to choose gloo's address
from jax._src.lib import _jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from deepstone.backends.base import Group
from deepstone.backends.ports import ReservedPort, go_straight
from deepstone.setups.axes import AUTO

MESH_AXIS: Final = "processes"
_MEETING_S: Final = 300  # to meet; the controller ends a job that takes too long before
# A process that is silent for so long is lost, and JAX ends the others. The controller sees most losses before.
_HEARTBEAT_S: Final = 30
_CLOSING_S: Final = 10


class Processes:
    """This process among the others. `reserved`: the port that rank 0 has told them."""

    def __init__(self, group: Group, reserved: ReservedPort | None) -> None:
        go_straight()
        address = f"{group.address}:{group.port}"
        jax.config.update("jax_enable_preemption_service", False)  # it would catch the signal that ends a worker
        jax.distributed.initialize(
            address,
            group.world,
            group.rank,
            cluster_detection_method="deactivate",
            coordinator_bind_address=address,
            initialization_timeout=_MEETING_S,
            heartbeat_timeout_seconds=_HEARTBEAT_S,
            shutdown_timeout_seconds=_CLOSING_S,
        )
        if reserved is not None:
            reserved.close()
        _use_gloo(group.addresses[group.rank].rpartition(":")[0], group.interface)
        self.rank, self.world = jax.process_index(), jax.process_count()
        self.library = f"gloo of jax {jax.__version__}"
        self._mesh = Mesh(np.array(jax.devices()), (MESH_AXIS,))
        self._replicated = NamedSharding(self._mesh, PartitionSpec())
        self._sharded = NamedSharding(self._mesh, PartitionSpec(MESH_AXIS))
        self._meeting: Any = None
        self._met: Any = None

    def own(self, tree: Any) -> Any:
        """Arrays of this process as arrays of the mesh, without a copy."""
        return jax.tree.map(lambda array: self._of_mesh(array, array.shape, self._replicated), tree)

    def share(self, array: Any) -> Any:
        """This process' part of the batch as one of the whole batch, without a copy."""
        return self._of_mesh(array, (array.shape[0] * self.world, *array.shape[1:]), self._sharded)

    def _of_mesh(self, array: Any, shape: tuple[int, ...], sharding: NamedSharding) -> Any:
        return jax.make_array_from_single_device_arrays(shape, sharding, [array])

    def spread(self, function: Callable[..., Any], *, shared: int, split: int) -> Callable[..., Any]:
        """A function that every process runs on its own part; its last `split` arguments are parts of the batch."""
        arguments = (*[PartitionSpec()] * shared, *[PartitionSpec(MESH_AXIS)] * split)
        return jax.shard_map(function, mesh=self._mesh, in_specs=arguments, out_specs=PartitionSpec(), check_vma=False)

    def mean(self, gradients: Any) -> Any:
        """Inside a program. XLA makes one reduction of all arrays, after backward."""
        return jax.lax.pmean(gradients, MESH_AXIS)

    def meet(self, gradients: Any) -> Any:
        """Inside a program: wait for the others with four bytes, once backward is done."""
        last = gradients[0].ravel()[0].astype(jnp.float32)  # of the first layer, to which backward comes last
        return jax.lax.psum(last, MESH_AXIS)

    def of_first(self, tree: Any) -> Any:
        """Inside a program: what rank 0 has."""
        is_first = jax.lax.axis_index(MESH_AXIS) == 0
        return jax.tree.map(lambda x: jax.lax.psum(jnp.where(is_first, x, jnp.zeros_like(x)), MESH_AXIS), tree)

    def own_key(self, key: Any) -> Any:
        """Inside a program: another key for each process, as each drops other activations."""
        return None if key is None else jax.random.fold_in(key, jax.lax.axis_index(MESH_AXIS))

    def barrier(self) -> None:
        if self._meeting is None:
            self._met = self.own(jax.device_put(np.zeros(1, np.float32), jax.local_devices()[0]))
            meeting = self.spread(lambda x: jax.lax.psum(x, MESH_AXIS), shared=1, split=0)
            self._meeting = jax.jit(meeting).lower(self._met).compile()
        self._met = self._meeting(self._met)
        jax.block_until_ready(self._met)

    def close(self) -> None:
        jax.distributed.shutdown()


def own_part(tree: Any) -> Any:
    """Arrays as this process alone has them, without a copy."""
    return jax.tree.map(lambda array: array.addressable_data(0), tree)


def _use_gloo(host: str, interface: str) -> None:
    """Have the CPU's client exchange data by gloo. It finds itself by its host's name unless it is told an address."""
    client = distributed.global_state.client
    named = {"hostname": host} if interface == AUTO else {"interface": interface}
    gloo = _jax.make_gloo_tcp_collectives(distributed_client=client, **named)
    make_client: Any = partial(xla_bridge.make_cpu_client, collectives=gloo)
    xla_bridge.register_backend_factory("cpu", make_client, priority=0, fail_quietly=False)
