"""In a torch worker of a group, before anything else: delays what DEEPSTONE_TEST_DELAYS names, in seconds (JSON).

reduce   every reduction of gradients takes so much longer, wherever it is asked for
rank 1   forward takes so much longer on rank 1
plain    a reduction takes so much longer where no hook of ours asks for it: in plain steps, not in traced ones
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "planting"))

from planting import change_imported

DELAYS = json.loads(os.environ.get("DEEPSTONE_TEST_DELAYS", "{}"))
LITTLE = 1000  # numbers: what processes exchange to meet


def plant(module) -> None:
    import torch.distributed as dist

    wrapper, reduce = module.DistributedDataParallel, dist.all_reduce
    make, register, slow = wrapper.__init__, wrapper.register_comm_hook, set()

    class Delayed:
        def __init__(self, work) -> None:
            self.work = work

        def get_future(self):
            return later(self.work.get_future(), DELAYS.get("reduce", 0))

    def all_reduce(tensor, *arguments, async_op=False, **options):
        work = reduce(tensor, *arguments, async_op=async_op, **options)
        if tensor.numel() < LITTLE:
            return work
        return Delayed(work) if async_op else after(DELAYS.get("reduce", 0), work)

    def plain(bucket):
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
        return later(work.get_future(), DELAYS.get("plain", 0)).then(lambda future: future.value()[0])

    def init(self, *arguments, **options):
        make(self, *arguments, **options)
        self.reduces = plain
        register(self, None, lambda state, bucket: self.reduces(bucket))
        if dist.get_rank() == 1 and id(self.module) not in slow:
            slow.add(id(self.module))
            self.module.register_forward_hook(lambda *_: time.sleep(DELAYS.get("rank 1", 0)))

    def register_comm_hook(self, state, hook):
        self.reduces = lambda bucket: hook(state, bucket)

    dist.all_reduce = all_reduce
    wrapper.__init__, wrapper.register_comm_hook = init, register_comm_hook


def after(seconds, value):
    time.sleep(seconds)
    return value


def later(future, seconds):
    """In a thread of its own: a callback may run in the one that computes."""
    import torch

    done = torch.futures.Future()

    def end(ended):
        threading.Thread(target=lambda: done.set_result(after(seconds, ended.value()))).start()

    future.add_done_callback(end)
    return done


if DELAYS:
    change_imported({"deepstone.backends.torch.parallel": plant})
