"""A value that could not be measured, with the reason: records have this instead of null, zero or a guess."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class Absent:
    """Stands where a value would. The reason is for a person, and holds the remedy where there is one."""

    absent: str  # named as in JSON

    @property
    def reason(self) -> str:
        return self.absent

    def to_json(self) -> dict[str, str]:
        return {"absent": self.absent}


def as_json(tree: object) -> Any:
    """A tree of mappings and sequences as JSON holds it, with what writes itself, as an `Absent` does, written."""
    to_json = getattr(tree, "to_json", None)
    if to_json is not None:
        return to_json()
    if isinstance(tree, Mapping):
        return {key: as_json(value) for key, value in cast(Mapping[str, object], tree).items()}
    if isinstance(tree, Sequence) and not isinstance(tree, str):
        return [as_json(value) for value in cast(Sequence[object], tree)]
    return tree
