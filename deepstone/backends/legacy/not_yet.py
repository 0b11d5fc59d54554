"""Stands where a backend is still to be written: the framework imports and says its version, and every job is refused.

So its environment can be made, and asking for it gives the outcome `unsupported` with this reason.
In the syntax of Python 3.6.
"""

import importlib
import os
import sys
from typing import Any, Dict

import numpy as np

from deepstone.backends.base import Backend, Job, Unsupported

_PACKAGES = ("theano", "cntk")


class NotYet(Backend):
    def __init__(self, package: Any) -> None:
        self._package = package

    def versions(self) -> Dict[str, Any]:
        name, version = self._package.__name__, self._package.__version__
        return {"name": name, "version": version, "numpy": np.__version__}

    def build(self, job: Job) -> None:
        name, version = self._package.__name__, self._package.__version__
        raise Unsupported("Deepstone has a recipe for %s %s, but no backend yet" % (name, version))


def make_backend() -> NotYet:
    """With whichever of them this environment holds; it holds one framework only."""
    for name in _PACKAGES:
        if any(os.path.isdir(os.path.join(folder, name)) for folder in sys.path if folder):
            return NotYet(importlib.import_module(name))
    raise ImportError("none of %s is here" % ", ".join(_PACKAGES))
