"""Finds an interpreter of a version that a recipe can use: this one, on PATH, of pyenv, or where systems put them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deepstone.environments.child import ChildTimeout, run
from deepstone.environments.environment import STRAYING
from deepstone.environments.names import newness
from deepstone.errors import MissingError

_TIMEOUT_S: Final = 30.0
# Built by hand, of a distribution's software collections, and as images for building wheels have them.
_COMMON: Final = (
    "usr/local/bin/python{0}",
    "opt/python{0}/bin/python{0}",
    "opt/python/{0}*/bin/python{0}",
    "opt/rh/rh-python*/root/usr/bin/python{0}",
)
_ASK: Final = (
    "import platform\n"
    "print('is ' + platform.python_version())\n"
    "import venv, ensurepip\n"  # Debian keeps what they need in a package of its own
    "print('can')\n"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Interpreter:
    path: Path
    version: str


def find_interpreter(versions: Sequence[str], name: str) -> Interpreter:
    """The first that runs and can make a venv; MissingError says what was looked for, where, and what to do."""
    lame: list[Interpreter] = []
    for version in versions:
        for path in _candidates(version):
            found, can = _asked(path, version)
            if found is not None and can:
                return found
            if found is not None:
                lame.append(found)
    if lame:
        first = lame[0]
        short = ".".join(first.version.split(".")[:2])
        raise MissingError(
            f"cannot make {name}: {first.path} has no venv module with pip; on Debian: apt install python{short}-venv"
        )
    framework = name.partition("@")[0]
    raise MissingError(
        f"cannot make {name}: no Python {_either(versions)} found (looked at this Python {_own_version()}, for "
        f"python{versions[0]} and the like on PATH, in {_pyenv_versions()}, /usr/local/bin and /opt); install "
        f"python{versions[0]} (pyenv install {versions[0]} builds any version), or adopt one that has {framework}: "
        f"deepstone env add {framework} --python PATH"
    )


def clean_variables() -> dict[str, str]:
    """Ours, without those that would lead another interpreter to packages that are not its own."""
    return {name: value for name, value in os.environ.items() if name not in STRAYING}


def _candidates(version: str) -> Iterator[Path]:
    if version == ".".join(_own_version().split(".")[:2]):
        yield Path(sys.executable)
    for folder in os.get_exec_path():
        path = Path(folder) / f"python{version}"
        if folder and os.access(path, os.X_OK):
            yield path
    yield from _elsewhere(version)


def _elsewhere(version: str) -> Iterator[Path]:
    installed = _pyenv_versions().glob(f"{version}.*")
    for folder in sorted(installed, key=lambda folder: newness(folder.name), reverse=True):
        yield folder / "bin" / "python"
    for pattern in _COMMON:
        for path in sorted(Path("/").glob(pattern.format(version))):
            if os.access(path, os.X_OK):
                yield path


def _asked(path: Path, version: str) -> tuple[Interpreter | None, bool]:
    """What it says it is, and whether it can make a venv. A name on PATH may be a shim that leads nowhere."""
    said: list[str] = []
    try:
        run(
            [str(path), "-c", _ASK],
            variables=clean_variables(),
            folder=Path("/"),
            line=said.append,
            timeout_s=_TIMEOUT_S,
        )
    except (OSError, ChildTimeout):
        return None, False
    told = [line.removeprefix("is ") for line in said if line.startswith(f"is {version}.")]
    return (Interpreter(path=path, version=told[0]) if told else None), "can" in said


def _own_version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def _pyenv_versions() -> Path:
    return Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"


def _either(versions: Sequence[str]) -> str:
    *first, last = versions
    return f"{', '.join(first)} or {last}" if first else last
