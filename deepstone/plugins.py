"""Backends and models that other packages bring, found by the entry points that they declare:

    [project.entry-points."deepstone.backends"]
    example = "deepstone_example:BACKEND"

Finding them imports none of them. The files that pip leaves are read here, since importlib.metadata takes long to
import; and nothing is read before someone asks for a name that Deepstone does not have itself, or for all names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, Generic, TypeVar

from deepstone.errors import MissingError

BACKENDS: Final = "deepstone.backends"
MODELS: Final = "deepstone.models"

_Entry = TypeVar("_Entry")


@dataclass(frozen=True, kw_only=True, slots=True)
class Plugin:
    """One entry point: the module that has it, what it is called there, and the package as in `example-0.1`."""

    name: str
    module: str
    attribute: str
    distribution: str


class PluginError(MissingError):
    """A plug-in that cannot be used."""

    def __init__(self, plugin: Plugin, why: str, remedy: str) -> None:
        self.what = f"plug-in {plugin.name} of {plugin.distribution}"
        self.why = why
        self.remedy = remedy
        super().__init__(f"{self.what}: {why}; {remedy}")


class WithPlugins(Mapping[str, _Entry], Generic[_Entry]):
    """What Deepstone has under a name, and what plug-ins add, each loaded when it is asked for.

    A name of ours stays ours. A plug-in that does not load is a PluginError for who asks for it; who goes through all
    of them does not meet it, and `broken` tells.
    """

    def __init__(self, own: Mapping[str, _Entry], group: str, kind: type[_Entry]) -> None:
        self._own = own
        self._group = group
        self._kind = kind
        self._loaded: dict[str, _Entry] = {}

    @property
    def own(self) -> Mapping[str, _Entry]:
        return self._own

    def __getitem__(self, name: str) -> _Entry:
        if name in self._own:
            return self._own[name]
        if name not in self._loaded:
            self._loaded[name] = self._load(declared(self._group)[name])
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in declared(self._group)

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in self._added() if self._error(name) is None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def names(self) -> list[str]:
        """All of them, without loading any."""
        return [*self._own, *self._added()]

    def broken(self) -> list[PluginError]:
        """Every plug-in that does not load, or whose name is taken."""
        taken = [
            PluginError(
                each, f"Deepstone has a {each.name} of its own, which is used", "ask its author for another name"
            )
            for each in declared(self._group).values()
            if each.name in self._own
        ]
        return [*taken, *(error for name in self._added() if (error := self._error(name)) is not None)]

    def _added(self) -> list[str]:
        return [name for name in declared(self._group) if name not in self._own]

    def _error(self, name: str) -> PluginError | None:
        try:
            self[name]
        except PluginError as error:
            return error
        return None

    def _load(self, plugin: Plugin) -> _Entry:
        try:
            found: object = import_module(plugin.module)
            for part in filter(None, plugin.attribute.split(".")):
                found = getattr(found, part)
        except Exception as error:  # whatever it is, it is the plug-in's
            raise _refusal(plugin, f"{type(error).__name__}: {error}") from error
        if not isinstance(found, self._kind):
            raise _refusal(
                plugin, f"{plugin.module}:{plugin.attribute} is a {type(found).__name__}, not a {self._kind.__name__}"
            )
        return found


def _refusal(plugin: Plugin, why: str) -> PluginError:
    package = plugin.distribution.rpartition("-")[0]
    return PluginError(
        plugin, f"it does not load: {' '.join(why.split())}", f"install it again, or pip uninstall {package}"
    )


@cache
def declared(group: str) -> Mapping[str, Plugin]:
    """The entry points of a group by name; of two with one name, the first on the path."""
    found: dict[str, Plugin] = {}
    for text, distribution in _entry_points():
        for name, value in _entries(text, group):
            module, _, attribute = value.partition("[")[0].partition(":")
            plugin = Plugin(name=name, module=module.strip(), attribute=attribute.strip(), distribution=distribution)
            found.setdefault(name, plugin)
    return found


@cache
def _entry_points() -> tuple[tuple[str, str], ...]:
    """The entry points of installed packages that declare any for Deepstone, with the packages' names."""
    found: list[tuple[str, str]] = []
    for folder in dict.fromkeys(sys.path):
        for path in sorted(Path(folder or ".").glob("*.dist-info/entry_points.txt")):
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, ValueError):  # not ours to read, or no text
                continue
            if "[deepstone." in text:
                found.append((text, path.parent.name.removesuffix(".dist-info")))
    return tuple(found)


def _entries(text: str, group: str) -> Iterator[tuple[str, str]]:
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == f"[{group}]"
        elif inside and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield name.strip(), value.strip()
