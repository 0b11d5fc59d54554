"""Memory allocators for a worker: which library replaces malloc, where it is found, and the variable that preloads it.

The dynamic linker loads what LD_PRELOAD names before all other libraries, so their calls of malloc go there. A library
that it cannot load is skipped with a message only, so the worker reads back where its malloc is (`worker/serve.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from deepstone.errors import MissingError
from deepstone.setups.axes import AUTO, GLIBC

VARIABLE: Final = "LD_PRELOAD"

# File names without their version, the preferred first, and the package of Debian and Ubuntu that has them.
_LIBRARIES: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "jemalloc": (("libjemalloc.so",), "libjemalloc2"),
    "tcmalloc": (("libtcmalloc_minimal.so", "libtcmalloc.so"), "libtcmalloc-minimal4"),
}
_FOLDERS: Final = ("/usr/local/lib", "/usr/lib", "/usr/lib64", "/lib", "/lib64")


def preloaded(allocator: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that gives a worker this allocator. Raises MissingError if it is not installed.

    Other allocators that the user preloads give way; what else is preloaded stays.
    """
    if allocator == AUTO:
        return {}
    kept = [word for word in given.get(VARIABLE, "").replace(":", " ").split() if not _is_allocator(word)]
    found = [] if allocator == GLIBC else [str(_find(allocator, given))]
    words = [*found, *kept]
    return {VARIABLE: ":".join(words)} if words or VARIABLE in given else {}


def installed_allocators(given: Mapping[str, str]) -> tuple[str, ...]:
    """The libraries that can be preloaded here."""
    return tuple(name for name in _LIBRARIES if _found(name, given) is not None)


def _is_allocator(path: str) -> bool:
    return any(name in Path(path).name for name in (*_LIBRARIES, "mimalloc"))


def _find(allocator: str, given: Mapping[str, str]) -> Path:
    found = _found(allocator, given)
    if found is not None:
        return found
    names, package = _LIBRARIES[allocator]
    raise MissingError(
        f"allocator={allocator}: {names[0]} is not installed; install it, on Debian with `apt install {package}`, or "
        "put its folder into LD_LIBRARY_PATH"
    )


def _found(allocator: str, given: Mapping[str, str]) -> Path | None:
    names, _package = _LIBRARIES[allocator]
    for folder in _folders(given):
        for name in names:
            found = sorted(folder.glob(f"{name}*"))
            if found:
                return found[-1]
    return None


def _folders(given: Mapping[str, str]) -> Iterator[Path]:
    """Where the user's programs find libraries, then those of the system and of its architecture."""
    own = [*given.get("LD_LIBRARY_PATH", "").split(":"), f"{given.get('CONDA_PREFIX', '')}/lib"]
    yield from (Path(folder) for folder in own if folder.startswith("/"))
    for folder in _FOLDERS:
        yield from Path(folder).glob(f"{os.uname().machine}-linux-gnu")
        yield Path(folder)
