"""Finds the environment for a request: Deepstone's own interpreter first, then built and adopted ones.

Frameworks in our own interpreter are found without importing them.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from deepstone.backends.registry import BACKENDS, BEST_FIRST, BackendInfo
from deepstone.environments.environment import AS_ROOT, Environment, base_version
from deepstone.environments.manifest import survey
from deepstone.environments.places import environments_root
from deepstone.errors import MissingError
from deepstone.plugins import BACKENDS as PLUGIN_BACKENDS
from deepstone.plugins import declared
from deepstone.setups.axes import AUTO, CURRENT


def find_environment(wanted: str) -> Environment:
    """Return the environment for `framework=wanted`. Raises MissingError with the remedy if there is none."""
    if wanted == AUTO:
        return _best()
    framework, _, label = wanted.partition("@")
    if not label:
        return _first(framework)
    found = environments(framework)
    # The full name means an added environment, even if Deepstone's own interpreter has that version.
    named = [each for each in found if each.kind != "own" and each.name == wanted]
    for environment in (*named, *(each for each in found if each.is_meant_by(label))):
        return _there(environment)
    raise MissingError(_why_not(framework, label))


def environments(framework: str) -> list[Environment]:
    """Return all environments of a framework in the order of preference; missing ones come last."""
    own = own_environment(framework)
    added = [manifest.environment for manifest in survey(environments_root(), framework).made]
    added.sort(key=lambda environment: (environment.program.exists(), environment.newness), reverse=True)
    return added if own is None else [own, *added]


def own_environment(framework: str) -> Environment | None:
    """Return the framework in our own interpreter, if it is there."""
    info = BACKENDS[framework]
    if info.language != "python":
        return None
    version = _version(info) if info.package else "1"
    if version is None:
        return None
    lock = {"python": platform.python_version(), framework: version, "numpy": _pip_version("numpy") or "absent"}
    if framework not in BACKENDS.own:
        lock["plugin"] = declared(PLUGIN_BACKENDS)[framework].distribution
    return Environment(framework=framework, version=version, program=Path(sys.executable), lock=lock)


def own_environments() -> list[Environment]:
    """Return all frameworks in Deepstone's own interpreter."""
    found = [own_environment(name) for name, info in BACKENDS.items() if info.package]
    return [environment for environment in found if environment is not None]


def installed() -> dict[str, Environment | None]:
    """Return every current framework with its environment or None, installed legacy frameworks, and further
    environments under their own names."""
    found: dict[str, Environment | None] = {}
    for name, info in BACKENDS.items():
        if info.package:
            first, *further = environments(name) or [None]
            if first is not None or name in CURRENT:  # a legacy framework is not reported as missing
                found[name] = first
            found |= {environment.name: environment for environment in further if environment is not None}
    return found


def not_installed() -> list[str]:
    """Return the names that `env add` accepts and that have no environment yet."""
    from deepstone.environments.cookbook import all_recipes  # lazy: it reads files

    there = [environment for environment in installed().values() if environment is not None]
    names = {environment.name for environment in there}
    plain = {(each.framework, base_version(each.version)) for each in there if each.is_plain}
    missing = [
        recipe
        for recipe in all_recipes()
        if recipe.name not in names
        and (recipe.name != f"{recipe.framework}@{recipe.version}" or (recipe.framework, recipe.version) not in plain)
    ]
    return [recipe.framework if recipe.default else recipe.name for recipe in missing]


def _best() -> Environment:
    for framework in BEST_FIRST:
        own = own_environment(framework)
        if own is not None:
            return own
    for framework in BEST_FIRST:
        found = environments(framework)
        if found and found[0].program.exists():
            return found[0]
    remedies = "; or ".join(BACKENDS[name].remedy for name in BEST_FIRST)
    raise MissingError(f"no framework is installed; {remedies}")


def _first(framework: str) -> Environment:
    found = environments(framework)
    if found:
        return _there(found[0])
    raise MissingError(f"framework {framework} is not installed; {BACKENDS[framework].remedy}")


def _there(environment: Environment) -> Environment:
    if not environment.program.exists():
        raise MissingError(
            f"environment {environment.name}: its interpreter {environment.program} is gone; "
            f"deepstone env remove {environment.name}"
        )
    if environment.system is not None and os.geteuid() != 0:
        raise MissingError(
            f"environment {environment.name}: it is a Debian of its own, which takes root to run; {AS_ROOT}"
        )
    return environment


def _why_not(framework: str, label: str) -> str:
    wanted = f"{framework}@{label}"
    for unusable in survey(environments_root(), framework).unusable:
        if unusable.name == wanted:
            return f"environment {wanted}: {unusable.reason}; deepstone env add {wanted}"
    from deepstone.environments.cookbook import all_recipes  # lazy: it reads files

    if any(recipe.name == wanted for recipe in all_recipes()):
        return f"framework {wanted} is not installed; deepstone env add {wanted}"
    there = [environment.version for environment in environments(framework)]
    if there:
        which = f"{framework} {' and '.join(there)} {'is' if len(there) == 1 else 'are'}"
        return f"framework {wanted} is not installed, {which}; use framework={framework}"
    return f"framework {wanted} is not installed; {BACKENDS[framework].remedy}"


def _version(info: BackendInfo) -> str | None:
    """Return the installed version. Use importlib.metadata only if another installer than pip left traces."""
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
    """Read the version from the name of the folder that pip creates next to the package."""
    for folder in sys.path:
        found = sorted(Path(folder or ".").glob(f"{distribution}-*.dist-info"))
        if found:
            return found[-1].name.removeprefix(f"{distribution}-").removesuffix(".dist-info")
    return None


def _has_traces(folder: Path, info: BackendInfo) -> bool:
    return (folder / info.package).is_dir() or any(folder.glob(f"{info.distribution}-*.egg-info"))
