"""Frameworks installed beside Deepstone itself, in the interpreter that runs this. Found without importing them."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from deepstone.backends.registry import BACKENDS, BEST_FIRST, BackendInfo
from deepstone.environments.environment import Environment
from deepstone.errors import MissingError
from deepstone.setups.axes import AUTO


def find_environment(wanted: str) -> Environment:
    """The environment for `framework=wanted`; MissingError with the remedy when there is none."""
    if wanted == AUTO:
        return _best()
    name, _, version = wanted.partition("@")
    found = _installed(name, BACKENDS[name])
    if found is None:
        raise MissingError(f"framework {name} is not installed; {BACKENDS[name].remedy}")
    if version and version not in (found.version, found.version.partition("+")[0]):
        raise MissingError(f"framework {wanted} is not installed, {name} {found.version} is; use framework={name}")
    return found


def installed() -> dict[str, Environment | None]:
    """Every framework a user can ask for, with its environment where there is one."""
    return {name: _installed(name, info) for name, info in BACKENDS.items() if info.package}


def _best() -> Environment:
    for name in BEST_FIRST:
        found = _installed(name, BACKENDS[name])
        if found is not None:
            return found
    remedies = "; or ".join(BACKENDS[name].remedy for name in BEST_FIRST)
    raise MissingError(f"no framework is installed; {remedies}")


def _installed(name: str, info: BackendInfo) -> Environment | None:
    version = "1" if not info.package else _version(info.distribution)
    if version is None:
        return None
    lock = {"python": platform.python_version(), name: version, "numpy": _version("numpy") or "absent"}
    return Environment(framework=name, version=version, python=Path(sys.executable), lock=lock)


def _version(distribution: str) -> str | None:
    """The installed version, from the name of the folder that pip leaves beside the package.

    importlib.metadata says the same, but importing it costs every run 0.03 s, so only other installers' traces need it.
    """
    for folder in sys.path:
        found = sorted(Path(folder or ".").glob(f"{distribution}-*.dist-info"))
        if found:
            return found[-1].name.removeprefix(f"{distribution}-").removesuffix(".dist-info")
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
