"""In a torch worker of a group, before anything else: spoils what a scheme of parallelism does, as the file says that
DEEPSTONE_TEST_PLANT names. It is read whenever a network is built, so one life of the processes serves many errors."""

import importlib.abc
import importlib.machinery
import os
import sys
from pathlib import Path

FILE = os.environ.get("DEEPSTONE_TEST_PLANT", "")


def error() -> str:
    return Path(FILE).read_text()


def spoil_updates(torch) -> None:
    """What was reduced is spoiled right before it is used: on all ranks, or on the last one."""
    import torch.distributed as dist

    init, update = torch.optim.SGD.__init__, torch.optim.SGD.step

    def remember(self, *arguments, **options):
        init(self, *arguments, **options)
        self.planted, self.before = error(), None

    def step(self, *arguments, **options):
        if dist.is_initialized() and self.planted:
            spoil(self, is_ours=dist.get_rank() == dist.get_world_size() - 1)
        return update(self, *arguments, **options)

    def spoil(optimizer, *, is_ours: bool) -> None:
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        last = parameters[-1].grad
        if optimizer.planted == "sum":
            for parameter in parameters:
                parameter.grad.mul_(2)
        elif optimizer.planted == "dropped" and is_ours:
            last.zero_()
        elif optimizer.planted == "stale" and is_ours:
            before, optimizer.before = optimizer.before, last.clone()
            if before is not None:
                last.copy_(before)
        elif optimizer.planted == "momentum on one rank" and is_ours:
            for group in optimizer.param_groups:
                group["momentum"] = 0.0

    torch.optim.SGD.__init__, torch.optim.SGD.step = remember, step


def repeat_shard(module) -> None:
    """Every rank takes the first part of the batch."""
    init = module.Batch.__init__

    def same_for_all(self, samples, labels, settings):
        import torch.distributed as dist

        if dist.is_initialized() and error() == "shard twice":
            dist.broadcast(samples := samples.clone(), src=0)
            dist.broadcast(labels := labels.clone(), src=0)
        init(self, samples, labels, settings)

    module.Batch.__init__ = same_for_all


def spoil_training(module) -> None:
    repeat_shard(module)
    spoil_updates(module.torch)


SPOIL = {"training": spoil_training}


class Planting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        package, _, module_name = name.rpartition(".")
        if package != "deepstone.backends.torch" or module_name not in SPOIL:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            SPOIL[module_name](module)

        spec.loader.exec_module = exec_module
        return spec


if FILE:
    sys.meta_path.insert(0, Planting())
