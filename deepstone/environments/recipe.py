"""A recipe describes how to build an environment. It is TOML, and it is checked, since users may write recipes."""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import field

from deepstone.backends.registry import BACKENDS
from deepstone.environments.environment import NAME, names_version
from deepstone.errors import UsageError, nearest, shown

_PYTHON: Final = re.compile(r"[23]\.[0-9]{1,2}")
_PIN: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(\[[A-Za-z0-9,._-]+\])?==([A-Za-z0-9][A-Za-z0-9.+!_-]*)")
_PLAIN_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OPTION: Final = re.compile(r"(--[a-z][a-z-]*)(=.+)?")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SUITE: Final = re.compile(r"[a-z][a-z-]*")  # of Debian
_DEB: Final = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_ALIAS: Final = re.compile(r"[a-z][a-z0-9]*")
_LIBRARY: Final = re.compile(r"lib[A-Za-z0-9_+-]+\.so[0-9.]*")  # so it stays inside its folder
_ELSEWHERE: Final = {"--target", "--prefix", "--root", "--user", "--python", "--requirement", "--editable"}
_SPACE_FACTOR: Final = 1.2  # downloads and unpacked files are on the disk at the same time

_Value = TypeVar("_Value")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One call of pip. Every package is pinned and named. `dependencies` allows others, for a package whose builds have
    different dependencies and pin them. For a package that is built here: `variables` of the build, and
    `toolchain`, the text of a toolchain file that CMake reads first."""

    packages: tuple[str, ...]
    pip: str = ""  # the required version of pip; "": that of the interpreter
    options: tuple[str, ...] = ()
    dependencies: bool = False
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    toolchain: str = ""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A library of this machine under the name that an old framework loads."""

    name: str
    to: str  # the name of the real file
    remedy: str  # how to install it


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    framework: str
    version: str
    kind: Literal["venv", "chroot"]  # venv: built by pip, in `steps`; chroot: a Debian with `suite` and `packages`
    python: tuple[str, ...]  # suitable versions, the best first
    steps: tuple[Step, ...]
    suite: str
    packages: tuple[str, ...]
    size_bytes: int  # of the installed environment
    minutes: float  # roughly, mostly for downloading
    variables: Mapping[str, str]  # `{environment}` in a value means the folder of the environment
    links: tuple[Link, ...]
    default: bool  # whether the framework's bare name means this recipe
    alias: str  # another name to add it by: that of a library which it has beside the framework
    year: int
    notes: str

    @property
    def sha(self) -> str:
        """Return a hash of all fields that affect the result, so without notes, size and time."""
        steps = [_parts(step) for step in self.steps]
        parts: list[Any] = [self.framework, self.version, self.kind, steps, dict(self.variables)]
        if self.kind == "chroot":
            parts.append([self.suite, self.packages])
        if self.links:
            parts.append([[link.name, link.to] for link in self.links])
        text = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def room_bytes(self) -> int:
        """Return the disk space that building it needs."""
        return int(_SPACE_FACTOR * self.size_bytes)


def parse_recipe(data: bytes, origin: Path) -> Recipe:
    """Parse and check a recipe. Raises UsageError with the file and the mistake."""
    try:
        table: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
        return _recipe(_Fields(table))
    except RecursionError:
        raise UsageError(f"recipe {origin}: is nested too deeply") from None
    except ValueError as error:  # not UTF-8, not TOML, or not a recipe
        raise UsageError(f"recipe {origin}: {' '.join(shown(line) for line in str(error).splitlines())}") from None


class _Fields:
    """The keys of a table. Each is taken once with its check; a key that remains is unknown and an error."""

    def __init__(self, table: Mapping[str, Any], where: str = "") -> None:
        self._table = dict(table)
        self._where = where
        self._known: set[str] = set()

    def take(self, key: str, check: Callable[[Any], _Value | None], expected: str, *default: _Value) -> _Value:
        """Return the checked value. The check returns None for an invalid value; `expected` describes a valid one."""
        self._known.add(key)
        if key not in self._table:
            if default:
                return default[0]
            raise ValueError(f"{self._where}{key} is missing: {expected}")
        given = self._table.pop(key)
        value = check(given)
        if value is None:
            raise ValueError(f"{self._where}{key} must be {expected}, not {_brief(given)}")
        return value

    def end(self) -> None:
        for key in self._table:
            raise ValueError(f"{self._where}{key}: no such key; {nearest(key, self._known)}")


def _recipe(fields: _Fields) -> Recipe:
    framework = fields.take("framework", _framework, "a framework that Deepstone has a backend for")
    version = fields.take("version", _matching(_PLAIN_VERSION), "a version")
    kind = fields.take("kind", _kind, "venv or chroot")
    is_venv = kind == "venv"
    recipe = Recipe(
        name=fields.take("name", _matching(NAME), f"a name such as {framework}@{version}"),
        framework=framework,
        version=version,
        kind=kind,
        python=fields.take("python", _list_of(_matching(_PYTHON)), 'versions, the best first, as in ["3.11", "3.12"]'),
        steps=fields.take("steps", _steps, "calls of pip, each a table [[steps]]") if is_venv else (),
        suite="" if is_venv else fields.take("suite", _matching(_SUITE), "a release of Debian, as in bullseye"),
        packages=() if is_venv else fields.take("packages", _list_of(_matching(_DEB)), "names of Debian's packages"),
        size_bytes=fields.take("size_bytes", _whole(1, 2**50), "a number of bytes"),
        minutes=fields.take("minutes", _positive, "a number above 0"),
        variables=fields.take("variables", _variables, "a table of names and texts", {}),
        links=fields.take("links", _links, "libraries, each a table [[links]]", ()) if is_venv else (),
        default=fields.take("default", _truth, "true or false", False),
        alias=fields.take("alias", _matching(_ALIAS), "a short name in lower case", ""),
        year=fields.take("year", _whole(2000, 2100), "the year of the release"),
        notes=fields.take("notes", _text, "text", ""),
    )
    fields.end()
    if not names_version(recipe.name, framework, version):
        raise ValueError(f"name must be {framework}@{version} or {framework}@{version}-VARIANT, not {recipe.name}")
    return recipe


def _kind(given: Any) -> Literal["venv", "chroot"] | None:
    return given if given in ("venv", "chroot") else None


def _steps(given: Any) -> tuple[Step, ...] | None:
    tables = _as(list[dict[str, Any]], given)
    if not tables:
        return None
    return tuple(_step(_Fields(table, f"steps {number}: ")) for number, table in enumerate(tables, 1))


def _step(fields: _Fields) -> Step:
    step = Step(
        packages=fields.take("packages", _list_of(_matching(_PIN)), "exact pins, as in numpy==2.4.6"),
        pip=fields.take("pip", _matching(_PLAIN_VERSION), "a version of pip", ""),
        options=fields.take("options", _list_of(_option), "options of pip install that keep to the environment", ()),
        dependencies=fields.take("dependencies", _truth, "true or false", False),
        variables=fields.take("variables", _variables, "a table of names and texts", {}),
        toolchain=fields.take("toolchain", _text, "the text of a toolchain file of CMake", ""),
    )
    fields.end()
    return step


def _parts(step: Step) -> list[Any]:
    """What affects the result. What most recipes lack is left out there, so that their hashes stay."""
    built = [dict(step.variables), step.toolchain] if step.variables or step.toolchain else []
    return [step.packages, step.pip, step.options, step.dependencies, *built]


def _links(given: Any) -> tuple[Link, ...] | None:
    tables = _as(list[dict[str, Any]], given)
    if tables is None:
        return None
    return tuple(_link(_Fields(table, f"links {number}: ")) for number, table in enumerate(tables, 1))


def _link(fields: _Fields) -> Link:
    link = Link(
        name=fields.take("name", _matching(_LIBRARY), "the name of a library, as in libmpi.so.12"),
        to=fields.take("to", _matching(_LIBRARY), "the name of a library's file, as in libmpi.so.40"),
        remedy=fields.take("remedy", _text, "how to get it"),
    )
    fields.end()
    return link


def _framework(given: Any) -> str | None:
    return given if isinstance(given, str) and given in BACKENDS and BACKENDS[given].package else None


def _option(given: Any) -> str | None:
    match = _OPTION.fullmatch(given) if isinstance(given, str) else None
    return None if match is None or match[1] in _ELSEWHERE else match[0]


def _variables(given: Any) -> dict[str, str] | None:
    table = _as(dict[str, str], given)
    if table is None:
        return None
    fits = all(_VARIABLE.fullmatch(name) and _text(value) is not None for name, value in table.items())
    return table if fits else None


def _as(kind: type[_Value], given: Any) -> _Value | None:
    """Return the value if it has this type."""
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError:
        return None


def _text(given: Any) -> str | None:
    return given if isinstance(given, str) and "\0" not in given else None


def _truth(given: Any) -> bool | None:
    return given if isinstance(given, bool) else None


def _positive(given: Any) -> float | None:
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    return float(given) if is_number and 0 < given < math.inf else None


def _whole(least: int, most: int) -> Callable[[Any], int | None]:
    def check(given: Any) -> int | None:
        is_whole = isinstance(given, int) and not isinstance(given, bool)
        return given if is_whole and least <= given <= most else None

    return check


def _matching(pattern: re.Pattern[str]) -> Callable[[Any], str | None]:
    def check(given: Any) -> str | None:
        return given if isinstance(given, str) and pattern.fullmatch(given) else None

    return check


def _list_of(check: Callable[[Any], str | None]) -> Callable[[Any], tuple[str, ...] | None]:
    def check_all(given: Any) -> tuple[str, ...] | None:
        checked = [check(entry) for entry in _as(list[Any], given) or ()]
        good = tuple(entry for entry in checked if entry is not None)
        return good if good and len(good) == len(checked) else None

    return check_all


def _brief(given: Any) -> str:
    text = repr(given)
    return text if len(text) <= 80 else f"{text[:80]}…"
