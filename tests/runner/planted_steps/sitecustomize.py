"""In a torch worker before anything else: takes out of the training step what DEEPSTONE_TEST_PLANT_STEP names.

The step under test is the real one; only torch's own part in it does less, as after a careless change.
"""

import importlib.abc
import importlib.machinery
import os
import sys

LEFT_OUT = os.environ.get("DEEPSTONE_TEST_PLANT_STEP", "")
STEPS_BEFORE_IT_STOPS = 5


def leave_out() -> None:
    import torch

    if LEFT_OUT == "backward":
        torch.Tensor.backward = lambda *arguments, **options: None
        return
    if LEFT_OUT == "later casting":
        stop_casting(torch.autocast)
        return
    update = torch.optim.SGD.step
    done = 0

    def step(self, *arguments, **options):
        nonlocal done
        done += 1
        if LEFT_OUT == "later updates" and done <= STEPS_BEFORE_IT_STOPS:
            return update(self, *arguments, **options)
        if LEFT_OUT == "every other update" and done % 2:
            return update(self, *arguments, **options)
        return None

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


class Planting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "deepstone.backends.torch.training":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module

        def exec_module(module):
            leave_out()
            run(module)

        spec.loader.exec_module = exec_module
        return spec


if LEFT_OUT:
    sys.meta_path.insert(0, Planting())
