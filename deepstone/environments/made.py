"""What the folder of environments holds, by its files alone: nothing is started or imported to find out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deepstone.environments.locks import is_held
from deepstone.environments.manifest import Damaged, Manifest, read_manifest
from deepstone.environments.names import NAME
from deepstone.environments.places import Place, as_store_error


@dataclass(frozen=True, kw_only=True, slots=True)
class Unusable:
    """A folder that holds no environment that can be used."""

    name: str
    reason: str
    being_made: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    made: tuple[Manifest, ...]
    unusable: tuple[Unusable, ...]


def survey(root: Path, framework: str = "") -> Survey:
    """The environments of one framework, or of all, by name."""
    made: list[Manifest] = []
    unusable: list[Unusable] = []
    for name in _names(root):
        if framework and not name.startswith(f"{framework}@"):
            continue
        place = Place(root=root, name=name)
        try:
            made.append(read_manifest(place))
        except FileNotFoundError:
            being_made = is_held(place.lock)
            reason = "another deepstone is making it" if being_made else "half-made: its making was cut short"
            unusable.append(Unusable(name=name, reason=reason, being_made=being_made))
        except Damaged as damage:
            unusable.append(Unusable(name=name, reason=f"damaged: {damage}", being_made=False))
    return Survey(made=tuple(made), unusable=tuple(unusable))


def _names(root: Path) -> list[str]:
    with as_store_error("list the environments", root):
        try:
            return sorted(entry.name for entry in root.iterdir() if NAME.fullmatch(entry.name) and entry.is_dir())
        except FileNotFoundError:
            return []
