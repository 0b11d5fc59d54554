"""An environment holds one version of one framework; how it is named, and how a process is started in it.

A name is FRAMEWORK@VERSION or FRAMEWORK@VERSION-VARIANT, as in tensorflow@1.12.0-intel.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

# own: the interpreter that runs Deepstone; venv and chroot: built from a recipe; adopted: built by others, and theirs
Kind: TypeAlias = Literal["own", "venv", "chroot", "adopted"]

# They lead an interpreter to packages of another one, so a venv or a chroot is started without them.
STRAYING = ("PYTHONPATH", "PYTHONHOME")
# And these a program of one system to libraries and programs of another.
_STRAYING_SYSTEMS: Final = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PATH")

# Only root can enter a chroot.
AS_ROOT: Final = "run deepstone as root, as in: sudo deepstone …"
_ENTER: Final = Path(__file__).with_name("enter.py")

# Also the wall between a name that someone gave and the file system.
NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,40}@[A-Za-z0-9][A-Za-z0-9.+_-]{0,80}")
LONGEST_NAME: Final = 100


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """`lock` names the versions that decide what is measured; two environments with equal locks are interchangeable."""

    framework: str
    version: str
    python: Path
    lock: Mapping[str, str]
    name: str = ""  # FRAMEWORK@VERSION, with -VARIANT where there are several of a version
    kind: Kind = "own"
    variables: Mapping[str, str] = field(default_factory=dict[str, str])  # what the framework needs set to run well

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", f"{self.framework}@{self.version}")

    @property
    def sha(self) -> str:
        text = json.dumps(dict(self.lock), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def command(self) -> tuple[str, ...]:
        """The words before a script and its arguments. In a system of its own the interpreter has another path."""
        if self.system is None:
            return (str(self.python),)
        inside = Path("/", self.python.relative_to(self.system))
        return (sys.executable, "-I", "-S", str(_ENTER), str(self.system), str(inside))

    @property
    def system(self) -> Path | None:
        """The root of the system that the interpreter is part of, if that is not this machine's."""
        return self.python.parents[2] if self.kind == "chroot" else None  # it is ROOT/usr/bin/python

    @property
    def python_version(self) -> str:
        return self.lock["python"]

    @property
    def is_plain(self) -> bool:
        """Whether it is the version itself, and not a variant of it."""
        return base_version(label_of(self.name)) == base_version(self.version)

    @property
    def newness(self) -> tuple[tuple[int, ...], bool]:
        """Sorts environments of a framework: the newest version is the greatest, and before its variants."""
        return newness(self.version), self.is_plain

    def is_meant_by(self, label: str) -> bool:
        """Whether FRAMEWORK@LABEL names this one: by its own name, or the version itself by its number alone."""
        return label == label_of(self.name) or (self.is_plain and label in (self.version, base_version(self.version)))

    def variables_over(self, given: Mapping[str, str]) -> dict[str, str]:
        """The variables of a process in here, for a user who has set the given ones."""
        straying = {"venv": STRAYING, "chroot": (*STRAYING, *_STRAYING_SYSTEMS)}.get(self.kind, ())
        kept = {name: value for name, value in given.items() if name not in straying}
        if self.kind == "chroot":
            kept["PYTHONNOUSERSITE"] = "1"  # the user's own packages are for this machine's Python, as in a venv
        return {**kept, **self.variables}
