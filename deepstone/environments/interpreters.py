"""Python interpreters: finds one with a version that a recipe can use, and probes one by running it.

A program that only looks like a Python may hang or print without end. So `probe` first runs a quick check that it is a
Python.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from deepstone.environments.environment import STRAYING, newness
from deepstone.errors import MissingError, reason, shown
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

_SCRIPT: Final = Path(__file__).with_name("inside.py")
_IS_PYTHON: Final = "import sys; sys.stdout.write('Python %d.%d\\n' % sys.version_info[:2])"
_START_TIMEOUT_S: Final = 60.0  # of the interpreter only, on a loaded machine with a cold network file system
_TIMEOUT_S: Final = 300.0  # a large framework on such a file system takes minutes to import
_MOST_PRINTED_BYTES: Final = 2**20  # no framework prints this much on import
_MOST_ANSWERED_BYTES: Final = 16 * 2**20
_LAST_LINES: Final = 20
_LONGEST_QUOTE: Final = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Interpreter:
    """A Python that was found; `version` is as in 3.11."""

    path: Path
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Probed:
    """The result of probing an interpreter: the versions of the framework, of Python and of every distribution."""

    version: str
    lock: Mapping[str, str]


class _Answer(msgspec.Struct, frozen=True):
    """The output of inside.py. `versions` and `failures`: of NumPy and the framework, by import name."""

    python: str
    versions: dict[str, str]
    failures: dict[str, str]
    distributions: dict[str, str]


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


def probe(command: Sequence[str], package: str, variables: Mapping[str, str]) -> Probed:
    """Raises MissingError, without a remedy, if it does not run or lacks the framework or NumPy."""
    found = _answer(command, package, variables)
    for name in (package, "numpy"):
        if name not in found.versions:
            why = _lacking(name, found.failures.get(name, ""))
            raise MissingError(f"{command[-1]} (Python {found.python}) {why}")
    lock = {**found.distributions, "python": found.python}
    lock.setdefault("numpy", found.versions["numpy"])  # without metadata, use the versions of the modules
    lock.setdefault(package, found.versions[package])
    return Probed(version=found.versions[package], lock=dict(sorted(lock.items())))


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


def _answer(command: Sequence[str], package: str, variables: Mapping[str, str]) -> _Answer:
    with tempfile.TemporaryDirectory(prefix="deepstone-probe-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        target = folder / "found.json"
        code, output = _run([*command, "-c", _IS_PYTHON], variables, folder, _START_TIMEOUT_S)
        if code != 0 or not any(line.startswith("Python ") for line in output):
            raise MissingError(f"{command[-1]} {_no_python(code, output)}")
        script = _SCRIPT.read_text(encoding="utf-8")
        code, output = _run([*command, "-c", script, str(target), package], variables, folder, _TIMEOUT_S)
        try:
            with target.open("rb") as file:
                return msgspec.json.decode(file.read(_MOST_ANSWERED_BYTES), type=_Answer)
        except (OSError, ValueError):
            raise MissingError(f"{command[-1]} {_died(code, output, package)}") from None


def _run(
    command: Sequence[str], variables: Mapping[str, str], folder: Path, timeout_s: float
) -> tuple[int, Sequence[str]]:
    """Return the exit code and the last lines of output, within limits on time and output."""
    python = command[command.index("-c") - 1]
    output: deque[str] = deque(maxlen=_LAST_LINES)
    try:
        code = run_program(
            command,
            env=variables,
            cwd=folder,
            on_line=output.append,
            timeout_s=timeout_s,
            most_bytes=_MOST_PRINTED_BYTES,
        )
    except ProcessTimeout:
        raise MissingError(f"{python} did not answer within {timeout_s:g} s") from None
    except OutputFlood:
        raise MissingError(f"{python} prints without end and does not answer") from None
    except OSError as error:
        raise MissingError(f"{python} cannot be run: {reason(error)}") from error
    return code, output


def _lacking(name: str, failure: str) -> str:
    if failure.startswith(("ModuleNotFoundError", "ImportError: No module")) and name in failure:
        return f"has no {name}"
    return f"cannot import {name}: {' '.join(failure.split())}"


def _died(code: int, output: Sequence[str], package: str) -> str:
    if code < 0:
        return f"was ended by signal {-code} while it imported {package}{_last(output)}"
    return f"exited with code {code} while it imported {package}{_last(output)}"


def _no_python(code: int, output: Sequence[str]) -> str:
    ended = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    return f"is not a Python that runs ({ended}){_last(output)}"


def _last(output: Sequence[str]) -> str:
    """Return its last line of output, for a message of one line."""
    return f": {shown(' '.join(output[-1].split())[:_LONGEST_QUOTE])}" if output else ""
