"""Where Debian's packages come from on this machine: where its own apt gets them, if it is a Debian."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Old releases move there when their support ends.
ARCHIVE: Final = "http://archive.debian.org/debian"
_ONE_LINE: Final = re.compile(r"deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)\s+(.+)")
_USABLE: Final = ("http://", "https://")  # debootstrap knows no others that apt knows


@dataclass(frozen=True, kw_only=True, slots=True)
class _Source:
    address: str
    suites: tuple[str, ...]
    components: tuple[str, ...]


def mirrors(root: Path = Path("/")) -> list[str]:
    """In the order in which to try them; "" is the one that debootstrap would take by itself."""
    return [_own_mirror(root), ARCHIVE]


def without_password(address: str) -> str:
    """Fit to be shown."""
    return re.sub(r"//[^/@]*@", "//", address)


def _own_mirror(root: Path) -> str:
    """The main archive of a Debian. Other distributions have other packages, and further sources are not Debian's."""
    pairs = (line.partition("=") for line in _lines(root / "etc/os-release"))
    release = {name: value.strip('"') for name, _, value in pairs}
    if release.get("ID") != "debian":
        return ""
    suites = {release.get("VERSION_CODENAME", ""), "stable", "testing", "unstable", "sid"}
    for source in _sources(root / "etc/apt"):
        if suites & set(source.suites) and "main" in source.components and source.address.startswith(_USABLE):
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
        match = _ONE_LINE.match(line.partition("#")[0].strip())
        if match:
            yield _Source(address=match[1], suites=(match[2],), components=tuple(match[3].split()))


def _of_paragraphs(path: Path) -> Iterator[_Source]:
    kept = [line for line in _lines(path) if not line.startswith("#")]
    for paragraph in re.split(r"\n\s*\n", "\n".join(kept)):
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
    except OSError:  # not a Debian, or not for us to read
        return []
