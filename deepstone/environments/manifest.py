"""The file environment.json: what an environment is. It is the last thing written, so where it is, all is there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

from deepstone.durable import write_whole
from deepstone.environments.environment import Environment
from deepstone.environments.names import NAME
from deepstone.environments.places import Place

_FORMAT: Final = 1
_KINDS: Final = ("venv", "chroot", "adopted")
_TEXTS: Final = ("name", "framework", "version", "kind", "python", "recipe_sha", "made_at")


class Damaged(Exception):
    """The file is there and does not say what it must; the message tells what is wrong with it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    environment: Environment
    recipe_sha: str  # "" when adopted
    size_bytes: int  # 0 when adopted: what others made is not ours to count
    made_at: str


def write_manifest(place: Place, environment: Environment, *, recipe_sha: str, size_bytes: int) -> Manifest:
    manifest = Manifest(
        environment=environment,
        recipe_sha=recipe_sha,
        size_bytes=size_bytes,
        made_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    )
    write_whole(json.dumps(_to_json(manifest), indent=1).encode("ascii") + b"\n", place.manifest)
    return manifest


def read_manifest(place: Place) -> Manifest:
    """FileNotFoundError when there is none; Damaged when there is something else."""
    try:
        content: Any = json.loads(place.manifest.read_bytes())
    except (ValueError, RecursionError):
        raise Damaged("environment.json is not JSON") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Damaged(f"environment.json cannot be read: {(error.strerror or str(error)).lower()}") from error
    return _from_json(content, place)


def _to_json(manifest: Manifest) -> dict[str, object]:
    environment = manifest.environment
    return {
        "format": _FORMAT,
        "name": environment.name,
        "framework": environment.framework,
        "version": environment.version,
        "kind": environment.kind,
        "python": str(environment.python),
        "variables": dict(environment.variables),
        "recipe_sha": manifest.recipe_sha,
        "size_bytes": manifest.size_bytes,
        "made_at": manifest.made_at,
        "lock": dict(environment.lock),
    }


def _from_json(content: Any, place: Place) -> Manifest:
    if not isinstance(content, dict):
        raise Damaged("environment.json is not an object")
    found = cast(dict[str, Any], content)
    if found.get("format") != _FORMAT:
        raise Damaged(f"environment.json is not of format {_FORMAT}")
    for key in _TEXTS:
        if not isinstance(found.get(key), str):
            raise Damaged(f"environment.json has no {key}")
    for key in ("lock", "variables"):
        if not _is_text_table(found.get(key)):
            raise Damaged(f"environment.json has no {key}")
    size_bytes = found.get("size_bytes")
    if not isinstance(size_bytes, int) or found["kind"] not in _KINDS or "python" not in found["lock"]:
        raise Damaged("environment.json lacks the kind, the size or the version of Python")
    if found["name"] != place.name or not NAME.fullmatch(place.name):
        raise Damaged(f"environment.json is that of {found['name']!r}")
    environment = Environment(
        framework=found["framework"],
        version=found["version"],
        python=Path(found["python"]),
        lock=found["lock"],
        name=found["name"],
        kind=found["kind"],
        variables=found["variables"],
    )
    return Manifest(
        environment=environment, recipe_sha=found["recipe_sha"], size_bytes=size_bytes, made_at=found["made_at"]
    )


def _is_text_table(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(text, str) for text in cast(Mapping[str, object], value).values()
    )
