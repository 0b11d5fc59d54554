"""What this machine has, as far as a study's words refer to it."""

from __future__ import annotations

from deepstone.backends.registry import BEST_FIRST
from deepstone.environments.find import environments, installed
from deepstone.runner.job import Machine
from deepstone.studies.values import Here


def look_around(machine: Machine) -> Here:
    """Frameworks by their names alone, the one that framework=auto would take first; versions as one asks for them."""
    found = [name for name in BEST_FIRST if any(each.python.exists() for each in environments(name))]
    versions = [name for name, each in installed().items() if each is not None and each.python.exists()]
    return Here(
        cores=int(machine.description["cpu"]["usable_cores"]), frameworks=tuple(found), versions=tuple(versions)
    )
