"""Adds environments: builds one from its recipe, or adopts an installation that others made of a framework.

    lock ─▶ clear an interrupted build ─▶ disk space? interpreter? ─▶ install ─▶ try it ─▶ environment.json ─▶ unlock
                                          └────── failure, Ctrl-C: end pip, remove the folder ──────┘

An environment is built in place, and environment.json is written last. A kill leaves a folder without environment.json,
which nothing uses and the next build clears. For an adopted environment only environment.json is written.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from deepstone.backends.registry import BACKENDS, Language
from deepstone.durable import signals_blocked
from deepstone.environments.chroot import build_chroot, installed_debs, require_tools
from deepstone.environments.environment import (
    LONGEST_NAME,
    NAME,
    Environment,
    base_version,
    framework_of,
    label_of,
    names_version,
)
from deepstone.environments.installer import INSTALLED, Installer, used_bytes
from deepstone.environments.interpreters import find_interpreter
from deepstone.environments.manifest import Damaged, Manifest, read_manifest, write_manifest
from deepstone.environments.places import ELSEWHERE, Place, Progress, changing
from deepstone.environments.probe import probe
from deepstone.environments.recipe import Recipe
from deepstone.environments.remove import discard, sweep
from deepstone.environments.venv import build_venv, link_libraries, require_libraries
from deepstone.errors import MissingError, StoreError, UsageError, nearest, shown
from deepstone.units import bytes_

# The modules of a cluster, and the scripts that activate an installation, set these for a framework. They are saved, so
# that it works without loading the module.
_KEPT: Final[dict[Language, tuple[str, ...]]] = {
    "python": ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH"),
    "lua": ("LUA_PATH", "LUA_CPATH", "LD_LIBRARY_PATH"),
}

_Install: TypeAlias = Callable[[Place, Installer], Path]  # returns the interpreter


class Built(Struct, frozen=True, kw_only=True):
    """`is_new`: it was built now. `is_outdated`: its recipe has changed since it was built."""

    manifest: Manifest
    is_new: bool
    is_outdated: bool


def build(recipe: Recipe, root: Path, progress: Progress, *, again: bool = False) -> Built:
    """Return the environment of the recipe; build it if it is missing. Of two builders, one waits for the other.

    Raises StoreError if the folder is full or not writable, MissingError if an interpreter or package is not found.
    """
    place = Place(root=root, name=recipe.name)
    with changing(place, "make", progress):
        sweep(place)
        there = None if again else _usable(place)
        if there is not None:
            return Built(manifest=there, is_new=False, is_outdated=there.recipe_sha != recipe.sha)
        discard(place)
        _require_disk_space(recipe, root)
        install = _ready_to_install(recipe)
        try:
            manifest = _build(recipe, place, install, progress)
        except BaseException:
            with signals_blocked():
                discard(place)
            raise
        return Built(manifest=manifest, is_new=True, is_outdated=False)


class Installation(Struct, frozen=True, kw_only=True):
    """What a user names: an interpreter, or a venv, of a framework's language, and variables that it needs."""

    path: Path
    language: Language
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def option(self) -> str:
        return option_for(self.language)


def option_for(language: Language) -> str:
    """Return the option of `env add` that names an interpreter of the language."""
    return "--python" if language == "python" else "--program"


def adopt(
    wanted: str,
    installation: Installation,
    root: Path,
    progress: Progress,
    *,
    name: str = "",
    again: bool = False,
) -> Manifest:
    """Adopt the framework `wanted`, with or without a version, as it is installed."""
    framework, label = framework_of(wanted), label_of(wanted)
    if framework not in BACKENDS or not BACKENDS[framework].package:
        known = [known for known, info in BACKENDS.items() if info.package]
        raise UsageError(f"{shown(wanted)}: no such framework; {nearest(framework, known)}")
    _require_language(framework, installation)
    environment = _adopted(framework, installation, name)
    if label not in ("", environment.version, base_version(environment.version), label_of(environment.name)):
        raise MissingError(f"{environment.program} has {framework} {environment.version}, not {label}")
    place = Place(root=root, name=environment.name)
    with changing(place, "keep a note of", progress):
        sweep(place)
        _require_free(place, environment, again=again)
        discard(place)
        place.folder.mkdir()
        return write_manifest(place, environment, recipe_sha="", size_bytes=0)


def _usable(place: Place) -> Manifest | None:
    try:
        manifest = read_manifest(place)
    except (FileNotFoundError, Damaged):
        return None
    return manifest if manifest.environment.program.exists() else None


def _require_disk_space(recipe: Recipe, root: Path) -> None:
    free_bytes = shutil.disk_usage(root).free
    if free_bytes < recipe.room_bytes:
        raise StoreError(
            f"cannot make {recipe.name}: it needs {bytes_(recipe.room_bytes)} and {bytes_(free_bytes)} are free in "
            f"{root}; make room, or {ELSEWHERE}"
        )


def _ready_to_install(recipe: Recipe) -> _Install:
    """Return the function that installs the recipe. Raises MissingError if a tool is missing, before anything
    starts."""
    if recipe.kind == "chroot":
        require_tools(recipe.name)
        return lambda place, installer: build_chroot(recipe, place, installer)
    require_libraries(recipe)
    interpreter = find_interpreter(recipe.python, recipe.name)
    return lambda place, installer: build_venv(recipe, interpreter, place, installer)


def _build(recipe: Recipe, place: Place, install: _Install, progress: Progress) -> Manifest:
    place.tmp.mkdir(parents=True)
    with place.log.open("wb") as log:
        python = install(place, Installer(place, log, progress, room_bytes=recipe.room_bytes))
    progress.stage("trying it", "", INSTALLED)
    environment = _tried(recipe, python, link_libraries(recipe, place))
    shutil.rmtree(place.tmp)
    return write_manifest(place, environment, recipe_sha=recipe.sha, size_bytes=used_bytes(place.folder))


def _tried(recipe: Recipe, python: Path, variables: Mapping[str, str]) -> Environment:
    """Probe the built environment. Raises MissingError if it does not match the recipe."""
    info = BACKENDS[recipe.framework]
    untried = Environment(
        framework=recipe.framework,
        version=recipe.version,
        program=python,
        lock={},
        name=recipe.name,
        kind=recipe.kind,
        variables=variables,
    )
    try:
        probed = probe(untried.command, info, untried.variables_over(os.environ))
    except MissingError as error:
        raise MissingError(f"{recipe.name} was installed and does not work: {error}; its recipe is wrong") from error
    if base_version(probed.version) != base_version(recipe.version):
        raise MissingError(f"{recipe.name}: {info.package} {probed.version} was installed; its recipe is wrong")
    debs = {} if untried.system is None else installed_debs(untried.system, recipe.packages)
    return replace(untried, version=probed.version, lock={**probed.lock, **debs})


def _require_language(framework: str, installation: Installation) -> None:
    language = BACKENDS[framework].language
    if installation.language != language:
        option = option_for(language)
        runs = "a Python" if language == "python" else "LuaJIT"
        raise UsageError(f"{framework} runs in {runs}: give {option} PATH in place of {installation.option}")


# In the folder of an installation, the first of these that exists.
_PROGRAMS: Final[dict[Language, tuple[str, ...]]] = {"python": ("python", "python3"), "lua": ("luajit",)}


def _program(installation: Installation) -> Path:
    """Return the path, or the interpreter in that folder. Keep links: an interpreter finds its venv by them."""
    path, names = installation.path.expanduser().absolute(), _PROGRAMS[installation.language]
    what = "an interpreter or a venv" if installation.language == "python" else "the luajit that runs it"
    if path.is_dir():
        for name in names:
            if (path / "bin" / name).exists():
                return path / "bin" / name
        raise MissingError(f"{path} is a folder without bin/{names[0]}; name {what}")
    if not path.exists():
        raise MissingError(f"{path} does not exist; name {what}")
    return path


def _adopted(framework: str, installation: Installation, name: str) -> Environment:
    program = _program(installation)
    if len(name) > LONGEST_NAME:
        raise UsageError(
            f"--name {shown(name[:40])}…: has {len(name):,} characters; give a name of at most {LONGEST_NAME}"
        )
    kept = {variable: os.environ[variable] for variable in _KEPT[installation.language] if os.environ.get(variable)}
    variables = {**kept, **installation.variables}
    probed = probe([str(program)], BACKENDS[framework], {**os.environ, **variables})
    if name and not (NAME.fullmatch(name) and names_version(name, framework, probed.version)):
        plain = f"{framework}@{base_version(probed.version)}"
        raise UsageError(f"--name {shown(name)}: must be {plain} or {plain}-WORD, since that is what {program} has")
    return Environment(
        framework=framework,
        version=probed.version,
        program=program,
        lock=probed.lock,
        name=name,
        kind="adopted",
        variables=variables,
        language=installation.language,
    )


def _require_free(place: Place, environment: Environment, *, again: bool) -> None:
    """Refuse to replace another environment; an entry for the same interpreter is renewed."""
    try:
        there = read_manifest(place).environment
    except (FileNotFoundError, Damaged):
        return
    if not again and there.program != environment.program:
        raise UsageError(
            f"{place.name} is there already ({there.program}); give this one another name: --name {place.name}-WORD"
        )
