"""Asks an installation what it has, by running it: the versions, and of what its users built also the libraries.

A program that only looks like an interpreter may hang or print without end. So a quick check that it is one comes
first, and everything has limits on time and output.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from deepstone.backends.registry import BackendInfo, Language
from deepstone.errors import MissingError, reason, shown
from deepstone.supervise import OutputFlood, ProcessTimeout, run_program

_START_TIMEOUT_S: Final = 60.0  # of the interpreter only, on a loaded machine with a cold network file system
_TIMEOUT_S: Final = 300.0  # a large framework on such a file system takes minutes to import
_MOST_PRINTED_BYTES: Final = 2**20  # no framework prints this much on import
_MOST_ANSWERED_BYTES: Final = 16 * 2**20
_LAST_LINES: Final = 20
_LONGEST_QUOTE: Final = 300
_NOT_FOUND: Final = re.compile(r"(ModuleNotFoundError|ImportError: No module)|module '[^']*' not found")
_SHA_DIGITS: Final = 16

LIBRARY: Final = "library:"  # prefix in a lock that separates shared libraries, by hash, from packages
# What computes for a framework; other libraries of the system come and go without an effect on its speed.
_COMPUTES: Final = re.compile(r"lib\w*(blas|lapack|mkl|blis|atlas|[gi]omp)|lib(TH|torch|luaT)|(mklEngine|cmath)\.so")


class _Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """How a language is probed."""

    name: str  # of the language
    article: str
    check: tuple[str, ...]  # arguments with which it prints `name` and its version
    script: Path  # runs inside it: RESULT_FILE PACKAGE PART LIBRARIES, and writes an _Answer

    def arguments(self) -> list[str]:
        """Python runs the script's text, since its own folder would come first on the path otherwise."""
        return ["-c", self.script.read_text(encoding="utf-8")] if self.script.suffix == ".py" else [str(self.script)]


_INTERPRETERS: Final[dict[Language, _Interpreter]] = {
    "python": _Interpreter(
        name="Python",
        article="a Python",
        check=("-c", "import sys; sys.stdout.write('Python %d.%d\\n' % sys.version_info[:2])"),
        script=Path(__file__).with_name("inside.py"),
    ),
    "lua": _Interpreter(
        name="LuaJIT",
        article="a LuaJIT",
        check=("-e", "io.write(jit.version, '\\n')"),
        script=Path(__file__).with_name("inside.lua"),
    ),
}


class Probed(msgspec.Struct, frozen=True, kw_only=True):
    """The versions of the framework, of its interpreter and of every distribution; libraries by their hashes."""

    version: str
    lock: Mapping[str, str]


class _Answer(msgspec.Struct, frozen=True):
    """What a script wrote. `versions` and `failures`: of the framework and of what it needs, by import name."""

    program: str
    versions: dict[str, str]
    failures: dict[str, str]
    distributions: dict[str, str]
    libraries: list[str] = []
    folders: dict[str, str] = {}  # of source code without a version, by name


def probe(command: Sequence[str], info: BackendInfo, variables: Mapping[str, str]) -> Probed:
    """Raises MissingError, without a remedy, if it does not run or lacks the framework or what that needs."""
    interpreter = _INTERPRETERS[info.language]
    found = _answer(interpreter, command, info, variables)
    for name in sorted(found.failures, key=[info.package, info.part, *found.failures].index):
        where = f"{command[-1]} ({_named(interpreter, found.program)})"
        raise MissingError(f"{where} {_lacking(name, found.failures[name])}{_another(info, name, found)}")
    version = found.versions[info.package] or info.only_version
    lock = {**found.distributions, info.language: found.program}
    lock.setdefault(info.package, version)  # without metadata, use the versions of the modules
    for name, told in found.versions.items():
        if told:
            lock.setdefault(name, told)
    if info.built_by_users:
        lock |= _hashes(found)
    return Probed(version=version, lock=dict(sorted(lock.items())))


def _answer(
    interpreter: _Interpreter, command: Sequence[str], info: BackendInfo, variables: Mapping[str, str]
) -> _Answer:
    with tempfile.TemporaryDirectory(prefix="deepstone-probe-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        target = folder / "found.json"
        code, output = _run(command, interpreter.check, variables, folder, _START_TIMEOUT_S)
        if code != 0 or not any(line.startswith(f"{interpreter.name} ") for line in output):
            raise MissingError(f"{command[-1]} {_no_interpreter(interpreter, code, output)}")
        words = [str(target), info.package, info.part, "1" if info.built_by_users else ""]
        code, output = _run(command, [*interpreter.arguments(), *words], variables, folder, _TIMEOUT_S)
        try:
            with target.open("rb") as file:
                return msgspec.json.decode(file.read(_MOST_ANSWERED_BYTES), type=_Answer)
        except (OSError, ValueError):
            raise MissingError(f"{command[-1]} {_died(code, output, info.package)}") from None


def _run(
    command: Sequence[str], arguments: Sequence[str], variables: Mapping[str, str], folder: Path, timeout_s: float
) -> tuple[int, Sequence[str]]:
    """Return the exit code and the last lines of output, within limits on time and output."""
    program = command[-1]
    output: deque[str] = deque(maxlen=_LAST_LINES)
    try:
        code = run_program(
            [*command, *arguments],
            env=variables,
            cwd=folder,
            on_line=output.append,
            timeout_s=timeout_s,
            most_bytes=_MOST_PRINTED_BYTES,
        )
    except ProcessTimeout:
        raise MissingError(f"{program} did not answer within {timeout_s:g} s") from None
    except OutputFlood:
        raise MissingError(f"{program} prints without end and does not answer") from None
    except OSError as error:
        raise MissingError(f"{program} cannot be run: {reason(error)}") from error
    return code, output


def _hashes(found: _Answer) -> dict[str, str]:
    """Return hashes of the libraries that compute, and of source code that has no version. What its users built has no
    other name: two builds of one version may be of different speed."""
    hashes = {LIBRARY + Path(path).name: _sha([Path(path)]) for path in found.libraries if _computes(path)}
    return hashes | {name: _sha(sorted(Path(folder).glob("*.lua"))) for name, folder in found.folders.items()}


def _computes(path: str) -> bool:
    return _COMPUTES.match(Path(path).name) is not None


def _sha(paths: Sequence[Path]) -> str:
    sha = hashlib.sha256()
    try:
        for path in paths:
            sha.update(path.read_bytes())
    except OSError as error:
        raise MissingError(f"cannot read {error.filename}: {reason(error)}") from error
    return f"sha256:{sha.hexdigest()[:_SHA_DIGITS]}"


def _named(interpreter: _Interpreter, version: str) -> str:
    return version if version.startswith(interpreter.name) else f"{interpreter.name} {version}"


def _lacking(name: str, failure: str) -> str:
    if (match := _NOT_FOUND.search(failure)) and name in failure[match.start() :][:200]:
        return f"has no {name}"
    return f"cannot import {name}: {' '.join(failure.split())[:_LONGEST_QUOTE]}"


def _another(info: BackendInfo, name: str, found: _Answer) -> str:
    """Say so if another package has the framework's name."""
    if name != info.part or not found.versions.get(info.package):
        return ""
    return f"; what it calls {info.package} {found.versions[info.package]} is something else"


def _died(code: int, output: Sequence[str], package: str) -> str:
    if code < 0:
        return f"was ended by signal {-code} while it imported {package}{_last(output)}"
    return f"exited with code {code} while it imported {package}{_last(output)}"


def _no_interpreter(interpreter: _Interpreter, code: int, output: Sequence[str]) -> str:
    ended = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    return f"is not {interpreter.article} that runs ({ended}){_last(output)}"


def _last(output: Sequence[str]) -> str:
    """Return its last line of output, for a message of one line."""
    return f": {shown(' '.join(output[-1].split())[:_LONGEST_QUOTE])}" if output else ""
