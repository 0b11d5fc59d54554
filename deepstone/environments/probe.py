"""Asks an interpreter, by running it once, what it has: its version, the framework, NumPy, all distributions."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deepstone.environments.child import ChildTimeout, run
from deepstone.errors import MissingError
from deepstone.faults import reason

_SCRIPT: Final = Path(__file__).with_name("inside.py")
_TIMEOUT_S: Final = 300.0  # a large framework on a cold network file system takes minutes


@dataclass(frozen=True, kw_only=True, slots=True)
class Probed:
    version: str  # of the framework
    lock: Mapping[str, str]  # Python and every distribution


def probe(command: Sequence[str], package: str, variables: Mapping[str, str]) -> Probed:
    """MissingError, in one line without a remedy, when it does not run or lacks the framework or NumPy."""
    found = _ask(command, package, variables)
    for name in (package, "numpy"):
        if name not in found["versions"]:
            why = _lacking(name, str(found["failures"].get(name, "")))
            raise MissingError(f"{command[-1]} (Python {found['python']}) {why}")
    lock = {**found["distributions"], "python": found["python"]}
    lock.setdefault("numpy", found["versions"]["numpy"])  # without metadata the modules themselves must do
    lock.setdefault(package, found["versions"][package])
    return Probed(version=found["versions"][package], lock=dict(sorted(lock.items())))


def _ask(command: Sequence[str], package: str, variables: Mapping[str, str]) -> dict[str, Any]:
    said: list[str] = []
    with tempfile.TemporaryDirectory(prefix="deepstone-probe-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        target = folder / "found.json"
        script = _SCRIPT.read_text(encoding="utf-8")
        try:
            code = run(
                [*command, "-c", script, str(target), package],
                variables=variables,
                folder=folder,
                line=said.append,
                timeout_s=_TIMEOUT_S,
            )
        except ChildTimeout:
            raise MissingError(f"{command[-1]} did not answer within {_TIMEOUT_S:.0f} s") from None
        except OSError as error:
            raise MissingError(f"{command[-1]} cannot be run: {reason(error)}") from error
        try:
            return json.loads(target.read_bytes())
        except (OSError, ValueError):
            raise MissingError(f"{command[-1]} {_died(code, said, package)}") from None


def _lacking(name: str, failure: str) -> str:
    if failure.startswith(("ModuleNotFoundError", "ImportError: No module")) and name in failure:
        return f"has no {name}"
    return f"cannot import {name}: {' '.join(failure.split())}"


def _died(code: int, said: list[str], package: str) -> str:
    last = f": {' '.join(said[-1].split())}" if said else ""
    if code < 0:
        return f"was ended by signal {-code} while it imported {package}{last}"
    return f"is not a Python that runs (exit code {code}){last}"
