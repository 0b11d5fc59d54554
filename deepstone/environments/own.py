"""Frameworks installed beside Deepstone itself, in the interpreter that runs this. Found without importing them."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from deepstone.backends.registry import BACKENDS, BackendInfo
from deepstone.environments.environment import Environment


def own_environment(framework: str) -> Environment | None:
    info = BACKENDS[framework]
    version = _version(info) if info.package else "1"
    if version is None:
        return None
    lock = {"python": platform.python_version(), framework: version, "numpy": _pip_version("numpy") or "absent"}
    return Environment(framework=framework, version=version, python=Path(sys.executable), lock=lock)


def _version(info: BackendInfo) -> str | None:
    """The installed version. Only where other installers than pip left something, importlib.metadata is asked."""
    found = _pip_version(info.distribution)
    if found is not None or not any(_has_traces(Path(folder or "."), info) for folder in sys.path):
        return found
    from importlib import metadata  # costs every run 0.03 s

    for distribution in metadata.packages_distributions().get(info.package, [info.distribution]):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


def _pip_version(distribution: str) -> str | None:
    """From the name of the folder that pip leaves beside the package."""
    for folder in sys.path:
        found = sorted(Path(folder or ".").glob(f"{distribution}-*.dist-info"))
        if found:
            return found[-1].name.removeprefix(f"{distribution}-").removesuffix(".dist-info")
    return None


def _has_traces(folder: Path, info: BackendInfo) -> bool:
    return (folder / info.package).is_dir() or any(folder.glob(f"{info.distribution}-*.egg-info"))
