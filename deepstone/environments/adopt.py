"""Adopts an interpreter that others installed a framework for. Only a note about it is made; nothing is installed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from deepstone.backends.registry import BACKENDS
from deepstone.environments.discard import discard, sweep
from deepstone.environments.environment import Environment
from deepstone.environments.locks import held
from deepstone.environments.manifest import Damaged, Manifest, read_manifest, write_manifest
from deepstone.environments.names import NAME, base_version, framework_of, label_of, names_version
from deepstone.environments.places import Place, as_store_error
from deepstone.environments.probe import probe
from deepstone.environments.watch import Watch
from deepstone.errors import MissingError, UsageError, nearest, shown

# A cluster's modules make a framework work by setting these. Kept, so that it works when no module is loaded.
_KEPT: Final = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")


def adopt(wanted: str, path: Path, root: Path, watch: Watch, *, name: str = "", again: bool = False) -> Manifest:
    """The framework `wanted`, with or without a version, as the interpreter or venv at `path` has it."""
    framework, label = framework_of(wanted), label_of(wanted)
    if framework not in BACKENDS or not BACKENDS[framework].package:
        known = [known for known, info in BACKENDS.items() if info.package]
        raise UsageError(f"{shown(wanted)}: no such framework; {nearest(framework, known)}")
    environment = _asked(framework, _interpreter(path), name)
    if label not in ("", environment.version, base_version(environment.version), label_of(environment.name)):
        raise MissingError(f"{environment.python} has {framework} {environment.version}, not {label}")
    place = Place(root=root, name=environment.name)
    with as_store_error(f"keep a note of {place.name}", root):
        place.make_folders_around()
        with held(place.lock, lambda: watch.say(f"another deepstone makes {place.name}; waiting")):
            sweep(place)
            _require_free(place, environment, again=again)
            discard(place)
            place.folder.mkdir()
            return write_manifest(place, environment, recipe_sha="", size_bytes=0)


def _interpreter(path: Path) -> Path:
    """What was named, or the interpreter in a venv that was. Links are kept: an interpreter finds its venv by them."""
    path = path.expanduser().absolute()
    if path.is_dir():
        for name in ("python", "python3"):
            if (path / "bin" / name).exists():
                return path / "bin" / name
        raise MissingError(f"{path} is a folder without bin/python; name an interpreter or a venv")
    if not path.exists():
        raise MissingError(f"{path} does not exist; name an interpreter or a venv")
    return path


def _asked(framework: str, python: Path, name: str) -> Environment:
    variables = {variable: os.environ[variable] for variable in _KEPT if os.environ.get(variable)}
    probed = probe([str(python)], BACKENDS[framework].package, os.environ)
    if name and not (NAME.fullmatch(name) and names_version(name, framework, probed.version)):
        plain = f"{framework}@{base_version(probed.version)}"
        raise UsageError(f"--name {shown(name)}: must be {plain} or {plain}-WORD, since that is what {python} has")
    return Environment(
        framework=framework,
        version=probed.version,
        python=python,
        lock=probed.lock,
        name=name,
        kind="adopted",
        variables=variables,
    )


def _require_free(place: Place, environment: Environment, *, again: bool) -> None:
    """Refuse to take the place of another environment; a note about the same interpreter is renewed."""
    try:
        there = read_manifest(place).environment
    except (FileNotFoundError, Damaged):
        return
    if not again and there.python != environment.python:
        raise UsageError(
            f"{place.name} is there already ({there.python}); give this one another name: --name {place.name}-WORD"
        )
