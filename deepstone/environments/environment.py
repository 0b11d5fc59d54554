"""One place that holds one version of one framework, and how a process is started in it."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from deepstone.environments.names import base_version, label_of, newness

# own: the interpreter that runs Deepstone; venv and chroot: made from a recipe; adopted: made by others, and left to
# them
Kind: TypeAlias = Literal["own", "venv", "chroot", "adopted"]

# They lead an interpreter to packages of another one, so what is complete in itself is started without them.
STRAYING = ("PYTHONPATH", "PYTHONHOME")
# And these a program of one system to libraries and programs of another.
_STRAYING_SYSTEMS: Final = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PATH")

# A system of its own is entered by root alone.
AS_ROOT: Final = "run deepstone as root, as in: sudo deepstone …"
_ENTER: Final = Path(__file__).with_name("enter.py")


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
