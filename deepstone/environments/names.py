"""Names of environments: FRAMEWORK@VERSION or FRAMEWORK@VERSION-VARIANT, as in tensorflow@1.12.0-intel."""

from __future__ import annotations

import re
from typing import Final

# Also the wall between a name that someone gave and the file system.
NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,40}@[A-Za-z0-9][A-Za-z0-9.+_-]{0,80}")


def framework_of(name: str) -> str:
    return name.partition("@")[0]


def label_of(name: str) -> str:
    """What follows the framework: version, build tag, variant."""
    return name.partition("@")[2]


def base_version(version: str) -> str:
    """Without the tag of a build: 2.13.0 for 2.13.0+cpu."""
    return version.partition("+")[0]


def newness(version: str) -> tuple[int, ...]:
    """Sorts versions by their numbers; a candidate of a release counts as that release."""
    release = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    return tuple(map(int, release[0].split("."))) if release else ()


def names_version(name: str, framework: str, version: str) -> bool:
    """Whether the name stands for this version or a variant of it, so that a run under it is what was asked for."""
    plain = f"{framework}@{base_version(version)}"
    return name in (plain, f"{framework}@{version}") or name.startswith(f"{plain}-")
