"""Takes an environment's folder away so that, whenever we stop, what is left is not taken for an environment."""

from __future__ import annotations

import secrets
import shutil
from contextlib import suppress

from deepstone.environments.mounts import mounts_within, unmount_within
from deepstone.environments.places import Place


def discard(place: Place) -> None:
    """Under the environment's lock. OSError when the folder is still there afterwards.

    Nothing of ours is mounted where others see it. What a person mounted there is unmounted, or nothing is removed.
    """
    unmount_within(place.folder)
    aside = place.removed / f"{place.name}.{secrets.token_hex(6)}"
    try:
        place.folder.rename(aside)
    except FileNotFoundError:
        return
    except OSError:
        place.manifest.unlink(missing_ok=True)  # first of all: without it nobody uses the rest
        shutil.rmtree(place.folder)
    else:
        shutil.rmtree(aside, ignore_errors=True)  # what resists is tried again by `sweep`


def sweep(place: Place) -> None:
    """Removes what processes that were killed had set aside. Others may be doing the same."""
    with suppress(OSError):
        for entry in place.removed.iterdir():
            if not mounts_within(entry):
                shutil.rmtree(entry, ignore_errors=True)
