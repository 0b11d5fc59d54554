"""The file environment.json describes an environment. It is written last: if it exists, the environment is complete.

`survey` lists the environments from these files only: it starts and imports nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec

from deepstone.backends.registry import Language
from deepstone.durable import write_whole
from deepstone.environments.environment import NAME, Environment
from deepstone.environments.places import Place, as_store_error, is_locked
from deepstone.errors import reason

_FILE: Final = "environment.json"


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of the file, format 1. It has `python`, or `program` and the language of that."""

    format: Literal[1]
    name: str
    framework: str
    version: str
    kind: Literal["venv", "chroot", "adopted"]
    variables: dict[str, str]
    recipe_sha: str
    size_bytes: int
    made_at: str
    lock: dict[str, str]
    python: str = ""
    program: str = ""
    language: Language = "python"


class Damaged(Exception):
    """The file exists but is invalid; the message says why."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    environment: Environment
    recipe_sha: str  # "" when adopted
    size_bytes: int  # 0 when adopted: it belongs to others
    made_at: str


class Unusable(msgspec.Struct, frozen=True, kw_only=True):
    """A folder without a usable environment."""

    name: str
    reason: str
    being_built: bool


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """The environments in a folder, and the unusable folders in it."""

    made: tuple[Manifest, ...]
    unusable: tuple[Unusable, ...]


def write_manifest(place: Place, environment: Environment, *, recipe_sha: str, size_bytes: int) -> Manifest:
    assert environment.kind != "own"
    file = _File(
        format=1,
        name=environment.name,
        framework=environment.framework,
        version=environment.version,
        kind=environment.kind,
        variables=dict(environment.variables),
        recipe_sha=recipe_sha,
        size_bytes=size_bytes,
        made_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        lock=dict(environment.lock),
        language=environment.language,
        **{"python" if environment.language == "python" else "program": str(environment.program)},
    )
    write_whole(msgspec.json.format(msgspec.json.encode(file), indent=1) + b"\n", place.manifest)
    return _manifest(file)


def read_manifest(place: Place) -> Manifest:
    """Raises FileNotFoundError if there is none, Damaged if it is invalid."""
    try:
        content = msgspec.json.decode(place.manifest.read_bytes())
    except (ValueError, RecursionError):
        raise Damaged(f"{_FILE} is not JSON") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Damaged(f"{_FILE} cannot be read: {reason(error)}") from error
    try:
        file = msgspec.convert(content, _File)
    except msgspec.ValidationError as error:
        from deepstone.results.refusal import rewritten

        raise Damaged(f"{_FILE}: {rewritten(error, content, _File)}") from None
    if not _program(file) or file.language not in file.lock:
        raise Damaged(f"{_FILE} lacks the interpreter, or its version")
    if file.name != place.name or not NAME.fullmatch(place.name):
        raise Damaged(f"{_FILE} is that of {file.name!r}")
    return _manifest(file)


def survey(root: Path, framework: str = "") -> Survey:
    """Return the environments of one framework, or of all, by name."""
    made: list[Manifest] = []
    unusable: list[Unusable] = []
    for name in _names(root):
        if framework and not name.startswith(f"{framework}@"):
            continue
        place = Place(root=root, name=name)
        try:
            made.append(read_manifest(place))
        except FileNotFoundError:
            being_built = is_locked(place.lock)
            reason = "another deepstone is making it" if being_built else "half-made: its making was cut short"
            unusable.append(Unusable(name=name, reason=reason, being_built=being_built))
        except Damaged as damage:
            unusable.append(Unusable(name=name, reason=f"damaged: {damage}", being_built=False))
    return Survey(made=tuple(made), unusable=tuple(unusable))


def _program(file: _File) -> str:
    return file.python if file.language == "python" else file.program


def _manifest(file: _File) -> Manifest:
    environment = Environment(
        framework=file.framework,
        version=file.version,
        program=Path(_program(file)),
        lock=file.lock,
        name=file.name,
        kind=file.kind,
        variables=file.variables,
        language=file.language,
    )
    return Manifest(
        environment=environment, recipe_sha=file.recipe_sha, size_bytes=file.size_bytes, made_at=file.made_at
    )


def _names(root: Path) -> list[str]:
    with as_store_error("list the environments", root):
        try:
            return sorted(entry.name for entry in root.iterdir() if NAME.fullmatch(entry.name) and entry.is_dir())
        except FileNotFoundError:
            return []
