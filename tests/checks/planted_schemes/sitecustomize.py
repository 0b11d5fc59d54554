"""In a torch worker of a group, before anything else: spoils what a scheme of parallelism does, as the file says that
DEEPSTONE_TEST_PLANT names. It is read whenever a network is built, so one life of the processes serves many errors."""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "planting"))

from planting import change_imported

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

    def share(self) -> int:
        return 0 if error() == "shard twice" else self.own_share

    def set_share(self, value: int) -> None:
        self.own_share = value

    module.Group.share = property(share, set_share)


def spoil_cut(module) -> None:
    """Nothing goes back to the stage before."""
    backward = module._Contiguous.backward

    def nothing(context, gradient):
        found = backward(context, gradient)
        return found * 0 if error() == "no gradient across a cut" else found

    module._Contiguous.backward = staticmethod(nothing)


def repeat_microbatch(module) -> None:
    run = module.Pipeline._run

    def same_for_all(self, samples, labels):
        if error() == "microbatch twice":
            half = len(labels) // 2
            labels = labels[:half].repeat(2)
            samples = tuple(each[:half].repeat(2, 1, 1, 1) for each in samples)
        run(self, samples, labels)

    module.Pipeline._run = same_for_all


def keep_pipelines_apart(module) -> None:
    average = module._average

    def maybe_not(gradients, group, count):
        if error() != "pipelines apart":
            average(gradients, group, count)

    module._average = maybe_not


def spoil_pipeline(module) -> None:
    repeat_microbatch(module)
    keep_pipelines_apart(module)


SPOIL = {
    "deepstone.backends.base": repeat_shard,
    "deepstone.backends.torch.training": lambda module: spoil_updates(module.torch),
    "deepstone.backends.torch.stage": spoil_cut,
    "deepstone.backends.torch.pipeline": spoil_pipeline,
}


if FILE:
    change_imported(SPOIL)
