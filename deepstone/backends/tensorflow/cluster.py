"""The processes of a job with parameter servers, as one of them knows them: TensorFlow's ParameterServerStrategy.

driver     gives workers steps to do, one after the other (ClusterCoordinator)
workers    each runs a TensorFlow server, computes what the driver sends, and does nothing by itself
servers    the same; the parameters are theirs
"""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf

from deepstone.backends.base import Group, Unsupported, as_observed, as_set
from deepstone.backends.ports import ReservedPort, go_straight
from deepstone.backends.tensorflow.settings import start_threads_with
from deepstone.setups.axes import AUTO
from deepstone.setups.world import BETWEEN_PROCESSES, World

# As TensorFlow calls the roles.
JOBS: Final = {"worker": "worker", "server": "ps", "driver": "chief"}
_LAYER: Final = "grpc"


class Cluster:
    """`reserved`: the port that this process has told the others."""

    def __init__(self, group: Group, reserved: ReservedPort | None) -> None:
        go_straight()
        tf.config.set_visible_devices([], "GPU")
        self._group = group
        self.processes = World.of(group.request)
        if self.processes.driver is None:
            raise Unsupported("TensorFlow's servers need a driver; name the framework: framework=tensorflow")
        self.rank, self.role = group.rank, group.role
        self.coordinator: Any = None  # of the driver
        self.strategy: Any = None
        self._server: Any = None
        join = self._drive if self.role == "driver" else self._serve
        start_threads_with(lambda: join(_spec(group, self.processes)), *_threads(group))
        if reserved is not None:
            reserved.close()
        self.transport = _LAYER
        self.library = f"ParameterServerStrategy of TensorFlow {tf.__version__}"

    def _drive(self, spec: Any) -> None:
        """Waits until all others have started their servers."""
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            spec, task_type=JOBS[self.role], task_id=0, rpc_layer=_LAYER
        )
        self.strategy = tf.distribute.ParameterServerStrategy(resolver)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)

    def _serve(self, spec: Any) -> None:
        first = {"worker": 0, "server": self.processes.processes}[self.role]
        intra, inter = (0 if count == AUTO else int(count) for count in _threads(self._group))
        self._server = tf.distribute.Server(
            spec,
            job_name=JOBS[self.role],
            task_index=self.rank - first,
            protocol=_LAYER,
            config=tf.compat.v1.ConfigProto(intra_op_parallelism_threads=intra, inter_op_parallelism_threads=inter),
        )

    @property
    def world(self) -> int:
        """As TensorFlow has it: the driver sees a CPU of every process, the others have what they were told."""
        if self._server is None:
            seen = [tf.DeviceSpec.from_string(device.name) for device in tf.config.list_logical_devices("CPU")]
            return len({(device.job, device.task) for device in seen})
        return sum(len(job.tasks) for job in self._server.server_def.cluster.job)

    def effective(self) -> dict[str, dict[str, Any]]:
        """The axes between processes but the scheme."""
        found = {name: as_set("none") for name in BETWEEN_PROCESSES}
        return found | {
            "processes": as_observed(self.world - self.processes.servers - 1),
            "servers": as_set(self.processes.servers),
            "transport": as_set(_LAYER),
            "library": as_set("tensorflow"),
            "interface": as_set("that of the host's address"),
        }


def _spec(group: Group, world: World) -> Any:
    addresses: dict[str, list[str]] = {}
    for rank, address in enumerate(group.addresses):
        addresses.setdefault(JOBS[world.role(rank)], []).append(address)
    return tf.train.ClusterSpec(addresses)


def _threads(group: Group) -> tuple[Any, Any]:
    return group.request["threads"], group.request["inter_threads"]
