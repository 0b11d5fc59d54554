"""In a torch worker of a group, before anything else: spoils the exchange of gradients as DEEPSTONE_TEST_PLANT says."""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "planting"))

from planting import change_imported

ERROR = os.environ.get("DEEPSTONE_TEST_PLANT", "")


def spoil(module) -> None:
    packed = module._Packed
    average = packed.average

    def sum_instead_of_mean(self, gradients):
        average(self, gradients)
        for gradient in gradients:
            gradient *= self._communicator.world

    def dropped_bucket(self, gradients):
        average(self, gradients[:-1])

    def stale_bucket(self, gradients):
        """The last array is reduced a step late."""
        last = gradients[-1].clone()
        average(self, gradients)
        before = getattr(self, "before", last)
        self.before = gradients[-1].clone()
        gradients[-1].copy_(before)

    def crash(self, gradients):
        raise ValueError("planted: the exchange fails")

    errors = {"sum": sum_instead_of_mean, "dropped": dropped_bucket, "stale": stale_bucket, "crash": crash}
    if ERROR in errors:
        packed.average = errors[ERROR]


def spoil_update() -> None:
    """Only rank 0 has momentum."""
    import torch
    import torch.distributed as dist

    update = torch.optim.SGD.step

    def step(self, *arguments, **options):
        if dist.is_initialized() and dist.get_rank() != 0:
            for group in self.param_groups:
                group["momentum"] = 0.0
        return update(self, *arguments, **options)

    torch.optim.SGD.step = step


def repeat_shard(module) -> None:
    """Every rank takes the first part of the batch."""
    init = module.Batch.__init__

    def same_for_all(self, samples, labels, settings):
        import torch.distributed as dist

        if dist.is_initialized():
            dist.broadcast(samples := samples.clone(), src=0)
            dist.broadcast(labels := labels.clone(), src=0)
        init(self, samples, labels, settings)

    module.Batch.__init__ = same_for_all


def spoil_training(module) -> None:
    if ERROR == "shard twice":
        repeat_shard(module)
    elif ERROR == "momentum on one rank":
        spoil_update()


if ERROR:
    change_imported({"deepstone.backends.torch.parallel": spoil, "deepstone.backends.torch.training": spoil_training})
