"""Calls pip and understands what it says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from deepstone.environments.child import run
from deepstone.environments.complaints import full_disk, last_word
from deepstone.environments.interpreters import clean_variables
from deepstone.environments.recipe import Step

# They would have pip install somewhere else than into the environment.
_ASTRAY: Final = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_PYTHON", "PIP_REQUIREMENT", "PIP_EDITABLE")
_COLLECTING: Final = re.compile(r"Collecting ([^\s=(]+)(?:==([^\s(]+))?")
_PROCESSING: Final = re.compile(r"Processing (?:\S*/)?([^/\s]+?)-([0-9][^-\s]*)[^/\s]*$")
_BUILDING: Final = re.compile(r"\s*Building wheels? for (?:collected packages: )?([^\s(]+)")

Heard: TypeAlias = Callable[[str, str], None]


class PipFailed(Exception):
    """pip gave up; the message is its own last word."""


def pip_install(
    python: Path, step: Step, *, temporary: Path, log: BinaryIO, heard: Heard, tick: Callable[[], None]
) -> None:
    """One step. Calls `heard` with a stage and what it is busy with. PipFailed, or OSError for a full disk."""
    if step.pip:
        _call(python, ["--no-deps", f"pip=={step.pip}"], temporary=temporary, log=log, heard=heard, tick=tick)
    words = [*step.options, *step.packages]
    if not step.dependencies:
        words.insert(0, "--no-deps")
    _call(python, words, temporary=temporary, log=log, heard=heard, tick=tick)


def _call(
    python: Path, words: list[str], *, temporary: Path, log: BinaryIO, heard: Heard, tick: Callable[[], None]
) -> None:
    command = [
        str(python),
        "-m",
        "pip",
        "install",
        "--no-input",
        "--disable-pip-version-check",
        "--progress-bar",
        "off",
    ]
    said: list[str] = []

    def line(text: str) -> None:
        said.append(text)
        keep(log, text)
        stage = _stage(text)
        if stage:
            heard(*stage)

    keep(log, f"$ {' '.join([*command, *words])}")
    code = run([*command, *words], variables=_variables(temporary), folder=temporary, line=line, tick=tick)
    if code != 0:
        raise full_disk(said) or PipFailed(last_word(said, code))


def keep(log: BinaryIO, text: str) -> None:
    """One line for the log."""
    log.write(text.encode("utf-8", "replace") + b"\n")
    log.flush()


def _variables(temporary: Path) -> Mapping[str, str]:
    """pip keeps its own configuration. What it unpacks lies in the environment's folder and goes away with it."""
    given = {name: value for name, value in clean_variables().items() if name not in _ASTRAY}
    return {**given, "TMPDIR": str(temporary), "PYTHONNOUSERSITE": "1", "PYTHONUNBUFFERED": "1"}


def _stage(text: str) -> tuple[str, str] | None:
    if match := _COLLECTING.match(text) or _PROCESSING.match(text):
        return "downloading", f"{match[1]} {match[2] or ''}".strip()
    if match := _BUILDING.match(text):
        return "building", match[1].rstrip(",")
    if text.startswith("Installing collected packages:"):
        packages = text.partition(":")[2].split(",")
        return "installing", packages[0].strip() if len(packages) == 1 else f"{len(packages)} packages"
    return None
