"""An environment has one version of one framework. This module names it and starts processes in it.

A name is FRAMEWORK@VERSION or FRAMEWORK@VERSION-VARIANT, as in tensorflow@1.12.0-intel.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import force_setattr

from deepstone.backends.registry import Language

# own: the interpreter that runs Deepstone; venv and chroot: built from a recipe; adopted: built and owned by others
Kind: TypeAlias = Literal["own", "venv", "chroot", "adopted"]

# They make an interpreter import packages of another one, so processes in a venv or chroot start without them.
STRAYING = ("PYTHONPATH", "PYTHONHOME")
# They make a program of one system use libraries and programs of another.
_STRAYING_SYSTEMS: Final = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PATH")

# Only root can enter a chroot.
AS_ROOT: Final = "run deepstone as root, as in: sudo deepstone …"
_ENTER: Final = Path(__file__).with_name("enter.py")

# This also protects the file system from names that users give.
NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,40}@[A-Za-z0-9][A-Za-z0-9.+_-]{0,80}")
LONGEST_NAME: Final = 100


def framework_of(name: str) -> str:
    return name.partition("@")[0]


def label_of(name: str) -> str:
    """Return the part after the framework: version, build tag, variant."""
    return name.partition("@")[2]


def base_version(version: str) -> str:
    """Return the version without its build tag: 2.13.0 for 2.13.0+cpu."""
    return version.partition("+")[0]


def newness(version: str) -> tuple[int, ...]:
    """Return a sort key: the numbers of the version; a release candidate counts as its release."""
    release = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    return tuple(map(int, release[0].split("."))) if release else ()


def names_version(name: str, framework: str, version: str) -> bool:
    """Whether the name means this version or a variant of it, so that a run under it matches the request."""
    plain = f"{framework}@{base_version(version)}"
    return name in (plain, f"{framework}@{version}") or name.startswith(f"{plain}-")


class Environment(Struct, frozen=True, kw_only=True):
    """`lock` names the versions that decide what is measured; two environments with equal locks are interchangeable."""

    framework: str
    version: str
    program: Path  # the interpreter that runs workers
    lock: Mapping[str, str]
    name: str = ""  # FRAMEWORK@VERSION, with -VARIANT if a version has several
    kind: Kind = "own"
    variables: Mapping[str, str] = field(default_factory=dict[str, str])  # variables that the framework needs
    language: Language = "python"  # of the program

    def __post_init__(self) -> None:
        if not self.name:
            force_setattr(self, "name", f"{self.framework}@{self.version}")

    @property
    def sha(self) -> str:
        text = json.dumps(dict(self.lock), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def command(self) -> tuple[str, ...]:
        """Return the words before a script and its arguments. In a chroot the interpreter has another path."""
        if self.system is None:
            return (str(self.program),)
        inside = Path("/", self.program.relative_to(self.system))
        return (sys.executable, "-I", "-S", str(_ENTER), str(self.system), str(inside))

    @property
    def system(self) -> Path | None:
        """Return the root of the interpreter's chroot, if it has one."""
        return self.program.parents[2] if self.kind == "chroot" else None  # it is ROOT/usr/bin/python

    @property
    def program_version(self) -> str:
        """Return the version of Python; of another interpreter also its name."""
        return self.lock[self.language]

    @property
    def program_name(self) -> str:
        """Return the interpreter with its version, as people call it."""
        return f"Python {self.program_version}" if self.language == "python" else self.program_version

    @property
    def is_plain(self) -> bool:
        """Whether it is the version itself, not a variant."""
        return base_version(label_of(self.name)) == base_version(self.version)

    @property
    def can_use_gpu(self) -> bool:
        """By what can be known without starting it: a build for CPUs alone says so in its version, as in 2.13.0+cpu."""
        return "+cpu" not in self.version and "+cpu" not in self.lock.get(self.framework, "")

    @property
    def newness(self) -> tuple[tuple[int, ...], bool]:
        """Return a sort key: the newest version is the greatest, and a version is greater than its variants."""
        return newness(self.version), self.is_plain

    def is_meant_by(self, label: str) -> bool:
        """Whether FRAMEWORK@LABEL means this one: by its full name, or by the version number if it is no variant."""
        return label == label_of(self.name) or (self.is_plain and label in (self.version, base_version(self.version)))

    def variables_over(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a process in this environment; `given` are the user's."""
        dropped = {"venv": STRAYING, "chroot": (*STRAYING, *_STRAYING_SYSTEMS)}.get(self.kind, ())
        variables = {name: value for name, value in given.items() if name not in dropped}
        if self.kind == "chroot":
            variables["PYTHONNOUSERSITE"] = "1"  # the user's own packages are for this machine's Python
        return {**variables, **self.variables}
