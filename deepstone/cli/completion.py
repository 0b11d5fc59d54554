"""Tab completion: models, axes, the values of an axis, runs and environments."""

from __future__ import annotations

import glob
import io
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

from deepstone.errors import DeepstoneError, UsageError
from deepstone.setups.axes import AXES, Axis

VARIABLE: Final = "_DEEPSTONE_COMPLETE"  # the shell sets it to request completions

_MOST_RUNS: Final = 100  # in the list that a shell shows
_BREAKS: Final = ("=", ":")  # at which bash, unlike other shells, splits a word


def complete_model(incomplete: str) -> list[str]:
    from deepstone.models.zoo import ZOO

    return [name for name in ZOO.names() if name.startswith(incomplete)]


def complete_axis(incomplete: str) -> list[str]:
    name, equals, typed = incomplete.partition("=")
    if equals:
        return _values(AXES[name], typed) if name in AXES else []
    found = [axis for axis in AXES.values() if axis.name.startswith(name)]
    words = [f"{axis.name}=" for axis in found]
    # A shell adds a space after the only candidate, so the last axis comes with its values.
    return words + _values(found[0], "") if len(found) == 1 else words


def complete_run(ctx: Any, incomplete: str) -> list[str]:
    """Return ids of runs in the store that the command line names, newest first."""
    from deepstone.store.layout import default_folder

    named: Path | str | None = ctx.params.get("store")
    folder = default_folder() if named is None else Path(named).expanduser()
    found = sorted((folder / "runs").glob(f"*/{glob.escape(incomplete)}*.json"), key=_changed_at, reverse=True)
    return [path.stem for path in found[:_MOST_RUNS]]


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # deleted meanwhile
        return 0.0


def complete_study(incomplete: str) -> list[str]:
    from deepstone.studies.find import builtin_names

    return [name for name in builtin_names() if name.startswith(incomplete)]


def complete_addable(incomplete: str) -> list[str]:
    from deepstone.environments.cookbook import addable, all_recipes

    try:
        names = addable(all_recipes())
    except DeepstoneError:  # the command itself reports a recipe that cannot be read
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_environment(incomplete: str) -> list[str]:
    from deepstone.environments.manifest import survey
    from deepstone.environments.places import environments_root

    try:
        found = survey(environments_root())
    except DeepstoneError:
        return []
    return [each.environment.name for each in found.made if each.environment.name.startswith(incomplete)]


def _values(axis: Axis, typed: str) -> list[str]:
    before, comma, last = typed.rpartition(",")
    words = [word for word in dict.fromkeys([*axis.offered(), str(axis.default)]) if word not in before.split(",")]
    return [f"{axis.name}={before}{comma}{word}" for word in words if word.startswith(last) and _is_value(axis, word)]


def _is_value(axis: Axis, word: str) -> bool:
    """Whether the word is a valid value: some words of an axis are only examples of the form."""
    try:
        axis.parse(word)
    except UsageError:
        return False
    return True


def answer_shell(answer: Callable[[], object]) -> None:
    """Have typer answer the shell, after joining words that bash splits: `layout=n` is three words to it."""
    if os.environ[VARIABLE] != "complete_bash":
        answer()
        return
    words, position = os.environ["COMP_WORDS"].split("\n"), int(os.environ["COMP_CWORD"])
    joined, current = _joined(words[: position + 1])
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = "\n".join(joined), str(len(joined) - 1)
    offered = io.StringIO()
    try:
        with redirect_stdout(offered):
            answer()  # ends in SystemExit
    finally:
        sys.stdout.write("".join(line[len(current) :] for line in offered.getvalue().splitlines(keepends=True)))


def _joined(words: list[str]) -> tuple[list[str], str]:
    """Return the words as the user typed them, and the part of the last one before bash's last break."""
    joined: list[str] = []
    continues = False
    prefix = ""
    for word in words:
        is_break = word in _BREAKS
        if joined and (is_break or continues):
            prefix = joined[-1] + (word if is_break else "")
            joined[-1] += word
        else:
            joined.append(word)
            prefix = ""
        continues = is_break
    return joined, prefix
