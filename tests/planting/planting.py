"""Changes modules of a worker as they are imported. A `sitecustomize.py`, which Python imports first, plants errors and
delays with it: the module under test is the real one, and only what was planted differs."""

import importlib.abc
import importlib.machinery
import sys


def change_imported(changes, *, beforehand=False) -> None:
    """Call `changes[name]` with the module of that name right after its code ran, or `beforehand`."""
    sys.meta_path.insert(0, _Planting(changes, beforehand))


class _Planting(importlib.abc.MetaPathFinder):
    def __init__(self, changes, beforehand) -> None:
        self._changes = changes
        self._beforehand = beforehand

    def find_spec(self, name, path, target=None):
        if name not in self._changes:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module

        def exec_module(module):
            steps = (self._changes[name], run) if self._beforehand else (run, self._changes[name])
            for step in steps:
                step(module)

        spec.loader.exec_module = exec_module
        return spec
