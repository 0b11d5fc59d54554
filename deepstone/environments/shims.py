"""What an old framework needs around it beside packages: libraries under names they no longer have, and its own paths.

A recipe says `links` (a name the framework asks for, and the library of today that stands in for it) and writes
`{environment}` in a variable for the folder that is made. Both end up in the variables of the environment, so that
every record tells them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from deepstone.environments.places import Place
from deepstone.environments.recipe import Link, Recipe
from deepstone.errors import MissingError

LINKS_VARIABLE: Final = "DEEPSTONE_LINKS"
_PATH: Final = "LD_LIBRARY_PATH"
_FOLDER: Final = "{environment}"
_COMMON: Final = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib64/openmpi/lib",
    "/usr/lib",
    "/usr/local/lib",
)


def require_libraries(recipe: Recipe) -> None:
    """MissingError, before anything is downloaded, for a library that is not there."""
    for link in recipe.links:
        _found(link, recipe.name)


def make_shims(recipe: Recipe, place: Place) -> Mapping[str, str]:
    """Makes the links, once the venv is there; gives the recipe's variables as they are in this place."""
    variables = {name: value.replace(_FOLDER, str(place.folder)) for name, value in recipe.variables.items()}
    if not recipe.links:
        return variables
    place.lib.mkdir()
    targets = {link.name: _found(link, recipe.name) for link in recipe.links}
    for name, target in targets.items():
        (place.lib / name).symlink_to(target)
    # Behind the links where they lead, since a library may need its neighbours, and the interpreter's own libraries.
    folders = dict.fromkeys([place.lib, *(target.parent for target in targets.values()), _interpreter_libraries(place)])
    variables[_PATH] = ":".join(map(str, folders))
    variables[LINKS_VARIABLE] = " ".join(f"{name}={target.resolve()}" for name, target in targets.items())
    return variables


def _interpreter_libraries(place: Place) -> Path:
    """Beside the interpreter that the venv is of: what was found on PATH may have been a script that leads to it."""
    for line in (place.venv / "pyvenv.cfg").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "home":
            return Path(value.strip()).parent / "lib"
    raise MissingError(f"{place.venv / 'pyvenv.cfg'} does not say of which interpreter the venv is")


def _found(link: Link, recipe: str) -> Path:
    for folder in _folders():
        if (folder / link.to).exists():
            return folder / link.to
    raise MissingError(
        f"cannot make {recipe}: it needs {link.to}, which is neither in {_PATH} nor in {', '.join(_COMMON)}; "
        f"{link.remedy}"
    )


def _folders() -> Iterator[Path]:
    for folder in os.environ.get(_PATH, "").split(":"):
        if folder:
            yield Path(folder).absolute()
    yield from map(Path, _COMMON)
