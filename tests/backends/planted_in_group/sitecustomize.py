"""In a worker of a group, before anything else: spoils the exchange as the file in DEEPSTONE_TEST_PLANT says at the
moment in which a network is built. So one team can be shown right and wrong, in turns."""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "planting"))

from planting import change_imported

FILE = os.environ.get("DEEPSTONE_TEST_PLANT", "")


def planted() -> str:
    return Path(FILE).read_text()


def spoil_mean(module) -> None:
    """Processes add up gradients, or leave out the last."""
    mean = module.Processes.mean

    def spoilt(self, gradients):
        error = planted()
        if error == "dropped":
            return [*mean(self, gradients[:-1]), gradients[-1]]
        found = mean(self, gradients)
        return [self.world * gradient for gradient in found] if error == "sum" else found

    module.Processes.mean = spoilt


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


CHANGES = {
    "deepstone.graph.batch": repeat_shard,
    "deepstone.backends.jax.processes": spoil_mean,
    "deepstone.backends.tensorflow.processes": spoil_mean,
    "deepstone.backends.tensorflow.server": spoil_driver,
}


if FILE:
    change_imported(CHANGES)
