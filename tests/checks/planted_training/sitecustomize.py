"""In a torch worker before anything else: spoils the training, or leaves out a part of its step, as
DEEPSTONE_TEST_PLANT_TRAINING says.

The step under test is the real one; only torch's own part in it does less, as a careless optimization would.
"""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "planting"))

from planting import change_imported

FAULT = os.environ.get("DEEPSTONE_TEST_PLANT_TRAINING", "")
SHARE_LOST = 0.15  # of the largest gradient of an array: what is smaller is dropped
STEPS_BEFORE_IT_STOPS = 5


def spoil(_module) -> None:
    import torch

    if FAULT == "nothing repeats":
        cross_entropy = torch.nn.functional.cross_entropy
        torch.nn.functional.cross_entropy = lambda *a, **k: cross_entropy(*a, **k) * growing_factor()
        return
    if FAULT == "no backward":
        torch.Tensor.backward = lambda *arguments, **options: None
        return
    if FAULT == "no later casting":
        stop_casting(torch.autocast)
        return
    update = torch.optim.SGD.step
    done = 0

    def step(self, *arguments, **options):
        nonlocal done
        done += 1
        parameters = [each for group in self.param_groups for each in group["params"]]
        is_left_out = {
            "no update": True,
            "no later update": done > STEPS_BEFORE_IT_STOPS,
            "every other update": done % 2 == 0,
            "every tenth update": done % 10 == 0,
        }
        if is_left_out.get(FAULT):
            return None
        if FAULT == "half of every update":
            for each in parameters:
                each.grad.mul_(0.5)
        if FAULT == "first layer" or (FAULT == "first layer later" and done > STEPS_BEFORE_IT_STOPS):
            parameters[0].grad = None
        if FAULT == "update of first layer later" and done > STEPS_BEFORE_IT_STOPS:
            first = parameters[0].detach().clone()
            update(self, *arguments, **options)
            with torch.no_grad():
                parameters[0].copy_(first)
            return None
        if FAULT == "small gradients":
            for each in parameters:
                each.grad[each.grad.abs() < SHARE_LOST * each.grad.abs().max()] = 0
        return update(self, *arguments, **options)

    torch.optim.SGD.step = step


def stop_casting(autocast) -> None:
    enter, leave, entered = autocast.__enter__, autocast.__exit__, 0

    def enter_at_first(self):
        nonlocal entered
        entered += 1
        return enter(self) if entered <= STEPS_BEFORE_IT_STOPS else None

    def leave_at_first(self, *error):
        return leave(self, *error) if entered <= STEPS_BEFORE_IT_STOPS else None

    autocast.__enter__, autocast.__exit__ = enter_at_first, leave_at_first


def growing_factor() -> float:
    """Larger at every call of every process, so that no two runs have the same by chance."""
    with Path(os.environ["DEEPSTONE_TEST_PLANT_CALLS"]).open("ab") as calls:
        calls.write(b".")
        return 1.0 + calls.tell() / 100.0


if FAULT:
    change_imported({"deepstone.backends.torch.training": spoil}, beforehand=True)
