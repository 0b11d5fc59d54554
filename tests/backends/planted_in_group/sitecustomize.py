"""In a worker of a group, before anything else: spoils the exchange as the file in DEEPSTONE_TEST_PLANT says at the
moment in which a network is built. So one team can be shown right and wrong, in turns."""

import importlib.abc
import importlib.machinery
import os
import sys
from pathlib import Path

FILE = os.environ.get("DEEPSTONE_TEST_PLANT", "")
# The module of each framework, the class in it, and the method that averages gradients.
AVERAGING = {
    "deepstone.backends.jax.processes": ("Processes", "mean"),
    "deepstone.backends.tensorflow.processes": ("Processes", "mean"),
}


def planted() -> str:
    return Path(FILE).read_text()


def spoil_mean(module, owner, name) -> None:
    mean = getattr(getattr(module, owner), name)

    def spoilt(self, gradients):
        error = planted()
        if error == "dropped":
            return [*mean(self, gradients[:-1]), gradients[-1]]
        found = mean(self, gradients)
        return [self.world * gradient for gradient in found] if error == "sum" else found

    setattr(getattr(module, owner), name, spoilt)


def spoil_driver(module) -> None:
    """What workers send to servers, and which parts a driver gives out."""
    program = module.Driver._worker_program

    def spoilt(self):
        error, right = planted(), self._own.loss_and_gradients

        def wrong(samples, labels):
            loss, gradients, image_gradient = right(samples, labels)
            if error == "sum":
                gradients = [self._workers * gradient for gradient in gradients]
            elif error == "dropped":
                gradients = [*gradients[:-1], 0 * gradients[-1]]
            return loss, gradients, image_gradient

        self._own.loss_and_gradients = wrong
        if error == "shard twice":
            self._parts = self._parts[:1] * self._workers
        return program(self)

    module.Driver._worker_program = spoilt


def repeat_shard(module) -> None:
    """Both of two processes take the first part of the batch."""
    made = module.synthetic_batch

    def first_part_twice(*arguments, **options):
        import numpy as np

        samples, labels = made(*arguments, **options)
        if planted() != "shard twice":
            return samples, labels
        half = len(samples) // 2
        return np.concatenate([samples[:half]] * 2), np.concatenate([labels[:half]] * 2)

    module.synthetic_batch = first_part_twice


SPOILING = {"deepstone.graph.batch": repeat_shard, "deepstone.backends.tensorflow.server": spoil_driver}


class Planting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name not in (*AVERAGING, *SPOILING):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            if name in AVERAGING:
                spoil_mean(module, *AVERAGING[name])
            else:
                SPOILING[name](module)

        spec.loader.exec_module = exec_module
        return spec


if FILE:
    sys.meta_path.insert(0, Planting())
