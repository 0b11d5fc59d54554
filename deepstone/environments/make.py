"""Makes an environment from its recipe, in place and under a lock. It is there when its last file is written, else not.

    lock ─▶ clear what was cut short ─▶ room? interpreter? ─▶ venv ─▶ steps ─▶ try it ─▶ environment.json ─▶ unlock
                                        └────── failure, Ctrl-C: end pip, remove the folder ──────┘

One that is a system of its own is made by debootstrap instead of venv and pip; all else is the same.

A kill at any moment leaves a folder without environment.json, which nothing uses and the next making clears.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias, cast

from deepstone.backends.registry import BACKENDS
from deepstone.environments.child import ChildTimeout, run
from deepstone.environments.chroot import bootstrap, installed_debs, require_tools
from deepstone.environments.complaints import full_disk, last_word
from deepstone.environments.discard import discard, sweep
from deepstone.environments.environment import Environment, Kind
from deepstone.environments.interpreters import Interpreter, clean_variables, find_interpreter
from deepstone.environments.locks import held
from deepstone.environments.manifest import Damaged, Manifest, read_manifest, write_manifest
from deepstone.environments.names import base_version
from deepstone.environments.pip import PipFailed, keep, pip_install
from deepstone.environments.places import ELSEWHERE, Place, as_store_error
from deepstone.environments.probe import probe
from deepstone.environments.recipe import Recipe
from deepstone.environments.shims import make_shims, require_libraries
from deepstone.environments.undisturbed import undisturbed
from deepstone.environments.watch import Watch
from deepstone.errors import MissingError, StoreError
from deepstone.units import bytes_

_VENV_TIMEOUT_S: Final = 600.0
_INSTALLED: Final = 0.95  # the share of the work that is done when the last package is installed
_BLOCK_BYTES: Final = 512

_Install: TypeAlias = Callable[[Place, BinaryIO, Watch], Path]  # gives the interpreter of what it made


@dataclass(frozen=True, kw_only=True, slots=True)
class Making:
    """`is_new` tells what was made from what had been there; `is_outdated`, that its recipe has changed since."""

    manifest: Manifest
    is_new: bool
    is_outdated: bool


def make(recipe: Recipe, root: Path, watch: Watch, *, again: bool = False) -> Making:
    """The environment of the recipe, made if it is not there. Of two that make the same, one waits for the other.

    StoreError for a folder that is full or cannot be written; MissingError for an interpreter or package not found.
    """
    place = Place(root=root, name=recipe.name)
    with as_store_error(f"make {recipe.name}", root):
        place.make_folders_around()
        with held(place.lock, lambda: watch.say(f"another deepstone makes {recipe.name}; waiting")):
            sweep(place)
            there = None if again else _there(place)
            if there is not None:
                return Making(manifest=there, is_new=False, is_outdated=there.recipe_sha != recipe.sha)
            discard(place)
            _require_room(recipe, root)
            install = _ready_to_install(recipe)
            try:
                manifest = _make(recipe, place, install, watch)
            except BaseException:
                with undisturbed():
                    discard(place)
                raise
            return Making(manifest=manifest, is_new=True, is_outdated=False)


def _there(place: Place) -> Manifest | None:
    try:
        manifest = read_manifest(place)
    except (FileNotFoundError, Damaged):
        return None
    return manifest if manifest.environment.python.exists() else None


def _require_room(recipe: Recipe, root: Path) -> None:
    free_bytes = shutil.disk_usage(root).free
    if free_bytes < recipe.room_bytes:
        raise StoreError(
            f"cannot make {recipe.name}: it needs {bytes_(recipe.room_bytes)} and {bytes_(free_bytes)} are free in "
            f"{root}; make room, or {ELSEWHERE}"
        )


def _ready_to_install(recipe: Recipe) -> _Install:
    """What installs it. MissingError when something that takes is not there, while nothing is begun yet."""
    if recipe.kind == "chroot":
        require_tools(recipe.name)
        return lambda place, log, watch: _install_system(recipe, place, log, watch)
    require_libraries(recipe)
    interpreter = find_interpreter(recipe.python, recipe.name)
    return lambda place, log, watch: _install_venv(recipe, interpreter, place, log, watch)


def _make(recipe: Recipe, place: Place, install: _Install, watch: Watch) -> Manifest:
    place.tmp.mkdir(parents=True)
    with place.log.open("wb") as log:
        python = install(place, log, watch)
    watch.tell("trying it", "", _INSTALLED)
    environment = _tried(recipe, python, make_shims(recipe, place))
    shutil.rmtree(place.tmp)
    return write_manifest(place, environment, recipe_sha=recipe.sha, size_bytes=used_bytes(place.folder))


def _install_system(recipe: Recipe, place: Place, log: BinaryIO, watch: Watch) -> Path:
    progress = _Progress(recipe, place, watch)
    return bootstrap(recipe, place, log=log, heard=progress.heard, tick=progress.tick)


def _install_venv(recipe: Recipe, interpreter: Interpreter, place: Place, log: BinaryIO, watch: Watch) -> Path:
    python = place.venv / "bin" / "python"
    watch.tell("making a venv", f"of Python {interpreter.version}", 0.0)
    _make_venv(interpreter, place, log)
    _install(recipe, place, python, log, watch)
    return python


def _make_venv(interpreter: Interpreter, place: Place, log: BinaryIO) -> None:
    said: list[str] = []
    try:
        code = run(
            [str(interpreter.path), "-m", "venv", str(place.venv)],
            variables=clean_variables(),
            folder=place.folder,
            line=said.append,
            timeout_s=_VENV_TIMEOUT_S,
        )
    except ChildTimeout:
        raise MissingError(f"cannot make {place.name}: {interpreter.path} -m venv hangs") from None
    keep(log, "\n".join(said))
    if code != 0:
        raise full_disk(said) or MissingError(
            f"cannot make {place.name}: {interpreter.path} -m venv failed: {last_word(said, code)}; see {place.log}"
        )


def _install(recipe: Recipe, place: Place, python: Path, log: BinaryIO, watch: Watch) -> None:
    progress = _Progress(recipe, place, watch)
    try:
        for step in recipe.steps:
            pip_install(python, step, temporary=place.tmp, log=log, heard=progress.heard, tick=progress.tick)
    except PipFailed as failure:
        raise MissingError(f"cannot install {recipe.name}: {failure}; see {place.log}") from failure


class _Progress:
    """What pip or debootstrap is busy with, and how much lies on the disk by now."""

    def __init__(self, recipe: Recipe, place: Place, watch: Watch) -> None:
        self._room_bytes = recipe.room_bytes
        self._folder = place.folder
        self._watch = watch
        self._stage = ("downloading", "")
        self._share = 0.0
        self._look_again_s = 0.0

    def heard(self, stage: str, detail: str) -> None:
        self._stage = stage, detail
        self._watch.tell(stage, detail, self._share)

    def tick(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._look_again_s:
            self._share = max(self._share, min(1.0, used_bytes(self._folder) / self._room_bytes) * _INSTALLED)
            # Looking at many thousand files costs time that pip could use.
            self._look_again_s = now_s + 10 * (time.monotonic() - now_s)
        self._watch.tell(*self._stage, self._share)


def _tried(recipe: Recipe, python: Path, variables: Mapping[str, str]) -> Environment:
    """The environment as it turned out; MissingError when it is not what the recipe says."""
    package = BACKENDS[recipe.framework].package
    untried = Environment(
        framework=recipe.framework,
        version=recipe.version,
        python=python,
        lock={},
        name=recipe.name,
        kind=cast(Kind, recipe.kind),
        variables=variables,
    )
    try:
        probed = probe(untried.command, package, untried.variables_over(os.environ))
    except MissingError as error:
        raise MissingError(f"{recipe.name} was installed and does not work: {error}; its recipe is wrong") from error
    if base_version(probed.version) != base_version(recipe.version):
        raise MissingError(f"{recipe.name}: {package} {probed.version} was installed; its recipe is wrong")
    debs = {} if untried.system is None else installed_debs(untried.system, recipe.packages)
    return replace(untried, version=probed.version, lock={**probed.lock, **debs})


def used_bytes(folder: Path) -> int:
    """What a folder takes on the disk. Files may come and go meanwhile."""
    total = 0
    folders = [str(folder)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except FileNotFoundError:
            continue
    return total
