"""In a worker of a group, before anything else: makes communication or one rank slower, by a known time in every step.

DEEPSTONE_BENCH_COMMUNICATION_MS=40   the exchange of gradients sleeps that long before its last part
DEEPSTONE_BENCH_SLOW_RANK_MS=40       rank 1 computes something else that long before forward, with all its threads
"""

import os
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests" / "planting"))

from planting import change_imported

COMMUNICATION_S = float(os.environ.get("DEEPSTONE_BENCH_COMMUNICATION_MS", 0)) / 1e3
SLOW_RANK_S = float(os.environ.get("DEEPSTONE_BENCH_SLOW_RANK_MS", 0)) / 1e3


def slow_down_communication(module) -> None:
    """In backends/torch/parallel.py: DistributedDataParallel gets a hook, the packed buffer a pause."""
    import torch.distributed as dist

    init, average = module.DistributedDataParallel.__init__, module._Packed.average

    def reduce_late(state, bucket):
        if bucket.is_last():
            time.sleep(COMMUNICATION_S)
        summed = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True).get_future()
        return summed.then(lambda future: future.value()[0])

    def init_with_hook(self, *arguments, **options):
        init(self, *arguments, **options)
        self.register_comm_hook(None, reduce_late)

    def average_late(self, gradients):
        time.sleep(COMMUNICATION_S)
        average(self, gradients)

    module.DistributedDataParallel.__init__ = init_with_hook
    module._Packed.average = average_late


def slow_down_rank(module) -> None:
    """In backends/torch/training.py: the batch comes late."""
    import torch
    import torch.distributed as dist

    get, square = module.Batch.get, torch.ones(192, 192)

    def get_late(self):
        if dist.is_initialized() and dist.get_rank() == 1:
            until = time.perf_counter() + SLOW_RANK_S
            while time.perf_counter() < until:  # a core that sleeps would also compute more slowly afterwards
                torch.mm(square, square)
        return get(self)

    module.Batch.get = get_late


PLANTS = {}
if COMMUNICATION_S:
    PLANTS["deepstone.backends.torch.parallel"] = slow_down_communication
if SLOW_RANK_S:
    PLANTS["deepstone.backends.torch.training"] = slow_down_rank


if PLANTS:
    change_imported(PLANTS)
