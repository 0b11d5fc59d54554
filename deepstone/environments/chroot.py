"""Chroot environments are built with debootstrap: an old Debian, for a framework that runs nowhere else.

`enter.py` runs programs in them. If this machine is a Debian, the packages come from the mirror of its own apt.

debootstrap mounts file systems. It runs in its own mount namespace, so that a kill at any moment leaves nothing
mounted.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from deepstone.environments.environment import AS_ROOT
from deepstone.environments.installer import Installer, InstallerFailed, Stage, full_disk
from deepstone.environments.interpreters import clean_variables
from deepstone.environments.places import Place
from deepstone.environments.recipe import Recipe
from deepstone.errors import MissingError
from deepstone.supervise import run_program

LOCKED: Final = "debian:"  # prefix in a lock that separates Debian's packages from Python's
_SYSTEM_TOOLS: Final = ("/usr/sbin", "/sbin")  # not on every user's PATH
_DROPPED_VARIABLES: Final = (
    "TMPDIR",
    "TMP",
    "TEMP",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
)  # they point to files outside the new system
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

# Debian moves old releases there when their support ends.
ARCHIVE: Final = "http://archive.debian.org/debian"
_SOURCE_LINE: Final = re.compile(r"deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)\s+(.+)")
_USABLE_MIRRORS: Final = ("http://", "https://")  # apt supports more kinds, debootstrap does not


def require_tools(name: str) -> None:
    """Raise MissingError before anything is downloaded."""
    if os.geteuid() != 0:
        raise MissingError(f"cannot make {name}: it is a Debian of its own, which takes root to make; {AS_ROOT}")
    for tool, package in (("debootstrap", "debootstrap"), ("unshare", "util-linux")):
        if _tool(tool) is None:
            raise MissingError(
                f"cannot make {name}: {tool} is not installed; on Debian or Ubuntu: apt install {package}"
            )
    _require_mounting(name)


def build_chroot(recipe: Recipe, place: Place, installer: Installer) -> Path:
    """Build from the first mirror that works; return the interpreter. Raises MissingError, or OSError for a full
    disk."""
    failures: list[str] = []
    for mirror in mirrors():
        shutil.rmtree(place.system, ignore_errors=True)
        failure = _bootstrap(recipe, place, mirror, installer)
        if not failure:
            return _interpreter(recipe, place)
        failures.append(failure)
        if not _NOT_THERE.match(failure):
            break
    reasons = " and then: ".join(failure.removeprefix("E: ") for failure in failures)
    see = "is there a network? See" if len(failures) > 1 else "see"
    raise MissingError(f"cannot make {recipe.name}: {reasons}; {see} {place.log}")


def installed_debs(system: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the versions of those Debian packages that are installed."""
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
    """Check that root may mount, which a container may forbid."""
    output: list[str] = []
    command = [str(_tool("unshare")), "--mount", "true"]
    if run_program(command, env=_variables(), cwd=Path("/"), on_line=output.append) != 0:
        why = " ".join(output)
        raise MissingError(
            f"cannot make {name}: root may not mount here ({why}); docker run --cap-add SYS_ADMIN allows it"
        )


def _bootstrap(recipe: Recipe, place: Place, mirror: str, installer: Installer) -> str:
    """Run debootstrap. Return why it failed, or an empty text."""
    include = f"--include={','.join(recipe.packages)}"
    what = [recipe.suite, str(place.system), *([mirror] if mirror else [])]
    command = [str(_tool("unshare")), "--mount", str(_tool("debootstrap")), "--variant=minbase", include, *what]
    shown = without_password(" ".join(command))
    try:
        installer.run(command, env=_variables(), cwd=place.folder, stage_of=_stage, shown=shown)
    except InstallerFailed as failure:
        more = _debootstrap_log(place, installer)
        if full := full_disk(more):
            raise full from failure
        errors = [text for text in failure.output if text.startswith("E: ")]
        reason = errors[-1] if errors else str(InstallerFailed([*failure.output, *more], failure.code))
        return without_password(reason)
    return ""


def _stage(text: str) -> Stage | None:
    match = _SAID.match(text)
    return (_STAGES[match[1]], match[2].removesuffix("...")) if match and match[1] in _STAGES else None


def _debootstrap_log(place: Place, installer: Installer) -> list[str]:
    """Copy the output of the programs that debootstrap ran into the permanent log."""
    try:
        text = (place.system / "debootstrap" / "debootstrap.log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    installer.log(text)
    return [line for line in text.splitlines() if not line.startswith("E: ")]


def _interpreter(recipe: Recipe, place: Place) -> Path:
    python = place.system / "usr" / "bin" / f"python{recipe.python[0]}"
    if not python.exists():
        raise MissingError(f"{recipe.name} was installed without Python {recipe.python[0]}; its recipe is wrong")
    return python


def _variables() -> Mapping[str, str]:
    variables = {name: value for name, value in clean_variables().items() if name not in _DROPPED_VARIABLES}
    return {**variables, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive", "DPKG_FORCE": "unsafe-io"}


def _tool(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([*os.get_exec_path(), *_SYSTEM_TOOLS]))


class _Source(Struct, frozen=True, kw_only=True):
    """One entry of apt's sources."""

    address: str
    suites: tuple[str, ...]
    components: tuple[str, ...]


def mirrors(root: Path = Path("/")) -> list[str]:
    """Return the mirrors to try, in order; "" is debootstrap's default."""
    return [_own_mirror(root), ARCHIVE]


def without_password(address: str) -> str:
    """Remove the password, so that the address can be shown."""
    return re.sub(r"//[^/@]*@", "//", address)


def _own_mirror(root: Path) -> str:
    """Return the main archive of a Debian; empty for other distributions and other sources."""
    pairs = (line.partition("=") for line in _lines(root / "etc/os-release"))
    release = {name: value.strip('"') for name, _, value in pairs}
    if release.get("ID") != "debian":
        return ""
    suites = {release.get("VERSION_CODENAME", ""), "stable", "testing", "unstable", "sid"}
    for source in _sources(root / "etc/apt"):
        if suites & set(source.suites) and "main" in source.components and source.address.startswith(_USABLE_MIRRORS):
            return source.address.rstrip("/")
    return ""


def _sources(folder: Path) -> Iterator[_Source]:
    further = sorted((folder / "sources.list.d").glob("*"))
    for path in [folder / "sources.list", *further]:
        if path.suffix == ".list":
            yield from _of_lines(path)
        elif path.suffix == ".sources":
            yield from _of_paragraphs(path)


def _of_lines(path: Path) -> Iterator[_Source]:
    for line in _lines(path):
        match = _SOURCE_LINE.match(line.partition("#")[0].strip())
        if match:
            yield _Source(address=match[1], suites=(match[2],), components=tuple(match[3].split()))


def _of_paragraphs(path: Path) -> Iterator[_Source]:
    lines = [line for line in _lines(path) if not line.startswith("#")]
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines)):
        joined = re.sub(r"\n[ \t]+", " ", paragraph)
        fields = {
            key.strip().lower(): value.split()
            for key, _, value in (each.partition(":") for each in joined.splitlines())
        }
        if "deb" in fields.get("types", []) and fields.get("enabled") != ["no"]:
            for address in fields.get("uris", []):
                suites, components = fields.get("suites", []), fields.get("components", [])
                yield _Source(address=address, suites=tuple(suites), components=tuple(components))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not a Debian, or not readable
        return []
