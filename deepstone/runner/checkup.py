"""Checks an environment: its interpreter runs, its packages match the lock, and the framework trains."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from msgspec import Struct

from deepstone.backends.registry import BACKENDS
from deepstone.environments.add import option_for
from deepstone.environments.chroot import LOCKED, installed_debs
from deepstone.environments.environment import Environment
from deepstone.environments.manifest import Unusable
from deepstone.environments.probe import Probed, probe
from deepstone.errors import MissingError
from deepstone.results.parts import Json
from deepstone.runner.examine import Missing, try_request
from deepstone.runner.job import Machine

_CHANGES_SHOWN = 5


class Checkup(Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    problems: tuple[Missing, ...]

    @property
    def is_well(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Json]:
        problems: list[Json] = [each.to_json() for each in self.problems]
        return {"name": self.name, "kind": self.kind, "well": self.is_well, "problems": problems}


def check_up(environment: Environment, machine: Machine) -> Checkup:
    return Checkup(name=environment.name, kind=environment.kind, problems=tuple(_problems(environment, machine)))


def of_unusable(entry: Unusable) -> Checkup:
    """An environment that is still being built is not a problem."""
    remedy = f"deepstone env remove {entry.name}, or deepstone env add {entry.name}"
    problems = () if entry.being_built else (Missing(what="environment", why=entry.reason, remedy=remedy),)
    return Checkup(name=entry.name, kind="being made" if entry.being_built else "unusable", problems=problems)


def _problems(environment: Environment, machine: Machine) -> Iterator[Missing]:
    remedy = _remedy(environment)
    try:
        probed = probe(environment.command, BACKENDS[environment.framework], environment.variables_over(os.environ))
    except MissingError as error:
        yield Missing(what="interpreter", why=str(error), remedy=remedy)
        return
    changes = _changes(environment, probed)
    if changes:
        yield Missing(what="versions", why=changes, remedy=remedy)
    why = try_request(environment, machine, {"framework": environment.framework})
    if why:
        yield Missing(what="training", why=why, remedy=remedy)


def _changes(environment: Environment, probed: Probed) -> str:
    """Describe what changed since the environment was built: runs before and after are not comparable."""
    if environment.kind == "own":  # it has no lock: the user may install anything
        return ""
    then, now = environment.lock, {**probed.lock, **_debs(environment)}
    names = sorted({*then, *now})
    changes = [_change(name, then.get(name), now.get(name)) for name in names if then.get(name) != now.get(name)]
    more = f" and {len(changes) - _CHANGES_SHOWN} more" if len(changes) > _CHANGES_SHOWN else ""
    return ", ".join(changes[:_CHANGES_SHOWN]) + more


def _change(name: str, then: str | None, now: str | None) -> str:
    if then is None:
        return f"{name} {now} was added"
    if now is None:
        return f"{name} {then} was removed"
    return f"{name} was {then} and is {now}"


def _debs(environment: Environment) -> dict[str, str]:
    """Return the versions that a chroot environment has now of the locked packages."""
    if environment.system is None:
        return {}
    return installed_debs(environment.system, [name.removeprefix(LOCKED) for name in environment.lock])


def _remedy(environment: Environment) -> str:
    if environment.kind in ("venv", "chroot"):
        return f"deepstone env add {environment.name} --again"
    if environment.kind == "adopted":
        words = [environment.framework, option_for(environment.language), str(environment.program)]
        words += ["--name", environment.name]
        words += [word for name, value in environment.variables.items() for word in ("--set", f"{name}={value}")]
        return f"deepstone env add {shlex.join(words)} --again; or deepstone env remove {environment.name}"
    return BACKENDS[environment.framework].remedy
