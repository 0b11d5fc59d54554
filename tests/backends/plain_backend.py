"""A backend in the syntax of Python 3.6 that needs NumPy alone: whether old Pythons can serve is tried with it."""

import sys

import numpy as np

from deepstone.backends.base import Backend, Unsupported, phases_of


class PlainBackend(Backend):
    """Adds up its weights, and prints where one must not."""

    def versions(self):
        return {"name": "plain", "version": "1", "numpy": np.__version__}

    def build(self, job):
        if job.request["precision"] == "bf16":
            raise Unsupported("plain numbers only")
        self._job = job
        self._sum = 0.0

    def phase(self):
        return self._job.request["phase"]

    def step(self, program):
        def run():
            sys.stdout.write('{"event": "block"}\n')
            self._sum += sum(float(np.sum(a)) for layer in self._job.weights.values() for a in layer.values())

        return run

    def observe(self):
        return {axis: {"value": value, "source": "set"} for axis, value in self._job.request.items()}

    def phases(self):
        return phases_of(self.phase())

    def step_in_phases(self, mark):
        for position, _ in enumerate(self.phases()):
            self.step("train")()
            mark(position)

    def loss(self):
        return self._sum

    def arrays(self, kind):
        return {
            f"{layer}/{name}": array for layer, arrays in self._job.weights.items() for name, array in arrays.items()
        }

    def memory(self):
        absent = {"absent": "no device"}
        return {"device_allocated_bytes": absent, "device_reserved_bytes": absent}


def make_backend():
    return PlainBackend()
