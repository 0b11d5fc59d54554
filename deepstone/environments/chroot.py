"""Makes an old Debian in a folder, with debootstrap, for a framework that only lives on in one. `enter.py` runs it.

debootstrap mounts things while it works. It does so in a mount namespace of its own, so that whoever is killed when,
nothing stays mounted.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from deepstone.environments.child import run
from deepstone.environments.complaints import full_disk, last_word
from deepstone.environments.environment import AS_ROOT
from deepstone.environments.interpreters import clean_variables
from deepstone.environments.mirrors import mirrors, without_password
from deepstone.environments.pip import Heard, keep
from deepstone.environments.places import Place
from deepstone.environments.recipe import Recipe
from deepstone.errors import MissingError

LOCKED: Final = "debian:"  # before the names of packages in a lock, which are not those of Python's
_SYSTEM_TOOLS: Final = ("/usr/sbin", "/sbin")  # not on everybody's PATH
_ASTRAY: Final = ("TMPDIR", "TMP", "TEMP", "LD_LIBRARY_PATH", "LD_PRELOAD")  # would lead the new system out of itself
_STAGES: Final = {
    "Retrieving": "downloading",
    "Validating": "downloading",
    "Extracting": "unpacking",
    "Unpacking": "installing",
    "Configuring": "installing",
}
_SAID: Final = re.compile(r"I: (\w+) ([^\s.]\S*)")
_NOT_THERE: Final = re.compile(
    r"E: (Failed getting release|Invalid Release|Couldn't download|Couldn't find these debs)"
)


def require_tools(name: str) -> None:
    """MissingError, before anything is downloaded."""
    if os.geteuid() != 0:
        raise MissingError(f"cannot make {name}: it is a Debian of its own, which takes root to make; {AS_ROOT}")
    for tool, package in (("debootstrap", "debootstrap"), ("unshare", "util-linux")):
        if _tool(tool) is None:
            raise MissingError(
                f"cannot make {name}: {tool} is not installed; on Debian or Ubuntu: apt install {package}"
            )
    _require_mounting(name)


def bootstrap(recipe: Recipe, place: Place, *, log: BinaryIO, heard: Heard, tick: Callable[[], None]) -> Path:
    """Makes the system; its interpreter. Asks one mirror after the other. MissingError, or OSError for a full disk."""
    failures: list[str] = []
    for mirror in mirrors():
        shutil.rmtree(place.system, ignore_errors=True)
        failure = _bootstrap(recipe, place, mirror, log=log, heard=heard, tick=tick)
        if not failure:
            return _interpreter(recipe, place)
        failures.append(failure)
        if not _NOT_THERE.match(failure):
            break
    told = " and then: ".join(failure.removeprefix("E: ") for failure in failures)
    see = "is there a network? See" if len(failures) > 1 else "see"
    raise MissingError(f"cannot make {recipe.name}: {told}; {see} {place.log}")


def installed_debs(system: Path, names: Sequence[str]) -> dict[str, str]:
    """The versions of Debian's packages, of those that are there."""
    versions: dict[str, str] = {}
    package = ""
    for line in (system / "var/lib/dpkg/status").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(": ")
        if key == "Package":
            package = value
        elif key == "Version" and package in names:
            versions[LOCKED + package] = value
    return versions


def _require_mounting(name: str) -> None:
    """In a container root may be forbidden to mount."""
    said: list[str] = []
    if run([str(_tool("unshare")), "--mount", "true"], variables=_variables(), folder=Path("/"), line=said.append) != 0:
        why = " ".join(said)
        raise MissingError(
            f"cannot make {name}: root may not mount here ({why}); docker run --cap-add SYS_ADMIN allows it"
        )


def _bootstrap(
    recipe: Recipe, place: Place, mirror: str, *, log: BinaryIO, heard: Heard, tick: Callable[[], None]
) -> str:
    """Why it failed, if it did."""
    said: list[str] = []

    def line(text: str) -> None:
        said.append(text)
        keep(log, text)
        match = _SAID.match(text)
        if match and match[1] in _STAGES:
            heard(_STAGES[match[1]], match[2].removesuffix("..."))

    include = f"--include={','.join(recipe.packages)}"
    what = [recipe.suite, str(place.system), *([mirror] if mirror else [])]
    command = [str(_tool("unshare")), "--mount", str(_tool("debootstrap")), "--variant=minbase", include, *what]
    keep(log, f"$ {without_password(' '.join(command))}")
    code = run(command, variables=_variables(), folder=place.folder, line=line, tick=tick)
    if code == 0:
        return ""
    said += _its_log(place, log)
    full = full_disk(said)
    if full is not None:
        raise full
    errors = [text for text in said if text.startswith("E: ")]
    return without_password(errors[-1] if errors else last_word(said, code))


def _its_log(place: Place, log: BinaryIO) -> list[str]:
    """What the programs said that debootstrap ran, for the log that stays."""
    try:
        text = (place.system / "debootstrap" / "debootstrap.log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    keep(log, text)
    return [line for line in text.splitlines() if not line.startswith("E: ")]


def _interpreter(recipe: Recipe, place: Place) -> Path:
    python = place.system / "usr" / "bin" / f"python{recipe.python[0]}"
    if not python.exists():
        raise MissingError(f"{recipe.name} was installed without Python {recipe.python[0]}; its recipe is wrong")
    return python


def _variables() -> Mapping[str, str]:
    kept = {name: value for name, value in clean_variables().items() if name not in _ASTRAY}
    return {**kept, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive", "DPKG_FORCE": "unsafe-io"}


def _tool(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([*os.get_exec_path(), *_SYSTEM_TOOLS]))
