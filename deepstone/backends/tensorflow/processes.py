"""The processes that train together, by MultiWorkerMirroredStrategy with a loop of our own: one replica in each, and
gradients that TensorFlow's collectives sum over gRPC.

Variables are plain ones of each process, and not mirrored ones: all begin with the same weights, and equal gradients
keep them equal. So batch norm has statistics of its own in each process, and steps without communication are possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import tensorflow as tf
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2  # pyright: ignore[reportAttributeAccessIssue, reportMissingTypeStubs]
from tensorflow.python.eager import context  # pyright: ignore[reportAttributeAccessIssue]

from deepstone.backends.base import Group, as_observed, as_set
from deepstone.backends.ports import ReservedPort, go_straight
from deepstone.backends.tensorflow.settings import start_threads_with
from deepstone.setups.axes import AUTO

Tensor: TypeAlias = Any

_JOB: Final = "worker"
# A process that is silent for so long is lost to the others. The controller sees most losses before. TensorFlow's own
# timeout of a collective is not used: each one would keep a thread until its time is over.
_HEARTBEAT_MS: Final = 30_000
_MIB: Final = 2**20
_PACK_MIB: Final = 25  # with overlap=on and no size given; torch's own choice. TensorFlow makes one pack by default
_REDUCTION: Final = "CollectiveReduceV2"


class Processes:
    """This process among the others. `reserved`: the port that it has told them."""

    def __init__(self, group: Group, reserved: ReservedPort | None) -> None:
        go_straight()
        request = group.request
        tf.config.set_visible_devices([], "GPU")  # it would take them all; a request for one is refused
        self._strategy: Any = None

        def meet() -> None:
            self._strategy = _strategy(group, str(request["collective"]))

        start_threads_with(meet, request["threads"], request["inter_threads"])
        if reserved is not None:
            reserved.close()
        resolver = self._strategy.cluster_resolver
        self.rank, self.world = int(resolver.task_id), int(self._strategy.num_replicas_in_sync)
        self.transport = str(resolver.rpc_layer)
        self.library = f"MultiWorkerMirroredStrategy of TensorFlow {tf.__version__}"
        self._collective = str(request["collective"])
        self._pack_bytes = _pack_bytes(request)
        self._options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=self._pack_bytes)
        self._meeting: Any = None

    def run(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as the replica of this process runs it: only there it may call `mean`, `meet` and `of_first`."""
        return lambda *arguments: self._strategy.run(function, args=arguments)

    def mean(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """One after the other in the order in which backward computes them."""
        found = self._reduced(tf.distribute.ReduceOp.MEAN, list(reversed(gradients)))
        return list(reversed(found))

    def meet(self, gradients: Sequence[Tensor]) -> Tensor:
        """Wait for the others with four bytes, once backward is done."""
        last = tf.cast(tf.reshape(gradients[0], [-1])[:1], tf.float32)  # of the first layer, to which it comes last
        return self._reduced(tf.distribute.ReduceOp.SUM, [last])[0]

    def of_first(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """What rank 0 has."""
        own: Any = tf.identity if self.rank == 0 else tf.zeros_like
        return self._reduced(tf.distribute.ReduceOp.SUM, [own(tensor) for tensor in tensors])

    def sum(self, tensor: Tensor) -> Tensor:
        return self._reduced(tf.distribute.ReduceOp.SUM, [tensor])[0]

    def gathered(self, tensor: Tensor) -> Tensor:
        """The arrays of all ranks, one after the other."""
        replica: Any = tf.distribute.get_replica_context()
        return replica.all_gather(tensor, axis=0)

    def _reduced(self, operation: tf.distribute.ReduceOp, tensors: list[Tensor]) -> list[Tensor]:
        replica: Any = tf.distribute.get_replica_context()
        return replica.all_reduce(operation, tensors, options=self._options)

    def barrier(self) -> None:
        if self._meeting is None:
            one = tf.ones(1)
            self._meeting = tf.function(self.run(lambda: self.meet([one])), autograph=False).get_concrete_function()
        self._meeting()

    def effective(self) -> dict[str, dict[str, Any]]:
        """The axes between processes. TensorFlow sums in a ring on CPUs, whatever is asked for."""
        return {
            "processes": as_observed(self.world),
            "transport": as_observed(self.transport),
            "scheme": as_set("data"),
            "library": as_set("tensorflow"),
            "interface": as_set("that of the host's address"),
            "collective": as_set("ring" if self._collective == AUTO else self._collective),
            "overlap": as_set("on" if self._pack_bytes else "off"),
            "bucket": as_set(self._pack_bytes // _MIB or "none"),
            **{name: as_set("none") for name in ("servers", "pipeline", "microbatches", "schedule")},
        }


def reductions_of(recorded: Any) -> list[int]:
    """The bytes of each reduction over processes in a recorded program, in order."""
    found = [operation.inputs[0] for operation in recorded.graph.get_operations() if operation.type == _REDUCTION]
    return [int(tensor.shape.num_elements()) * int(tensor.dtype.size) for tensor in found]


def _strategy(group: Group, collective: str) -> Any:
    cluster = tf.train.ClusterSpec({_JOB: group.addresses})
    jobs = [coordination_config_pb2.CoordinatedJob(name=_JOB, num_tasks=group.world)]
    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader=f"/job:{_JOB}/replica:0/task:0",
        heartbeat_timeout_in_ms=_HEARTBEAT_MS,
        coordinated_jobs=jobs,
    )
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type=_JOB, task_id=group.rank, rpc_layer="grpc"
    )
    kinds = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=kinds.RING if collective == "ring" else kinds.AUTO
    )
    return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver, communication_options=options)


def _pack_bytes(request: dict[str, Any]) -> int:
    """0: all in one pack, after backward."""
    if request["bucket"] != AUTO:
        return int(request["bucket"]) * _MIB
    return _PACK_MIB * _MIB if request["overlap"] == "on" else 0
