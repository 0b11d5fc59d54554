"""What commands share that take one setup on one or several frameworks, and print a result for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deepstone.errors import UsageError

if TYPE_CHECKING:
    from deepstone.setups.request import Choices

RESULT_SCHEMA = 1


def refuse_lists(choices: Choices, command: str) -> None:
    for name, values in choices.items():
        if name != "framework" and len(values) > 1:
            raise UsageError(f"{name}: {command} takes one value; only framework may list several")


def joined(kind: str, model: str, reports: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """One framework's result as it is; several by name."""
    if len(reports) == 1:
        return next(iter(reports.values()))
    return {"schema": RESULT_SCHEMA, "kind": kind, "model": model, "frameworks": dict(reports)}
