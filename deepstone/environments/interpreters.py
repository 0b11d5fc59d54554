"""Python interpreters: finds one with a version that a recipe can use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from deepstone.environments.environment import STRAYING, newness
from deepstone.errors import MissingError
from deepstone.supervise import OutputFlood, ProcessTimeout, run_program

# Built by hand, from a distribution's software collections, and from images for building wheels.
_COMMON: Final = (
    "usr/local/bin/python{0}",
    "opt/python{0}/bin/python{0}",
    "opt/python/{0}*/bin/python{0}",
    "opt/rh/rh-python*/root/usr/bin/python{0}",
)
_ASK: Final = (
    "import platform\n"
    "print('is ' + platform.python_version())\n"
    "import venv, ensurepip\n"  # Debian has their files in a separate package
    "print('can')\n"
)
_ASK_TIMEOUT_S: Final = 30.0
_MOST_PRINTED_BYTES: Final = 2**20


class Interpreter(Struct, frozen=True, kw_only=True):
    """A Python that was found; `version` is as in 3.11."""

    path: Path
    version: str


def find_interpreter(versions: Sequence[str], name: str) -> Interpreter:
    """Return the first that runs and can make a venv. Raises MissingError with the searched places and the remedy."""
    lame: list[Interpreter] = []
    for version in versions:
        for path in _candidates(version):
            found, can = _try(path, version)
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
    """Return our variables without those that make another interpreter import foreign packages."""
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


def _try(path: Path, version: str) -> tuple[Interpreter | None, bool]:
    """Return the interpreter with its version, and whether it can make a venv. A name on PATH may be a broken shim."""
    output: list[str] = []
    try:
        run_program(
            [str(path), "-c", _ASK],
            env=clean_variables(),
            cwd=Path("/"),
            on_line=output.append,
            timeout_s=_ASK_TIMEOUT_S,
            most_bytes=_MOST_PRINTED_BYTES,
        )
    except (OSError, ProcessTimeout, OutputFlood):
        return None, False
    found = [line.removeprefix("is ") for line in output if line.startswith(f"is {version}.")]
    return (Interpreter(path=path, version=found[0]) if found else None), "can" in output


def _own_version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def _pyenv_versions() -> Path:
    return Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"


def _either(versions: Sequence[str]) -> str:
    *first, last = versions
    return f"{', '.join(first)} or {last}" if first else last
