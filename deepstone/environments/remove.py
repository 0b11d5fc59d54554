"""Removes environments. What was adopted is only forgotten."""

from __future__ import annotations

from pathlib import Path

from deepstone.environments.discard import discard, sweep
from deepstone.environments.find import own_environments
from deepstone.environments.locks import held
from deepstone.environments.made import survey
from deepstone.environments.places import Place, as_store_error
from deepstone.environments.undisturbed import undisturbed
from deepstone.environments.watch import Watch
from deepstone.errors import UsageError, nearest, shown


def resolve(wanted: str, root: Path) -> str:
    """The name of the one that is meant: its own, or a framework's that has only one. UsageError for anything else."""
    found = survey(root)
    names = [manifest.environment.name for manifest in found.made] + [entry.name for entry in found.unusable]
    meant = [name for name in names if wanted in (name, name.partition("@")[0])]
    if wanted in meant or len(meant) == 1:
        return wanted if wanted in meant else meant[0]
    if meant:
        raise UsageError(f"{wanted}: there are several; name one of {', '.join(meant)}")
    own = [each for each in own_environments() if wanted in (each.name, each.framework)]
    if own:
        raise UsageError(f"{wanted}: belongs to {own[0].python}, which runs Deepstone; remove it there with pip")
    tail = nearest(wanted, names) if names else "there is none"
    raise UsageError(f"{shown(wanted)}: no such environment; {tail}")


def remove(name: str, root: Path, watch: Watch) -> None:
    place = Place(root=root, name=name)
    with as_store_error(f"remove {name}", root):
        place.make_folders_around()
        with held(place.lock, lambda: watch.say(f"another deepstone makes {name}; waiting")), undisturbed():
            discard(place)
            place.log.unlink(missing_ok=True)
            sweep(place)
