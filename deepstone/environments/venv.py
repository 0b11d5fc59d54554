"""Builds venv environments: a venv, its packages by pip, and links to libraries under names that an old framework
loads.

A recipe has `links` (a name that the framework loads, and the current library that replaces it), and `{environment}` in
a variable means the folder of the environment. Both become variables of the environment, so every record has them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from deepstone.environments.installer import Installer, InstallerFailed, Stage
from deepstone.environments.interpreters import Interpreter, clean_variables
from deepstone.environments.places import Place
from deepstone.environments.recipe import Link, Recipe, Step
from deepstone.errors import MissingError
from deepstone.supervise import ProcessTimeout

_VENV_TIMEOUT_S: Final = 600.0

# They would make pip install outside the environment.
_DROPPED_VARIABLES: Final = (
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_USER",
    "PIP_PYTHON",
    "PIP_REQUIREMENT",
    "PIP_EDITABLE",
)
_PIP_INSTALL: Final = ["-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
_COLLECTING: Final = re.compile(r"Collecting ([^\s=(]+)(?:==([^\s(]+))?")
_PROCESSING: Final = re.compile(r"Processing (?:\S*/)?([^/\s]+?)-([0-9][^-\s]*)[^/\s]*$")
_BUILDING: Final = re.compile(r"\s*Building wheels? for (?:collected packages: )?([^\s(]+)")

LINKS_VARIABLE: Final = "DEEPSTONE_LINKS"
_PATH: Final = "LD_LIBRARY_PATH"
_FOLDER: Final = "{environment}"
_LIBRARY_FOLDERS: Final = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib64/openmpi/lib",
    "/usr/lib",
    "/usr/local/lib",
)


def build_venv(recipe: Recipe, interpreter: Interpreter, place: Place, installer: Installer) -> Path:
    """Build the venv; return its interpreter. Raises MissingError, or OSError for a full disk."""
    installer.report(("making a venv", f"of Python {interpreter.version}"))
    command = [str(interpreter.path), "-m", "venv", str(place.venv)]
    try:
        installer.run(command, env=clean_variables(), cwd=place.folder, timeout_s=_VENV_TIMEOUT_S)
    except ProcessTimeout:
        raise MissingError(f"cannot make {place.name}: {interpreter.path} -m venv hangs") from None
    except InstallerFailed as failure:
        raise MissingError(
            f"cannot make {place.name}: {interpreter.path} -m venv failed: {failure}; see {place.log}"
        ) from failure
    python = place.venv / "bin" / "python"
    try:
        for step in recipe.steps:
            _pip_install(python, step, place, installer)
    except InstallerFailed as failure:
        raise MissingError(f"cannot install {recipe.name}: {failure}; see {place.log}") from failure
    return python


def _pip_install(python: Path, step: Step, place: Place, installer: Installer) -> None:
    # pip uses its usual configuration. Its temporary files are in the environment's folder and are removed with it.
    variables = {name: value for name, value in clean_variables().items() if name not in _DROPPED_VARIABLES}
    env = {**variables, "TMPDIR": str(place.tmp), "PYTHONNOUSERSITE": "1", "PYTHONUNBUFFERED": "1"}
    env |= {name: value.replace(_FOLDER, str(place.folder)) for name, value in step.variables.items()}
    if step.toolchain:
        toolchain = place.tmp / "toolchain.cmake"
        toolchain.write_text(step.toolchain)
        env["CMAKE_TOOLCHAIN_FILE"] = str(toolchain)
    calls = [["--no-deps", f"pip=={step.pip}"]] if step.pip else []
    calls.append([*([] if step.dependencies else ["--no-deps"]), *step.options, *step.packages])
    for words in calls:
        installer.run([str(python), *_PIP_INSTALL, *words], env=env, cwd=place.tmp, stage_of=_pip_stage)


def _pip_stage(text: str) -> Stage | None:
    if match := _COLLECTING.match(text) or _PROCESSING.match(text):
        return "downloading", f"{match[1]} {match[2] or ''}".strip()
    if match := _BUILDING.match(text):
        return "building", match[1].rstrip(",")
    if text.startswith("Installing collected packages:"):
        packages = text.partition(":")[2].split(",")
        return "installing", packages[0].strip() if len(packages) == 1 else f"{len(packages)} packages"
    return None


def require_libraries(recipe: Recipe) -> None:
    """Raise MissingError for a missing library, before anything is downloaded."""
    for link in recipe.links:
        _find_library(link, recipe.name)


def link_libraries(recipe: Recipe, place: Place) -> Mapping[str, str]:
    """Create the links after the venv is built. Return the recipe's variables with the paths of this environment."""
    variables = {name: value.replace(_FOLDER, str(place.folder)) for name, value in recipe.variables.items()}
    if not recipe.links:
        return variables
    place.lib.mkdir()
    targets = {link.name: _find_library(link, recipe.name) for link in recipe.links}
    for name, target in targets.items():
        (place.lib / name).symlink_to(target)
    # After the links come the folders of their targets, since a library may need its neighbours, and the interpreter's.
    folders = dict.fromkeys([place.lib, *(target.parent for target in targets.values()), _interpreter_libraries(place)])
    variables[_PATH] = ":".join(map(str, folders))
    variables[LINKS_VARIABLE] = " ".join(f"{name}={target.resolve()}" for name, target in targets.items())
    return variables


def _interpreter_libraries(place: Place) -> Path:
    """Return the libraries of the venv's base interpreter: the one found on PATH may be a script that starts it."""
    for line in (place.venv / "pyvenv.cfg").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "home":
            return Path(value.strip()).parent / "lib"
    raise MissingError(f"{place.venv / 'pyvenv.cfg'} does not say of which interpreter the venv is")


def _find_library(link: Link, recipe: str) -> Path:
    for folder in _library_folders():
        if (folder / link.to).exists():
            return folder / link.to
    raise MissingError(
        f"cannot make {recipe}: it needs {link.to}, which is neither in {_PATH} nor in {', '.join(_LIBRARY_FOLDERS)}; "
        f"{link.remedy}"
    )


def _library_folders() -> Iterator[Path]:
    for folder in os.environ.get(_PATH, "").split(":"):
        if folder:
            yield Path(folder).absolute()
    yield from map(Path, _LIBRARY_FOLDERS)
